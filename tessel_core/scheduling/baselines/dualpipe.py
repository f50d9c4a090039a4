"""DualPipe: two pipelines in opposite directions. Forward passes of one run beside backward passes of the other."""

from __future__ import annotations

from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_even_chains
from tessel_core.scheduling.order import Run, merge_device_orders, numbered_runs, published


def _order(plan: MicroBatchPlan, chains: tuple[Chain, Chain], micro_batches: int) -> list[Run]:
    """Return the order of DeepSeek-AI's code, mirrored on the second half of the devices [DeepSeek-AI 2024, figure 5].

    A micro-batch of the plan is one micro-batch in each direction. A forward and a backward pass that DualPipe overlaps
    run one after the other here, because a device runs one block at a time.
    """
    down, up = chains
    half = len(down.devices) // 2
    # The order needs at least one micro-batch per device. With fewer micro-batches, the runs of the missing
    # micro-batches are left out of the order.
    planned = max(micro_batches, 2 * half)
    steps = [_steps(down, up, d, planned) for d in range(half)] + [_steps(up, down, d, planned) for d in range(half)]
    return merge_device_orders(plan, [numbered_runs(blocks, micro_batches) for blocks in steps])


def _steps(near: Chain, far: Chain, distance: int, micro_batches: int) -> list[int]:
    """Return the blocks of one device in their order. The device is `distance` devices from the nearer end.

    It has stage `distance` of the chain `near`, which starts at this end, and the stage of the chain `far` that is
    `distance` before the last. During cooldown, weight halves are delayed, and run in the order of their input halves.
    A backward pass that is not split has no weight half to delay.
    """
    devices = len(near.devices)
    edge, middle = distance + 1, devices // 2 - 1 - distance
    f0, b0 = [near.forward[distance]], near.whole_backward(distance)
    f1, b1 = [far.forward[devices - edge]], far.whole_backward(devices - edge)
    blocks = f0 * (2 * middle) + (f0 + f1) * edge + (b1 + f1) * middle
    blocks += (f0 + b1 + f1 + b0) * (micro_batches - devices + edge)
    blocks += (b1 + f1 + b0) * middle
    ends = [b1, b0] * edge
    for backward in ends[:edge]:
        blocks += backward
    blocks += [backward[0] for backward in ends[edge:]]
    late = [backward[1:] for backward in ends[edge:] + [b0] * middle]
    for weight in late[:middle]:
        blocks += [*weight, b0[0]]
    for weight in late[middle:]:
        blocks += weight
    return blocks


DUALPIPE = published(
    "dualpipe",
    "DualPipe",
    "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, arXiv 2412.19437; github.com/deepseek-ai/DualPipe",
    lambda plan: find_even_chains(plan, "DualPipe", "DualPipe pairs devices of two halves, so their number"),
    _order,
    splits=True,
)
