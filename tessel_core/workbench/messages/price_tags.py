"""Table of the gain from each possible change of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.model import ScheduleReport
from tessel_core.units import show_time

ABOUT = (
    "Each change is made alone, and its plan is scheduled again. *At most* is the largest gain that the proved bound "
    "of the changed plan allows. A dash means not known yet."
)


def price_rows(base: ScheduleReport, found: Mapping[str, ScheduleReport | None]) -> list[dict[str, str]]:
    """Return one row per change, largest gain first: the makespan, the gain, and an upper bound on the gain."""
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
