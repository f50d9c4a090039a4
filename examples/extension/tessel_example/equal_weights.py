"""A placer that puts consecutive operators with about the same bytes on each accelerator."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.placement import PlacementProblem, Placer
from tessel_core.placement.answer import evaluate_split
from tessel_core.placement.groups import chain_of
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Cut the chain of groups. The middle of a group's memory decides on its device."""
    pipeline = chain_of(problem)
    devices = [i for i, device in enumerate(problem.devices) if not device.is_host] or [0]
    middles = pipeline.memory.cumsum() - pipeline.memory / 2
    shares = middles / max(float(pipeline.memory.sum()), 1.0)
    return evaluate_split(problem, pipeline, [devices[int(share * len(devices))] for share in shares])


EQUAL_WEIGHTS = Placer(
    "equal-weights", "Equal weights", "About the same memory on each accelerator, whatever the load", solve
)
