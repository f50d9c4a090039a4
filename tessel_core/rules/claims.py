"""What a kept schedule says about itself, held against the schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessel_core.model import Schedule, Status
from tessel_core.rules.referee import Violation


def check_claims(
    schedule: Schedule, status: Status, objective_name: str, objective: float | None, bound: float | None
) -> Iterator[Violation]:
    """A claimed objective is the schedule's own, no bound is above it, and "optimal" means that they meet."""
    measured = _measured(schedule, objective_name)
    if objective is not None and measured is not None and not _same(objective, measured):
        why = f"claims a {objective_name} of {objective:g}, the schedule's is {measured:g}"
        yield Violation("claims", "report.objective", why)
    if objective is not None and bound is not None and bound > objective and not _same(bound, objective):
        yield Violation("claims", "report.bound", f"is {bound:g}, above the objective of {objective:g}")
    if status is Status.PROVED_OPTIMAL and (objective is None or bound is None or not _same(objective, bound)):
        yield Violation("claims", "report.status", "says optimal, but the bound does not meet the objective")


def _measured(schedule: Schedule, objective_name: str) -> float | None:
    if objective_name == "makespan":
        return schedule.makespan
    if objective_name == "period" and schedule.repetend is not None:
        return schedule.repetend.period / schedule.repetend.unroll
    return None


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
