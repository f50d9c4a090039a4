"""Among placements of one largest load, an even one: who sees idle devices beside a full one wonders."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.model.checks import topological_order
from tessel_core.placement.best import Split
from tessel_core.placement.bounds import priced_work
from tessel_core.placement.chain import ChainSearch
from tessel_core.placement.ideals import Ideals, prefixes
from tessel_core.placement.orders import promising_orders
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import Pipeline, within_memory

_SAME = 1e-12
"""Loads that differ by less, relatively, are the same: they are sums of floats."""


def evened(problem: PlacementProblem, pipeline: Pipeline, report: PlacementReport, control: Control) -> PlacementReport:
    """The report with a placement of the same objective whose squares of loads sum to less, where one is near.

    Devices take over from those beside them in the chain.  For contiguous placements whose loads the search knows
    exactly; it takes no longer than the first of the questions that found the objective.
    """
    exact = problem.contiguous and problem.has_equal_links and problem.objective == THROUGHPUT
    if report.solution is None or not exact or control.stopped:
        return report
    device_of = tuple(report.solution.assignment[members[0]][0] for members in pipeline.members)
    found = _evenest(within_memory(pipeline), Split(float(report.objective or 0), device_of), control)
    if found is None:
        return report
    placement = pipeline.placement(problem, found.device_of)
    return replace(report, solution=placement) if problem.measure(placement) <= (report.objective or 0) else report


def _evenest(pipeline: Pipeline, split: Split, control: Control) -> Split | None:
    """The least sum of squares of loads among chains that cut a few orders, the chain of `split` among them."""
    priced, stage_of = priced_work(pipeline), _stages(pipeline, split)
    orders = [sorted(order, key=stage_of.__getitem__) for order in promising_orders(pipeline)]
    search = ChainSearch(pipeline, Ideals.of(pipeline, prefixes(orders), priced.work), priced)
    return search.evenest(split.load * (1 + _SAME), control)


def _stages(pipeline: Pipeline, split: Split) -> list[int]:
    """Per group, how far along the flow its device comes."""
    devices = sorted(set(split.device_of))
    before: list[set[int]] = [set() for _ in devices]
    on = [devices.index(device) for device in split.device_of]
    for group, sources in enumerate(pipeline.predecessors):
        before[on[group]] |= {on[source] for source in sources} - {on[group]}
    position = {device: i for i, device in enumerate(topological_order([sorted(each) for each in before]))}
    return [position[device] for device in on]
