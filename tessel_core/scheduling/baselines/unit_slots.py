"""Split backward passes in unit slots, in which every pass lasts one: where the weight halves go.

Publications draw their schedules so; what is taken from the slots is an order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.scheduling.baselines.chain import Chain
from tessel_core.scheduling.order import Run

Slots = dict[Run, int]


def in_slots(slots: Slots) -> list[Run]:
    """The runs in order of their slots."""
    return sorted(slots, key=slots.__getitem__)


def weights_where_idle(plan: MicroBatchPlan, chain: Chain, order: Sequence[Run], most_held: int) -> Slots:
    """Runs as early as each device's order allows, and the weight halves that `order` lacks where nothing else can run.

    A chunk's activations are held from its forward pass to its weight half, and never more than `most_held`.
    """
    own: dict[int, list[Run]] = {device: [] for device in chain.devices}
    for b, m in order:
        own[plan.blocks[b].devices[0]].append((b, m))
    lines = [_Line(plan, chain, runs, most_held) for runs in own.values()]
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

    def __init__(self, plan: MicroBatchPlan, chain: Chain, runs: Sequence[Run], most_held: int) -> None:
        self.plan = plan
        self.room = most_held
        self.waiting = deque(runs)
        self.late: deque[Run] = deque()
        self.weight_of = dict(zip(chain.backward, chain.weight, strict=True))
        self.placed = set(self.waiting)

    def take(self, done: Slots) -> Run | None:
        """The run of the present slot, if any; those in `done` have ended."""
        if self.waiting and self._can_start(self.waiting[0], done):
            b, m = self.waiting.popleft()
        elif self.late and self._can_start(self.late[0], done):
            b, m = self.late.popleft()
        else:
            return None
        kind, weight = self.plan.blocks[b].kind, self.weight_of.get(b)
        self.room += (kind is BlockKind.WEIGHT) - (kind is BlockKind.FORWARD)
        if weight is not None and (weight, m) not in self.placed:
            self.late.append((weight, m))
        return b, m

    def _can_start(self, run: Run, done: Slots) -> bool:
        b, m = run
        if not self.room and self.plan.blocks[b].kind is BlockKind.FORWARD:
            return False
        return all((a, m) in done for a, _ in self.plan.predecessors[b])
