"""Reports on placements: the status, the objective, and a lower bound on the objective of every placement.

A group is a set of operators that must share a device. A split gives each group of a pipeline a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import Placement, PlacementReport, Status
from tessel_core.placement.bounds import lower_bound, priced_work
from tessel_core.placement.groups import pipeline_of
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
    """Return the report on the best placement found, or on a search that found none.

    `bound` is a lower bound on the objective, and `reason` says why optimality is not proved. The placement is proved
    optimal if the search was `complete` and the bound is at least (1 - `equal`) times the placement's objective.
    """
    stopped = control is not None and control.cancelled
    if placement is None:
        status = Status.CANCELLED if stopped else Status.NOTHING_FOUND
        return PlacementReport(status=status, objective_name=problem.objective, bound=Fraction(bound), reason=reason)
    load = problem.measure(placement)
    proved = complete and bound >= load * (1 - equal)
    unproved = Status.CANCELLED if stopped else Status.FEASIBLE
    return PlacementReport(
        status=Status.PROVED_OPTIMAL if proved else unproved,
        solution=placement,
        objective_name=problem.objective,
        objective=Fraction(load),
        bound=Fraction(load if proved else min(bound, load)),
        reason="" if proved else reason,
    )


def answer_split(
    problem: PlacementProblem, pipeline: Pipeline, best: Best, control: Control, reason: str
) -> PlacementReport:
    """Return the report on the best split of a pipeline. `reason` says why optimality is not proved."""
    placement = None if best.split is None else pipeline.placement(problem, best.split.device_of, best.split.replicas)
    return answer(problem, placement, best.bound, reason, control, complete=best.complete)


def infeasible(
    problem: PlacementProblem,
    reason: str,
    least_memory: int | None = None,
    least_accelerators: int | None = None,
    relaxed: Placement | None = None,
) -> PlacementReport:
    """Return the report on a problem that no placement satisfies, for the given reason.

    Either `least_memory` (bytes per accelerator) or `least_accelerators` would be enough. They are None if unknown.
    `relaxed` is a placement that breaks only the memory limits.
    """
    return PlacementReport(
        status=Status.INFEASIBLE,
        objective_name=problem.objective,
        reason=reason,
        least_memory=least_memory,
        least_accelerators=least_accelerators,
        relaxed_solution=relaxed,
    )


def evaluate_split(problem: PlacementProblem, pipeline: Pipeline, device_of: Sequence[int]) -> PlacementReport:
    """Return the report on the placement in which group v is on device `device_of[v]`."""
    return evaluate(problem, pipeline.placement(problem, device_of))


def evaluate(problem: PlacementProblem, placement: Placement) -> PlacementReport:
    """Return the report on a given placement, with a lower bound.

    The status is INFEASIBLE if the placement breaks a rule.
    """
    broken = problem.violations(placement)
    if broken:
        only_memory = all(each.rule == "memory" for each in broken)
        return infeasible(problem, f"{broken[0].where}: {broken[0].why}", relaxed=placement if only_memory else None)
    pipeline = pipeline_of(problem)
    if problem.replicates:
        return answer(problem, placement, priced_work(pipeline).average)
    return answer(problem, placement, lower_bound(pipeline, problem.objective))
