"""Changes of a schedule by hand: a run is moved or swapped, and the other runs follow.

Every change returns a valid schedule, or raises InputError with the place, the reason and the broken rule.
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
    """A change that a timeline requests: move a run to a start time, or swap it with another run."""

    run: Run
    start: int = 0
    other: Run | None = None
    alone: bool = False
    """Whether all other runs keep their start times."""

    @classmethod
    def of(cls, asked: Mapping[str, object]) -> RunChange:
        """Read a change from a request of the browser.  Values that are not numbers become 0."""
        run = number_in(asked, "block"), number_in(asked, "micro_batch")
        other = number_in(asked, "other_block"), number_in(asked, "other_micro_batch")
        swaps = asked.get("does") == "swap"
        return cls(run, number_in(asked, "start"), other if swaps else None, asked.get("alone") is True)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The run that is moved, or the two runs that are swapped."""
        return (self.run,) if self.other is None else (self.run, self.other)

    def made_to(self, schedule: Schedule) -> Schedule:
        """Return the schedule with this change.  Raises InputError if it does not fit the schedule or breaks a rule."""
        counts = len(schedule.plan.blocks), schedule.micro_batches
        if any(not 0 <= place < count for run in self.runs for place, count in zip(run, counts, strict=True)):
            raise InputError("change", "is of another schedule")
        if self.other is not None:
            return swapped(schedule, self.run, self.other, alone=self.alone)
        return (moved_alone if self.alone else reordered)(schedule, self.run, self.start)


def moved_alone(schedule: Schedule, run: Run, start: int) -> Schedule:
    """Move one run to another start time and keep all others."""
    starts = schedule.starts.copy()
    starts[run[1], run[0]] = start
    return _checked(schedule, starts)


def reordered(schedule: Schedule, run: Run, start: int) -> Schedule:
    """Move a run in the order of its devices, and start all later runs as early as that order allows.

    The run is inserted before the first run whose middle is later than `start`.  Runs that start before both its old
    and its new start keep their times.
    """
    b, m = run
    was = int(schedule.starts[m, b])
    duration = np.array([block.duration for block in schedule.plan.blocks], dtype=np.int64)
    priority = schedule.starts * 2 + duration  # twice the middle of each run
    priority[m, b] = 2 * start
    floor = np.where(schedule.starts < min(was, start), schedule.starts, 0)
    return _checked(schedule, _in_order(schedule, priority, floor))


def swapped(schedule: Schedule, run: Run, other: Run, *, alone: bool = False) -> Schedule:
    """Swap two runs in the order of their device, and start all later runs as early as that order allows.

    With `alone`, all other runs keep their times: the later run starts at the start of the earlier one, and the earlier
    run ends at the end of the later one.
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
        changed = starts.copy()
        changed[two], changed[one] = starts[one], starts[two] + duration[second[0]] - duration[first[0]]
        return _checked(schedule, changed)
    priority = starts * 2 + duration
    priority[one], priority[two] = priority[two], priority[one]
    return _checked(schedule, _in_order(schedule, priority, np.where(starts < starts[one], starts, 0)))


def pushed_left(schedule: Schedule) -> Schedule:
    """Start every run as early as the order on its devices allows."""
    return _checked(schedule, compacted(schedule))


def _checked(schedule: Schedule, starts: IntColumn) -> Schedule:
    """Return the schedule with other start times.  Raises InputError with the first rule that it breaks."""
    changed = Schedule.at_starts(schedule.plan, starts, find_steady_state(starts))
    violations = check_schedule(changed)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    return changed


def _name(schedule: Schedule, run: Run) -> str:
    return f"{schedule.plan.blocks[run[0]].name} of {run[1]}"


def _in_order(schedule: Schedule, priority: IntColumn, floor: IntColumn) -> IntColumn:
    """Schedule runs by list scheduling, lowest `priority` first, and return their start times.

    A run is scheduled after its predecessors. It starts after the earlier runs of its devices, and not before `floor`.
    All arrays have the shape (micro-batches, blocks).
    """
    plan = schedule.plan
    waits = [len(before) for before in plan.predecessors]
    left = [list(waits) for _ in range(schedule.micro_batches)]
    ready = [
        (int(priority[m, b]), m, b) for m in range(schedule.micro_batches) for b, count in enumerate(waits) if not count
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
                heapq.heappush(ready, (int(priority[m, after]), m, after))
    return starts
