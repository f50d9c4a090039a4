"""ZB-V: a zero-bubble pipeline in a V, in 1F1B's memory."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.two_chunks import find_two_chunks
from tessel_core.scheduling.baselines.unit_slots import in_slots, weights_where_idle
from tessel_core.scheduling.order import Run, merge_device_orders, numbered_runs, published_order
from tessel_core.scheduling.problem import Scheduler


def objection(plan: MicroBatchPlan) -> str:
    """ZB-V needs two chunks a device in a V, with a split backward."""
    chain = find_two_chunks(plan)
    return "" if isinstance(chain, Chain) else f"ZB-V needs two stages a device in a V, but {chain}"


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """The handcrafted order whose stable phase is one forward, one input half and one weight half of each chunk in turn
    [Qi 2024, section 6].

    It needs 2p - 1 micro-batches to become stable; with fewer, weight halves go where devices would idle instead.
    """
    chain = find_two_chunks(plan)
    assert isinstance(chain, Chain)
    devices = len(chain.devices) // 2
    planned = max(micro_batches, 2 * devices - 1)
    orders = [numbered_runs(_blocks(chain, d, planned), micro_batches) for d in range(devices)]
    merged = merge_device_orders(plan, orders)
    if micro_batches == planned:
        return merged
    urgent = [run for run in merged if run[0] not in chain.weight]
    return in_slots(weights_where_idle(plan, chain, urgent, most_held=2 * devices))


def _blocks(chain: Chain, device: int, micro_batches: int) -> list[int]:
    """The blocks that the device takes in turn, at least 2p - 1 micro-batches; 0 is its first chunk, 1 its second."""
    devices = len(chain.devices) // 2
    second, below = 2 * devices - 1 - device, devices - device
    f0, b0, w0 = chain.forward[device], *chain.whole_backward(device)
    f1, b1, w1 = chain.forward[second], *chain.whole_backward(second)
    blocks = [f0] * (2 * below - 1) + [f1, f0] * device + [f1, b1, w1] * below
    blocks += [f0, b0, w0, f1, b1, w1] * (micro_batches - (2 * devices - 1) + device)
    blocks += [b0, w0, f1, b1, w1] * (below - 1)
    return blocks + [b0, b1] * device + [b0, w0] * below + [w1] * device + [w0] * device


ZB_V = Scheduler(
    "zb-v",
    "ZB-V",
    "Qi et al., Zero Bubble Pipeline Parallelism, 2024, arXiv 2401.10241; Pipeline Parallelism with Controllable "
    "Memory, NeurIPS 2024, arXiv 2405.15362",
    published_order(order),
    objection=objection,
)
