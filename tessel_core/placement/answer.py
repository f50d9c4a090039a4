"""From what a search found to the report on it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tessel_core.control import Control
from tessel_core.model import Placement, PlacementReport, Status
from tessel_core.placement.pipeline import EQUAL_LOADS, Best, Pipeline
from tessel_core.placement.problem import PlacementProblem


def answer(
    problem: PlacementProblem,
    placement: Placement | None,
    bound: float,
    reason: str = "",
    control: Control | None = None,
    *,
    complete: bool = True,
    equal: float = EQUAL_LOADS,
) -> PlacementReport:
    """The report on the best placement found, or on none; `reason` is for one that is not proved.

    The objective is computed anew.  It is proved where the search was `complete` and the bound is lower by a share of
    `equal` at most.
    """
    stopped = control is not None and control.cancelled
    if placement is None:
        status = Status.CANCELLED if stopped else Status.NOTHING_FOUND
        return _report(problem, status, bound=Fraction(bound), reason=reason)
    load = problem.measure(placement)
    proved = complete and bound >= load * (1 - equal)
    unproved = Status.CANCELLED if stopped else Status.FEASIBLE
    return _report(
        problem,
        Status.PROVED_OPTIMAL if proved else unproved,
        solution=placement,
        objective=Fraction(load),
        bound=Fraction(load if proved else min(bound, load)),
        reason="" if proved else reason,
    )


def answer_split(
    problem: PlacementProblem, pipeline: Pipeline, best: Best, control: Control, reason: str
) -> PlacementReport:
    """As `answer`, for the best split of a pipeline."""
    placement = None if best.split is None else pipeline.placement(problem, best.split.device_of)
    return answer(problem, placement, best.bound, reason, control, complete=best.complete)


def infeasible(
    problem: PlacementProblem,
    reason: str,
    least_memory: int | None = None,
    least_accelerators: int | None = None,
    relaxed: Placement | None = None,
) -> PlacementReport:
    """The report where there is no placement, with the least that would do and one that exceeds only the memory."""
    return _report(
        problem,
        Status.INFEASIBLE,
        reason=reason,
        least_memory=least_memory,
        least_accelerators=least_accelerators,
        relaxed_solution=relaxed,
    )


def _report(problem: PlacementProblem, status: Status, **more: Any) -> PlacementReport:
    """Name of the placer and times are added by `solve_placement`."""
    return PlacementReport(status=status, objective_name=problem.objective, wall_s=0.0, solver="", **more)
