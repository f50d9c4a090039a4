"""Answer of a placer without its placement, as a workspace stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tessel_core.formats.record import AMOUNT, or_null
from tessel_core.model import PlacementReport, Status
from tessel_core.units import show_memory


@dataclass(frozen=True, slots=True)
class PlacerAnswer:
    """Answer of a placer without its placement. `objective` and `bound` are in the graph's time unit."""

    placer: str
    status: Status
    objective_name: str
    objective: Annotated[float | None, or_null(AMOUNT)]
    bound: Annotated[float | None, or_null(AMOUNT)]
    wall_s: float
    reason: str


def outcome_of(report: PlacementReport) -> PlacerAnswer:
    """Return a placer's report without its placement."""
    return PlacerAnswer(
        report.solver,
        report.status,
        report.objective_name,
        None if report.objective is None else float(report.objective),
        None if report.bound is None else float(report.bound),
        report.wall_s,
        ". ".join(filter(None, (report.reason, _advice(report)))),
    )


def _advice(report: PlacementReport) -> str:
    """Return a sentence on the memory or the number of accelerators that would be enough. Empty if unknown."""
    found = []
    if report.least_accelerators is not None:
        found.append(f"{report.least_accelerators} accelerators of the same memory")
    if report.least_memory is not None:
        found.append(f"{show_memory(report.least_memory, 'B')} on each accelerator")
    would = " or ".join(found)
    return f"{would[0].upper()}{would[1:]} would be enough" if would else ""
