"""Evaluate placements that were not searched for with a bound, such as one made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, Placement, PlacementReport
from tessel_core.placement.answer import answer, infeasible
from tessel_core.placement.bounds import lower_bound
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.pipeline import Pipeline
from tessel_core.placement.problem import NoOptions, PlacementProblem, Placer
from tessel_core.rules import check_allowances, check_placement


def chain_of(problem: PlacementProblem) -> Pipeline:
    """The problem's groups in an order along the flow, also where placements need not be contiguous."""
    return pipeline_of(replace(problem, contiguous=True))


def evaluate_split(problem: PlacementProblem, pipeline: Pipeline, device_of: Sequence[int]) -> PlacementReport:
    """As `evaluate`, for a split of groups."""
    return evaluate(problem, pipeline.placement(problem, device_of))


def evaluate(problem: PlacementProblem, placement: Placement) -> PlacementReport:
    """The placement with its objective and a bound; INFEASIBLE with the first rule that it breaks, if it does."""
    broken = [
        *check_placement(placement, without=problem.waived_rules),
        *check_allowances(placement, problem.allowances),
    ]
    if broken:
        only_memory = all(each.rule == "memory" for each in broken)
        return infeasible(problem, f"{broken[0].where}: {broken[0].why}", relaxed=placement if only_memory else None)
    return answer(problem, placement, lower_bound(pipeline_of(problem), problem.objective))


def evaluate_by_hand(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """The problem's placement by hand.

    Raises
    ------
    InputError
        Where the problem has none.
    """
    if problem.by_hand is None:
        raise InputError("placer expert", "judges a placement made by hand, and there is none")
    return evaluate(problem, problem.placement(problem.by_hand))


BY_HAND = Placer(
    "expert",
    "By hand",
    "A split made by a person, such as the human experts' of Tarnawski et al., NeurIPS 2020",
    evaluate_by_hand,
    objectives=(THROUGHPUT, FORWARD_BACKWARD),
    contiguous=(True, False),
    judges=True,
)
