"""From a placement that was not searched for, to a report that says what is true of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from tessel_core.model import Placement, PlacementReport, Status
from tessel_core.placement.best import EQUAL_LOADS
from tessel_core.placement.bounds import lower_bound
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import Pipeline, pipeline_of
from tessel_core.rules import check_allowances, check_placement


def chain_of(problem: PlacementProblem) -> Pipeline:
    """The problem's groups in an order along the flow, also where placements need not be contiguous."""
    return pipeline_of(replace(problem, contiguous=True))


def no_split(problem: PlacementProblem, reason: str) -> PlacementReport:
    """The report of a baseline that has no placement to offer."""
    return PlacementReport(
        status=Status.INFEASIBLE, objective_name=problem.objective, wall_s=0.0, solver="", reason=reason
    )


def judged_split(problem: PlacementProblem, pipeline: Pipeline, device_of: Sequence[int]) -> PlacementReport:
    """As `judged`, for a split of groups."""
    return judged(problem, pipeline.placement(problem, device_of))


def judged(problem: PlacementProblem, placement: Placement) -> PlacementReport:
    """The placement with its objective and a bound; INFEASIBLE with the first rule that it breaks, if it does."""
    broken = [
        *check_placement(placement, without=problem.waived_rules),
        *check_allowances(placement, problem.allowances),
    ]
    if broken:
        only_memory = all(each.rule == "memory" for each in broken)
        report = no_split(problem, f"{broken[0].where}: {broken[0].why}")
        return replace(report, relaxed_solution=placement if only_memory else None)
    load, bound = problem.measure(placement), lower_bound(pipeline_of(problem), problem.objective)
    proved = bound >= load * (1 - EQUAL_LOADS)
    return PlacementReport(
        status=Status.PROVED_OPTIMAL if proved else Status.FEASIBLE,
        solution=placement,
        objective_name=problem.objective,
        objective=Fraction(load),
        bound=Fraction(load if proved else bound),
        wall_s=0.0,
        solver="",
    )
