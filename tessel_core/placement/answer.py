"""From a chain of stages, or the lack of one, to a report."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import PlacementReport, Status
from tessel_core.placement.best import EQUAL_LOADS, Best
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.shortage import Shortage
from tessel_core.placement.stages import Pipeline


def answer(problem: PlacementProblem, pipeline: Pipeline, best: Best, control: Control, reason: str) -> PlacementReport:
    """The report on the best chain; `reason` is for one that is not proved.  The objective is computed anew."""
    if best.split is None:
        status = Status.CANCELLED if control.cancelled else Status.NOTHING_FOUND
        return PlacementReport(
            status=status,
            objective_name=problem.objective,
            bound=Fraction(best.bound),
            wall_s=0.0,
            solver="",
            reason=reason,
        )
    placement = pipeline.placement(problem, best.split.device_of)
    load = problem.measure(placement)
    proved = best.complete and best.bound >= load * (1 - EQUAL_LOADS)
    stopped = Status.CANCELLED if control.cancelled else Status.FEASIBLE
    return PlacementReport(
        status=Status.PROVED_OPTIMAL if proved else stopped,
        solution=placement,
        objective_name=problem.objective,
        objective=Fraction(load),
        bound=Fraction(load if proved else min(best.bound, load)),
        wall_s=0.0,
        solver="",
        reason="" if proved else reason,
    )


def no_placement(problem: PlacementProblem, shortage: Shortage) -> PlacementReport:
    """The report where no placement can exist."""
    return PlacementReport(
        status=Status.INFEASIBLE,
        objective_name=problem.objective,
        wall_s=0.0,
        solver="",
        reason=shortage.reason,
        least_memory=shortage.least_memory,
        least_accelerators=shortage.least_accelerators,
    )
