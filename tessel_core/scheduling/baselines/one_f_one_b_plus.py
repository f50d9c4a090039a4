"""1F1B+: all-device blocks woven into 1F1B."""

from __future__ import annotations

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain, slots_of_1f1b
from tessel_core.scheduling.order import Run, published_order
from tessel_core.scheduling.problem import Scheduler


def _split(plan: MicroBatchPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(blocks on all devices, the others)"""
    everywhere = len(plan.devices)
    wide = tuple(b for b, block in enumerate(plan.blocks) if len(block.devices) == everywhere)
    return wide, tuple(b for b in range(len(plan.blocks)) if b not in wide)


def objection(plan: MicroBatchPlan) -> str:
    """1F1B+ needs all-device blocks and, without them, a chain of single-device stages."""
    wide, narrow = _split(plan)
    if not wide or len(plan.devices) == 1:
        return "1F1B+ weaves blocks that run on all devices into 1F1B, and this plan has none"
    chain = find_straight_chain(plan, narrow)
    if not isinstance(chain, Chain):
        return f"without its all-device blocks it must be a chain of single-device stages, but {chain}"
    return _why_not_woven(plan, wide, narrow)


def _why_not_woven(plan: MicroBatchPlan, wide: tuple[int, ...], narrow: tuple[int, ...]) -> str:
    for b in wide:
        if plan.blocks[b].kind not in (BlockKind.FORWARD, BlockKind.BACKWARD):
            return f"all-device block {plan.blocks[b].name} is neither forward nor backward"
        if not any(plan.ancestors[b] >> a & 1 or plan.ancestors[a] >> b & 1 for a in narrow):
            return f"all-device block {plan.blocks[b].name} depends on no stage and no stage on it"
    place = {b: i for i, (b, _) in enumerate(order(plan, 1))}
    for before, after, _ in plan.arcs:
        if place[before] > place[after]:
            return f"block {plan.blocks[after].name} depends on {plan.blocks[before].name}, which 1F1B+ runs later"
    return ""


def order(plan: MicroBatchPlan, micro_batches: int) -> list[Run]:
    """1F1B's slots for the chain; an all-device forward block goes right before the next forward stage that needs it,
    an all-device backward block right after the last backward stage that feeds it, and what lies between the last
    forward and the first backward stage right after the former [Lin 2024, section VI]."""
    wide, narrow = _split(plan)
    chain = find_straight_chain(plan, narrow)
    assert isinstance(chain, Chain)
    table = [(float(slot), b, m) for slot, b, m in slots_of_1f1b(chain, micro_batches)]
    slot_of = {(b, m): slot for slot, b, m in table}
    for b in wide:
        for m in range(micro_batches):
            table.append((_woven_slot(plan, b, m, narrow, slot_of), b, m))
    rank = {b: i for i, b in enumerate(plan.topological_order)}
    return [(b, m) for _, b, m in sorted(table, key=lambda row: (row[0], row[2], rank[row[1]]))]


def _woven_slot(plan: MicroBatchPlan, b: int, m: int, narrow: tuple[int, ...], slot_of: dict[Run, float]) -> float:
    before = [a for a in narrow if plan.ancestors[b] >> a & 1]
    after = [a for a in narrow if plan.ancestors[a] >> b & 1]
    next_forward = [slot_of[a, m] for a in after if plan.blocks[a].kind is BlockKind.FORWARD]
    if next_forward:
        return min(next_forward) - 0.25
    if before:
        return max(slot_of[a, m] for a in before) + 0.25
    return min(slot_of[a, m] for a in after) - 0.25


ONE_F_ONE_B_PLUS = Scheduler(
    "1f1b+",
    "1F1B+",
    "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269",
    published_order(order),
    objection=objection,
)
