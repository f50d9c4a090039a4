"""Operators in one linear order, cut where the largest load is least: what one does who knows only the order."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.placement.answer import answer
from tessel_core.placement.baselines.judged import chain_of, judged_split, no_split
from tessel_core.placement.best import Best
from tessel_core.placement.bounds import lower_bound
from tessel_core.placement.exact import best_in_orders
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import pipeline_of
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """The best cut of the order in which the graph lists its operators, as far as the flow allows it."""
    pipeline = chain_of(problem)
    best = best_in_orders(pipeline, (range(len(pipeline.members)),), control)
    why = "no cut of this order fits the devices"
    if best.split is None and not control.stopped:
        return no_split(problem, why)
    if best.split is None:
        nothing = Best(None, lower_bound(pipeline_of(problem), problem.objective), complete=False)
        return answer(problem, pipeline, nothing, control, why)
    return judged_split(problem, pipeline, best.split.device_of)


BY_ORDER = Placer(
    "by-order",
    "Cut by order",
    "One linear order, cut where the largest load is least",
    solve,
    contiguous=(True, False),
)
