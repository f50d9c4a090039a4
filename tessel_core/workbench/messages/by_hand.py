"""Describe the effect of a change by hand on a schedule, in one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction

from tessel_core.control import gap
from tessel_core.inspection.obstacles import Obstacles, Reason
from tessel_core.model import Schedule
from tessel_core.scheduling.finish import Completion
from tessel_core.scheduling.order import Run
from tessel_core.units import counted, show_gap, show_time


def effect(before: Schedule, after: Schedule, bound: int, runs: Collection[Run] = (), pins: Iterable[Run] = ()) -> str:
    """Return one line on the effect of a change by hand.

    The line has the change of the makespan and its cause, the gap to `bound`, and pinned runs that moved. `runs` has
    the run that was moved, or the two runs that were swapped.
    """
    more, unit = after.makespan - before.makespan, after.plan.time_unit
    parts = ["as long as before" if not more else f"{'+' if more > 0 else '−'}{show_time(abs(more), unit)}"]
    wait = _wait(after, runs) if more > 0 else ""
    left = gap(Fraction(after.makespan), Fraction(bound))
    parts.append(f"gap {show_gap(left)}" if left else "at the bound, so no schedule is shorter")
    moved = [
        pin for pin in sorted(pins) if pin not in runs and before.starts[pin[1], pin[0]] != after.starts[pin[1], pin[0]]
    ]
    if moved:
        more_of_them = f" and {len(moved) - 1:,} more" if len(moved) > 1 else ""
        parts.append(f"pinned {_name(after, moved[0])}{more_of_them} moved along")
    return " · ".join([f"{parts[0]}: {wait}" if wait else parts[0], *parts[1:]])


def completed(before: Schedule, completion: Completion) -> str:
    """Return one line on a completion: its effect, and what is proved about it.

    A completion searches again but does not move pinned runs.
    """
    after = completion.report.solution
    assert after is not None
    message = effect(before, after, completion.report.makespan_bound)
    if completion.proved:
        return f"{message} · proved: no schedule with these pins is shorter"
    return f"{message} · no schedule with these pins is below {show_time(completion.bound, after.plan.time_unit)}"


def pinned(count: int) -> str:
    """Return the number of pinned runs as text."""
    return f"{counted(count, 'run')} pinned"


def _wait(schedule: Schedule, runs: Collection[Run]) -> str:
    """Return the text of a wait on the critical path that involves one of these runs. Empty if no wait does."""
    path = Obstacles.of(schedule).critical_path()
    named = [(int(schedule.block[link.row]), int(schedule.micro_batch[link.row])) for link in path]
    for link, late, early in zip(path, named, named[1:], strict=False):
        if (late in runs or early in runs) and link.obstacle.reason in (Reason.DEVICE, Reason.PARTNERS, Reason.MEMORY):
            what = "memory released by " if link.obstacle.reason is Reason.MEMORY else ""
            return f"{_name(schedule, late)} now waits for {what}{_name(schedule, early)}"
    return next((f"{_name(schedule, run)} is on the critical path" for run in runs if run in named), "")


def _name(schedule: Schedule, run: Run) -> str:
    return f"{schedule.plan.blocks[run[0]].name} of {run[1]}"
