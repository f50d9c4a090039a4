"""A plan seen as a chain of pipeline stages, if it is one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tessel_core.model import BlockKind, MicroBatchPlan


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks by stage: `forward[s]` runs on one device of its own, `backward[s]` on the same device.

    `backward` is empty for inference; `weight[s]` is None where the backward is not split.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    weight: tuple[int | None, ...]


def find_chain(plan: MicroBatchPlan, blocks: tuple[int, ...]) -> Chain | str:
    """`blocks` as a chain of single-device stages, or one sentence why they are none."""
    kinds = {
        kind: [b for b in plan.topological_order if b in blocks and plan.blocks[b].kind is kind] for kind in BlockKind
    }
    forward, backward = kinds[BlockKind.FORWARD], kinds[BlockKind.BACKWARD]
    reason = _why_not_single(plan, blocks) or _why_not_line(plan, forward) or _why_not_line(plan, backward)
    if reason:
        return reason
    stage_of = {plan.blocks[b].devices[0]: stage for stage, b in enumerate(forward)}
    if not forward or len(stage_of) < len(forward):
        return "a device holds more than one forward block" if forward else "it has no forward block on one device"
    if not backward and not kinds[BlockKind.WEIGHT]:
        return Chain(tuple(forward), (), ())
    if [stage_of.get(plan.blocks[b].devices[0]) for b in backward] != list(reversed(range(len(forward)))):
        return "its backward blocks do not pass the forward blocks' devices in reverse"
    return _with_weights(plan, forward, backward, kinds[BlockKind.WEIGHT], stage_of)


def _why_not_single(plan: MicroBatchPlan, blocks: tuple[int, ...]) -> str:
    for block in (plan.blocks[b] for b in blocks):
        if len(block.devices) > 1:
            return f"block {block.name} runs on {len(block.devices)} devices at once"
        if block.kind is BlockKind.OTHER:
            return f"block {block.name} is neither forward nor backward"
    return ""


def _why_not_line(plan: MicroBatchPlan, blocks: list[int]) -> str:
    for before, after in pairwise(blocks):
        if not plan.ancestors[after] >> before & 1:
            return f"blocks {plan.blocks[before].name} and {plan.blocks[after].name} are on separate branches"
    return ""


def _with_weights(
    plan: MicroBatchPlan, forward: list[int], backward: list[int], weight: list[int], stage_of: dict[int, int]
) -> Chain | str:
    weights: list[int | None] = [None] * len(forward)
    for b in weight:
        stage = stage_of.get(plan.blocks[b].devices[0])
        if stage is None or weights[stage] is not None:
            return f"weight block {plan.blocks[b].name} belongs to no stage of its own"
        weights[stage] = b
    return Chain(tuple(forward), tuple(reversed(backward)), tuple(weights))


def slots_of_1f1b(chain: Chain, micro_batches: int) -> list[tuple[int, int, int]]:
    """1F1B's table as (slot, block, micro-batch): stage s runs forward m in slot s + 2m and backward m, of S stages,
    in slot 2S - 1 - s + 2m [Narayanan 2019, figure 4]; for inference forward m in slot s + m."""
    stages = len(chain.forward)
    if not chain.backward:
        return [(s + m, chain.forward[s], m) for s in range(stages) for m in range(micro_batches)]
    table = []
    for s in range(stages):
        for m in range(micro_batches):
            table.append((s + 2 * m, chain.forward[s], m))
            table.append((2 * stages - 1 - s + 2 * m, chain.backward[s], m))
            weight = chain.weight[s]
            if weight is not None:
                table.append((2 * stages - 1 - s + 2 * m, weight, m))
    return table
