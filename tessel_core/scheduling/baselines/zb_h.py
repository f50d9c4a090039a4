"""ZB-H1 and ZB-H2: 1F1B with weight halves of backward passes delayed to where stages would idle."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain, with_split_backward
from tessel_core.scheduling.order import Run, merge_device_orders, published


def _find_split_chain(plan: MicroBatchPlan) -> Chain | str:
    """Return the chain of stages, each on its own device with a split backward pass, or why there is none."""
    return with_split_backward(find_straight_chain(plan))


def _order_with_late_weights(plan: MicroBatchPlan, chain: Chain, micro_batches: int, extra: int) -> list[Run]:
    """Return the order in which stage s of p first runs p - s + min(p - 1 - s, extra) forward passes.

    Then backward and forward passes alternate. Each weight half runs after the input half of a later micro-batch: the
    one that comes s + min(s, extra) micro-batches after its own. So no stage holds more than p + extra activations.
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


def _h1_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of ZB-H1 [Qi 2024, section 2.1].

    Forward passes and input halves are those of 1F1B. Weight halves are delayed until every stage holds as many
    activations as the first stage.
    """
    return _order_with_late_weights(plan, chain, micro_batches, extra=0)


ZB_H1 = published(
    "zb-h1",
    "ZB-H1",
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
    _find_split_chain,
    _h1_order,
    needs="ZB-H1 needs a chain of stages with a split backward",
)


def _h2_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of ZB-H2, in which no stage of p holds more than 2p - 1 activations [Qi 2024, section 2.2].

    Stage s of p starts with 2(p - s) - 1 forward passes and ends with 2s + 1 weight halves, so the schedule is a
    parallelogram. It needs 2p - 1 micro-batches. With fewer micro-batches, the order lies between those of ZB-H1 and
    ZB-H2.
    """
    stages = len(chain.devices)
    return _order_with_late_weights(plan, chain, micro_batches, extra=min(stages - 1, max(0, micro_batches - stages)))


ZB_H2 = published(
    "zb-h2",
    "ZB-H2",
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, arXiv 2401.10241",
    _find_split_chain,
    _h2_order,
    needs="ZB-H2 needs a chain of stages with a split backward",
)
