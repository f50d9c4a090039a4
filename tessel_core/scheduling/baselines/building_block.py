"""Pipelines made by repeating a building block, the passes of one micro-batch [Qi 2024, arXiv 2405.15362, section 3].

Everything here is in the publication's unit slots, in which every pass lasts one; what comes of it is an order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.order import Run

Slots = dict[Run, int]

_PERIOD = 6
"""Slots from one micro-batch to the next: each device runs three passes of two chunks."""


def repeated(
    plan: MicroBatchPlan, chain: Chain, block: Sequence[tuple[int, int]], micro_batches: int, most_held: int
) -> list[Run]:
    """The order of a building block, repeated, squeezed and reordered.

    `block[s]` is the slot of stage s's forward pass and of its input half; weight halves go where devices idle.
    While that shortens the whole, passes move to where warmup and cooldown leave a device idle; no device ever holds
    more than `most_held` chunks' activations.
    """
    slots: Slots = {}
    for stage, pair in enumerate(block):
        for b, slot in zip((chain.forward[stage], chain.backward[stage]), pair, strict=True):
            slots.update(((b, m), slot + m * _PERIOD) for m in range(micro_batches))
    slots = weights_where_idle(plan, chain, in_slots(slots), most_held)
    while True:
        shorter = weights_where_idle(plan, chain, in_slots(_moved_earlier(plan, slots, most_held)), most_held)
        if max(shorter.values()) >= max(slots.values()):
            return in_slots(slots)
        slots = shorter


def in_slots(slots: Slots) -> list[Run]:
    """The runs in order of their slots."""
    return sorted(slots, key=slots.__getitem__)


def weights_where_idle(plan: MicroBatchPlan, chain: Chain, order: Sequence[Run], most_held: int) -> Slots:
    """Forward passes and input halves as early as each device's order allows, weight halves where none of them can run.

    A chunk's activations are held from its forward pass to its weight half; the weight halves in `order` are ignored.
    """
    lines = [_Line(plan, chain, device, order, most_held) for device in sorted(set(chain.devices))]
    slots: Slots = {}
    now = 0
    while any(line.waiting or line.late for line in lines):
        taken = [run for run in (line.take(slots) for line in lines) if run is not None]
        assert taken, f"the orders of the devices of plan {plan.name} deadlock"
        slots.update((run, now) for run in taken)
        now += 1
    return slots


class _Line:
    """What one device has still to do."""

    def __init__(self, plan: MicroBatchPlan, chain: Chain, device: int, order: Sequence[Run], most_held: int) -> None:
        self.plan = plan
        self.weight_of = dict(zip(chain.backward, chain.weight, strict=True))
        own = {b for b in plan.blocks_on[device] if plan.blocks[b].kind is not BlockKind.WEIGHT}
        self.waiting = deque(run for run in order if run[0] in own)
        self.late: deque[Run] = deque()
        self.room = most_held

    def take(self, done: Slots) -> Run | None:
        """The run of the present slot, if any; those in `done` have ended."""
        if self.waiting and self._can_start(self.waiting[0], done):
            b, m = self.waiting.popleft()
            weight = self.weight_of.get(b)
            if weight is None:
                self.room -= 1
            else:
                self.late.append((weight, m))
            return b, m
        if self.late and self._can_start(self.late[0], done):
            self.room += 1
            return self.late.popleft()
        return None

    def _can_start(self, run: Run, done: Slots) -> bool:
        b, m = run
        if not self.room and self.plan.blocks[b].kind is BlockKind.FORWARD:
            return False
        return all((a, m) in done for a, _ in self.plan.predecessors[b])


def _moved_earlier(plan: MicroBatchPlan, slots: Slots, most_held: int) -> Slots:
    """Each run in turn moves to the first idle slot of its device after all that it depends on, a forward pass only
    where its device then holds no more than `most_held`."""
    moved = dict(slots)
    busy = {(plan.blocks[b].devices[0], slot) for (b, _), slot in slots.items()}
    held = _held(plan, slots)
    for b, m in in_slots(slots):
        d, kind, was = plan.blocks[b].devices[0], plan.blocks[b].kind, moved[b, m]
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
