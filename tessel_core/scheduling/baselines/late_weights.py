"""1F1B with the weight halves of the backward passes put off, as ZB-H1 and ZB-H2 have it."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain
from tessel_core.scheduling.order import Run, merge_device_orders


def find_split_chain(plan: MicroBatchPlan) -> Chain | str:
    """The plan as a chain of stages, each on its own device with a split backward, or why it is none."""
    chain = find_straight_chain(plan)
    if isinstance(chain, Chain) and not chain.split:
        return "not every stage has its backward split into an input and a weight half"
    return chain


def order_with_late_weights(plan: MicroBatchPlan, chain: Chain, micro_batches: int, extra: int) -> list[Run]:
    """Stage s of p runs p - s + min(p - 1 - s, extra) forward passes, then backward and forward passes in turn; each
    weight half follows the input half of the micro-batch that comes s + min(s, extra) later.

    So no stage holds more than p + extra activations.
    """
    stages = len(chain.devices)
    orders = []
    for s, (forward, backward, weight) in enumerate(zip(chain.forward, chain.backward, chain.weight, strict=True)):
        assert weight is not None
        ahead, late = stages - s + min(stages - 1 - s, extra), s + min(s, extra)
        runs = [(forward, m) for m in range(ahead)]
        for m in range(micro_batches + late):
            runs += [(backward, m), (weight, m - late), (forward, m + ahead)]
        orders.append([run for run in runs if 0 <= run[1] < micro_batches])
    return merge_device_orders(plan, orders)
