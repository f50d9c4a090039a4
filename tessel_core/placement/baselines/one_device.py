"""Everything on one device: no transfers and no pipeline."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.placement.answer import answer
from tessel_core.placement.best import Best, Split
from tessel_core.placement.bounds import priced_work
from tessel_core.placement.problem import NoOptions, PlacementProblem, Placer
from tessel_core.placement.stages import pipeline_of


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """The device that takes the whole graph in the least time."""
    pipeline = pipeline_of(problem)
    bound, count = priced_work(pipeline).bound, len(pipeline.members)
    fits = [
        Split(float(each.time.sum()), (each.devices[0],) * count)
        for each in pipeline.classes
        if float(each.time.sum()) < float("inf") and float(pipeline.memory.sum()) <= each.capacity
    ]
    chain = min(fits, key=lambda found: found.load, default=None)
    reason = "" if chain else "no device supports all operators and has the memory for them"
    return answer(problem, pipeline, Best(chain, bound, chain is not None), control, reason)


ONE_DEVICE = Placer("one-device", "One device", "Everything on the fastest device that takes it", solve)
