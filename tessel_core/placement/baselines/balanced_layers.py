"""Equally many operators on each accelerator, in the order of the flow: what one does who counts layers."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, PlacementReport
from tessel_core.placement.baselines.judged import chain_of, judged_split
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Stage i of n takes the groups whose middle operator is among the i-th n-th of all; hosts only where all are."""
    pipeline = chain_of(problem)
    names = [device.name for device in problem.accelerators or problem.devices]
    devices = [i for i, device in enumerate(problem.devices) if device.name in names]
    total, before, device_of = len(problem.graph.operators), 0, list[int]()
    for members in pipeline.members:
        middle = before + len(members) / 2
        device_of.append(devices[int(middle * len(devices) / total)])
        before += len(members)
    return judged_split(problem, pipeline, device_of)


BALANCED_LAYERS = Placer(
    "balanced-layers",
    "Balanced layers",
    "Equally many operators a device, in the order of the flow",
    solve,
    objectives=(THROUGHPUT, FORWARD_BACKWARD),
    contiguous=(True, False),
)
