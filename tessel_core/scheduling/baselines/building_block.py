"""Pipelines made by repeating a building block, the passes of one micro-batch [Qi 2024, arXiv 2405.15362]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.baselines.unit_slots import Slots, in_slots, weights_where_idle
from tessel_core.scheduling.order import Run

_PERIOD = 6
"""Slots from one micro-batch to the next: each device runs three passes of two chunks."""


def repeated(
    plan: MicroBatchPlan, chain: Chain, block: Sequence[tuple[int, int]], micro_batches: int, most_held: int
) -> list[Run]:
    """The order of a building block, repeated, squeezed and reordered.

    `block[s]` is the slot of stage s's forward pass and of its input half; weight halves go into the gaps.  Then, as
    long as that shortens the whole, the passes of warmup and cooldown move to where devices idle; no device ever holds
    more than `most_held` chunks' activations.  In between, the building block stays as it is.
    """
    slots: Slots = {}
    for stage, pair in enumerate(block):
        for b, slot in zip((chain.forward[stage], chain.backward[stage]), pair, strict=True):
            slots.update(((b, m), slot + m * _PERIOD) for m in range(micro_batches))
    slots.update(_gaps_for_weights(plan, chain, slots))
    slots = _reordered(plan, chain, slots, most_held)
    while True:
        shorter = _reordered(plan, chain, slots, most_held)
        if max(shorter.values()) >= max(slots.values()):
            return in_slots(slots)
        slots = shorter


def _reordered(plan: MicroBatchPlan, chain: Chain, slots: Slots, most_held: int) -> Slots:
    """Warmup and cooldown with their passes moved earlier, the weight halves of cooldown where devices idle."""
    moved = _moved_earlier(plan, chain, slots, most_held)
    cooldown = max(slot for run, slot in moved.items() if run[0] == chain.forward[0])
    weights = set(chain.weight)
    kept = [run for run in in_slots(moved) if run[0] not in weights or moved[run] < cooldown]
    return weights_where_idle(plan, chain, kept, most_held)


def _gaps_for_weights(plan: MicroBatchPlan, chain: Chain, slots: Slots) -> Slots:
    """Slots for the weight halves: the first that are idle on their devices, in order of their input halves."""
    busy = {(plan.blocks[b].devices[0], slot) for (b, _), slot in slots.items()}
    weight_of = dict(zip(chain.backward, chain.weight, strict=True))
    found: Slots = {}
    next_gap = dict.fromkeys(chain.devices, 0)
    for b, m in in_slots(slots):
        weight = weight_of.get(b)
        if weight is None:
            continue
        d = plan.blocks[b].devices[0]
        slot = max(next_gap[d], slots[b, m] + 1)
        while (d, slot) in busy:
            slot += 1
        found[weight, m], next_gap[d] = slot, slot + 1
    return found


def _moved_earlier(plan: MicroBatchPlan, chain: Chain, slots: Slots, most_held: int) -> Slots:
    """Each run of warmup and cooldown moves to the first idle slot of its device after all that it depends on, a
    forward pass only where its device then holds no more than `most_held`.

    Warmup ends with the first stage's first input half, cooldown begins with its last forward pass.
    """
    moved = dict(slots)
    warm, cold = slots[chain.backward[0], 0], max(slots[run] for run in slots if run[0] == chain.forward[0])
    busy = {(plan.blocks[b].devices[0], slot) for (b, _), slot in slots.items()}
    held = _held(plan, slots)
    for b, m in in_slots(slots):
        d, kind, was = plan.blocks[b].devices[0], plan.blocks[b].kind, moved[b, m]
        if warm < was < cold:
            continue
        before = [moved[run] for run in ((b, m - 1), *((a, m) for a, _ in plan.predecessors[b])) if run in moved]
        for slot in range(max(before, default=-1) + 1, was):
            if (d, slot) in busy or (kind is BlockKind.FORWARD and held[d, slot:was].max() >= most_held):
                continue
            busy ^= {(d, slot), (d, was)}
            moved[b, m] = slot
            if kind is BlockKind.FORWARD:
                held[d, slot:was] += 1
            elif kind is BlockKind.WEIGHT:
                held[d, slot + 1 : was + 1] -= 1
            break
    return moved


def _held(plan: MicroBatchPlan, slots: Slots) -> IntColumn:
    """Chunks' activations held, shaped (devices, slots)."""
    change = np.zeros((len(plan.devices), max(slots.values()) + 2), dtype=np.int64)
    for (b, _), slot in slots.items():
        block = plan.blocks[b]
        if block.kind is BlockKind.FORWARD:
            change[block.devices[0], slot] += 1
        elif block.kind is BlockKind.WEIGHT:
            change[block.devices[0], slot + 1] -= 1
    return np.cumsum(change, axis=1)
