"""Accelerators filled to their memory one after the other: what the paper's greedy heuristic does.

Unlike the published program it looks past an operator that is too large for what is left, keeps the memory, and does
not depend on the order of a hash table.
"""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import FORWARD_BACKWARD, THROUGHPUT, PlacementReport
from tessel_core.placement.baselines.judged import chain_of, judged_split, no_split
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import DeviceClass, Pipeline
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """Each device, hosts last, takes all that fits and has its predecessors placed, in the order of the flow."""
    pipeline = chain_of(problem)
    classes = sorted(pipeline.classes, key=lambda each: not each.pays)
    devices = [(device, each) for each in classes for device in each.devices]
    place: dict[int, int] = {}
    for device, each in devices:
        _fill(pipeline, device, each, each.capacity, place)
    if len(place) < len(pipeline.members):  # the last device takes the rest, to show by how much it is too small
        device, each = devices[-1]
        _fill(pipeline, device, each, float("inf"), place)
    if len(place) < len(pipeline.members):
        return no_split(problem, "filling one device after the other leaves operators that the last does not support")
    return judged_split(problem, pipeline, [place[group] for group in range(len(pipeline.members))])


def _fill(pipeline: Pipeline, device: int, each: DeviceClass, capacity: float, place: dict[int, int]) -> None:
    """Gives the device what fits.  Groups are numbered along the flow, so one pass sees predecessors first."""
    held = 0.0
    for group, before in enumerate(pipeline.predecessors):
        size = float(pipeline.memory[group])
        ready = group not in place and all(other in place for other in before)
        if ready and each.time[group] < float("inf") and held + size <= capacity:
            place[group] = device
            held += size


GREEDY = Placer(
    "greedy",
    "Greedy",
    "Baseline of Tarnawski et al., NeurIPS 2020: accelerators filled to their memory, one after the other",
    solve,
    objectives=(THROUGHPUT, FORWARD_BACKWARD),
    contiguous=(True, False),
)
