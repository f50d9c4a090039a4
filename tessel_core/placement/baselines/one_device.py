"""Everything on one device: no transfers and no pipeline."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, PlacementReport
from tessel_core.placement.baselines.judged import chain_of, judged_split, no_split
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """The device that takes the whole graph in the least time, of those with the memory if there are any."""
    pipeline = chain_of(problem)
    held = float(pipeline.memory.sum())
    supporting = [each for each in pipeline.classes if float(each.time.sum()) < float("inf")]
    if not supporting:
        return no_split(problem, "no device supports all operators")
    best = min(supporting, key=lambda each: (held > each.capacity, float(each.time.sum())))
    return judged_split(problem, pipeline, [best.devices[0]] * len(pipeline.members))


ONE_DEVICE = Placer(
    "one-device",
    "One device",
    "Everything on the fastest device that takes it",
    solve,
    objectives=(THROUGHPUT, FORWARD_BACKWARD),
    contiguous=(True, False),
)
