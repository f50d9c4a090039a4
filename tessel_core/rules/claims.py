"""Checks of the claims that a file makes about its schedule or placement."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessel_core.model import LATENCY, Placement, Schedule, Status, measure_placement
from tessel_core.rules.referee import Violation


def check_claims(
    schedule: Schedule, status: Status, objective_name: str, objective: float | None, bound: float | None
) -> Iterator[Violation]:
    """Yield the false claims of a schedule file.

    The claimed objective must be that of the schedule, the bound must not exceed it, and both must be equal if the
    status is `PROVED_OPTIMAL`.
    """
    return _check("schedule", _measured(schedule, objective_name), status, objective_name, objective, bound)


def check_placement_claims(
    placement: Placement, status: Status, objective_name: str, objective: float | None, bound: float | None
) -> Iterator[Violation]:
    """Yield the false claims of a placement file: a wrong objective, or a bound that contradicts it."""
    if (objective_name == LATENCY) != (placement.subgraphs is not None):
        why = "are missing, but a latency needs them"
        if objective_name != LATENCY:
            why = "are given, but only a latency has them"
        yield Violation("claims", "subgraphs", why)
        return
    measured = measure_placement(placement, objective_name)
    yield from _check("placement", measured, status, objective_name, objective, bound)


def _check(
    what: str, measured: float | None, status: Status, objective_name: str, objective: float | None, bound: float | None
) -> Iterator[Violation]:
    if objective is not None and measured is not None and not _same(objective, measured):
        why = f"claims a {objective_name} of {objective:g}, but the {what}'s is {measured:g}"
        yield Violation("claims", "report.objective", why)
    if objective is not None and bound is not None and bound > objective and not _same(bound, objective):
        yield Violation("claims", "report.bound", f"is {bound:g}, above the objective of {objective:g}")
    if status is Status.PROVED_OPTIMAL and (objective is None or bound is None or not _same(objective, bound)):
        yield Violation("claims", "report.status", "says optimal, but the bound does not meet the objective")


def _measured(schedule: Schedule, objective_name: str) -> float | None:
    if objective_name == "makespan":
        return schedule.makespan
    if objective_name == "period" and schedule.repetend is not None:
        return float(schedule.repetend.period_per_micro_batch)
    return None


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
