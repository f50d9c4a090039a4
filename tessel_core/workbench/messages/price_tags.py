"""What each change of a plan would bring, in rows."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.model import ScheduleReport
from tessel_core.units import show_time

ABOUT = (
    "Each change is made alone, and its plan scheduled anew. *At most* is what its proved bound leaves to any order; a "
    "dash stands where nothing is known yet."
)


def price_rows(base: ScheduleReport, found: Mapping[str, ScheduleReport | None]) -> list[dict[str, str]]:
    """A row a change, those that save most first: what it does to the makespan, and what it could save at most."""
    assert base.drawable is not None
    length, unit = base.makespan or 0, base.drawable.plan.time_unit
    known = {name: each for name, each in found.items() if each is not None}
    order = sorted(
        found, key=lambda name: (name not in known, (known[name].makespan or length) if name in known else 0)
    )
    return [{"Change": name, **_effect(found[name], length, unit)} for name in order]


def _effect(report: ScheduleReport | None, length: int, unit: str) -> dict[str, str]:
    if report is None:
        return {"Makespan": "–", "Saves": "–", "At most": "–"}
    if report.makespan is None or report.solution is None:
        return {"Makespan": "infeasible", "Saves": "–", "At most": "–"}
    least = max(0, length - report.makespan_bound)
    return {
        "Makespan": show_time(report.makespan, unit),
        "Saves": _saved(length - report.makespan, length, unit),
        "At most": _saved(least, length, unit),
    }


def _saved(ticks: int, length: int, unit: str) -> str:
    if not ticks:
        return "nothing"
    share = f"{abs(ticks) / length:.1%}" if length else ""
    return f"{'−' if ticks < 0 else ''}{show_time(abs(ticks), unit)} ({share})"
