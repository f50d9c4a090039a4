"""1F1B: after a warmup, each stage alternates forward and backward passes. 1F1B+ adds blocks on all devices."""

from __future__ import annotations

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain, Stages, find_stages, find_straight_chain
from tessel_core.scheduling.order import Run, merge_device_orders, published


def slots_of_1f1b(chain: Chain, micro_batches: int) -> list[tuple[int, int, int]]:
    """Return the table of 1F1B as triples (slot, block, micro-batch).

    With S stages, stage s runs the forward pass of micro-batch m in slot s + 2m, and its backward pass in slot 2S - 1 -
    s + 2m [Narayanan 2019, figure 4]. For inference, it runs the forward pass in slot s + m.
    """
    stages = len(chain.forward)
    if not chain.backward:
        return [(s + m, chain.forward[s], m) for s in range(stages) for m in range(micro_batches)]
    table = []
    for s in range(stages):
        for m in range(micro_batches):
            table.append((s + 2 * m, chain.forward[s], m))
            table += [(2 * stages - 1 - s + 2 * m, b, m) for b in chain.whole_backward(s)]
    return table


def _order(plan: MicroBatchPlan, stages: Stages, micro_batches: int) -> list[Run]:
    """Return the order in which each stage, after a warmup, alternates a forward pass and all of its backward blocks.

    The orders cannot deadlock. On the k-th stage from the end, the backward pass of micro-batch m comes after the
    forward pass of micro-batch m + k - 1. The previous stage runs that forward pass right after its own backward pass
    of micro-batch m - 2.
    """
    orders = []
    for s, (forward, backward) in enumerate(stages):
        ahead = min(len(stages) - s, micro_batches) if backward else micro_batches
        order = [(forward, m) for m in range(ahead)]
        for m in range(micro_batches):
            order += [(b, m) for b in backward]
            order += [(forward, m + ahead)] if m + ahead < micro_batches else []
        orders.append(order)
    return merge_device_orders(plan, orders)


ONE_F_ONE_B = published(
    "1f1b",
    "1F1B",
    "Narayanan et al., PipeDream, SOSP 2019; Megatron-LM, SC 2021, arXiv 2104.04473",
    find_stages,
    _order,
    needs="1F1B needs a chain of stages",
)


def _split(plan: MicroBatchPlan) -> tuple[list[int], list[int]]:
    """Return the blocks that run on all devices, and all other blocks."""
    wide = [b for b, block in enumerate(plan.blocks) if len(block.devices) == len(plan.devices)]
    return wide, [b for b in range(len(plan.blocks)) if b not in wide]


def _find_narrow_chain(plan: MicroBatchPlan) -> Chain | str:
    """Return the chain of stages that remains without the all-device blocks, or why 1F1B+ does not apply."""
    wide, narrow = _split(plan)
    if not wide or len(plan.devices) == 1:
        return "1F1B+ adds blocks that run on all devices to 1F1B, but this plan has none"
    chain = find_straight_chain(plan, narrow)
    if not isinstance(chain, Chain):
        return f"without its all-device blocks it must be a chain of stages, but {chain}"
    for b in wide:
        if plan.blocks[b].kind not in (BlockKind.FORWARD, BlockKind.BACKWARD):
            return f"all-device block {plan.blocks[b].name} is neither forward nor backward"
        if not any(plan.ancestors[b] >> a & 1 or plan.ancestors[a] >> b & 1 for a in narrow):
            return f"all-device block {plan.blocks[b].name} depends on no stage, and no stage depends on it"
    place = {b: i for i, (b, _) in enumerate(_woven_order(plan, chain, 1))}
    for before, after, _ in plan.arcs:
        if place[before] > place[after]:
            return f"block {plan.blocks[after].name} depends on {plan.blocks[before].name}, which 1F1B+ runs later"
    return chain


def _woven_order(plan: MicroBatchPlan, chain: Chain, micro_batches: int) -> list[Run]:
    """Return the order of 1F1B's slots with the all-device blocks in between [Lin 2024, section VI].

    An all-device forward block comes right before the first forward stage that needs it. An all-device backward block
    comes right after the last backward stage that it needs. A block between the last forward and the first backward
    stage comes right after the last forward stage.
    """
    wide, narrow = _split(plan)
    table = [(float(slot), b, m) for slot, b, m in slots_of_1f1b(chain, micro_batches)]
    slot_of = {(b, m): slot for slot, b, m in table}
    table += [(_woven_slot(plan, b, m, narrow, slot_of), b, m) for b in wide for m in range(micro_batches)]
    rank = {b: i for i, b in enumerate(plan.topological_order)}
    return [(b, m) for _, b, m in sorted(table, key=lambda row: (row[0], row[2], rank[row[1]]))]


def _woven_slot(plan: MicroBatchPlan, b: int, m: int, narrow: list[int], slot_of: dict[Run, float]) -> float:
    before = [a for a in narrow if plan.ancestors[b] >> a & 1]
    after = [a for a in narrow if plan.ancestors[a] >> b & 1]
    next_forward = [slot_of[a, m] for a in after if plan.blocks[a].kind is BlockKind.FORWARD]
    if next_forward:
        return min(next_forward) - 0.25
    if before:
        return max(slot_of[a, m] for a in before) + 0.25
    return min(slot_of[a, m] for a in after) - 0.25


ONE_F_ONE_B_PLUS = published(
    "1f1b+", "1F1B+", "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269", _find_narrow_chain, _woven_order
)
