"""A schedule changed by hand: a run put elsewhere, and what that does to the others.

Every change returns a schedule that keeps the rules, or raises InputError with the place, the reason and the rule.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tessel_core.editing.asked import number_in
from tessel_core.errors import InputError
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.search.timing import compacted
from tessel_core.scheduling.steady import find_steady_state


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run dropped at a tick, or on another run to swap places with it, as a timeline asks for it."""

    run: Run
    start: int = 0
    other: Run | None = None
    alone: bool = False
    """Whether all other runs stay where they are."""

    @classmethod
    def of(cls, asked: Mapping[str, object]) -> RunChange:
        """From what came from outside: what is no number is 0."""
        run = number_in(asked, "block"), number_in(asked, "micro_batch")
        other = number_in(asked, "other_block"), number_in(asked, "other_micro_batch")
        swaps = asked.get("does") == "swap"
        return cls(run, number_in(asked, "start"), other if swaps else None, asked.get("alone") is True)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Those that are moved: one, or two that swap places."""
        return (self.run,) if self.other is None else (self.run, self.other)

    def made_to(self, schedule: Schedule) -> Schedule:
        """The schedule with this change; raises InputError where it is none of this schedule, or breaks a rule."""
        counts = len(schedule.plan.blocks), schedule.micro_batches
        if any(not 0 <= place < count for run in self.runs for place, count in zip(run, counts, strict=True)):
            raise InputError("change", "is of another schedule")
        if self.other is not None:
            return swapped(schedule, self.run, self.other, alone=self.alone)
        return (moved_alone if self.alone else reordered)(schedule, self.run, self.start)


def moved_alone(schedule: Schedule, run: Run, start: int) -> Schedule:
    """The run at another start, all others where they are."""
    starts = schedule.starts.copy()
    starts[run[1], run[0]] = start
    return _judged(schedule, starts)


def reordered(schedule: Schedule, run: Run, start: int) -> Schedule:
    """The run at the place in its devices' orders to which `start` leads, and what follows as early as that allows.

    It goes before a run in whose first half, or before which, it is dropped.  Runs that end before both its old and its
    new place stay; of the others each comes in its turn, so that some overtake those that wait for the run.
    """
    b, m = run
    was = int(schedule.starts[m, b])
    duration = np.array([block.duration for block in schedule.plan.blocks], dtype=np.int64)
    turn = schedule.starts * 2 + duration  # twice the middle of each run
    turn[m, b] = 2 * start
    floor = np.where(schedule.starts < min(was, start), schedule.starts, 0)
    return _judged(schedule, _in_turn(schedule, turn, floor))


def swapped(schedule: Schedule, run: Run, other: Run, *, alone: bool = False) -> Schedule:
    """Two runs of one device in each other's turn, and what follows as early as that allows.

    `alone`, all others stay: the later run begins where the earlier one did, which ends where the later one did.
    """
    plan, starts = schedule.plan, schedule.starts
    first, second = sorted((run, other), key=lambda each: int(starts[each[1], each[0]]))
    if not set(plan.blocks[first[0]].devices) & set(plan.blocks[second[0]].devices):
        raise InputError(f"run {_name(schedule, first)}", f"shares no device with {_name(schedule, second)}")
    if first[1] == second[1] and plan.ancestors[second[0]] >> first[0] & 1:
        raise InputError(
            f"run {_name(schedule, second)}", f"needs what {_name(schedule, first)} makes (rule: dependency)"
        )
    duration = np.array([block.duration for block in plan.blocks], dtype=np.int64)
    one, two = first[::-1], second[::-1]
    if alone:
        found = starts.copy()
        found[two], found[one] = starts[one], starts[two] + duration[second[0]] - duration[first[0]]
        return _judged(schedule, found)
    turn = starts * 2 + duration
    turn[one], turn[two] = turn[two], turn[one]
    return _judged(schedule, _in_turn(schedule, turn, np.where(starts < starts[one], starts, 0)))


def pushed_left(schedule: Schedule) -> Schedule:
    """Every run as early as its devices' orders allow."""
    return _judged(schedule, compacted(schedule))


def _judged(schedule: Schedule, starts: IntColumn) -> Schedule:
    """The schedule with other starts; raises InputError with the first rule that it breaks."""
    found = Schedule.at_starts(schedule.plan, starts, find_steady_state(starts))
    violations = check_schedule(found)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    return found


def _name(schedule: Schedule, run: Run) -> str:
    return f"{schedule.plan.blocks[run[0]].name} of {run[1]}"


def _in_turn(schedule: Schedule, turn: IntColumn, floor: IntColumn) -> IntColumn:
    """Starts of runs taken in turn, each once its predecessors have been, at the end of its devices' lines.

    All are shaped (micro-batches, blocks); no start is below `floor`.
    """
    plan = schedule.plan
    waits = [len(before) for before in plan.predecessors]
    left = [list(waits) for _ in range(schedule.micro_batches)]
    ready = [
        (int(turn[m, b]), m, b) for m in range(schedule.micro_batches) for b, count in enumerate(waits) if not count
    ]
    heapq.heapify(ready)
    starts, free = floor.copy(), [0] * len(plan.devices)
    while ready:
        _, m, b = heapq.heappop(ready)
        block = plan.blocks[b]
        starts[m, b] = max(starts[m, b], *(free[d] for d in block.devices))
        end = int(starts[m, b]) + block.duration
        for d in block.devices:
            free[d] = end
        for after, lag in plan.successors[b]:
            starts[m, after] = max(starts[m, after], end + lag)
            left[m][after] -= 1
            if not left[m][after]:
                heapq.heappush(ready, (int(turn[m, after]), m, after))
    return starts
