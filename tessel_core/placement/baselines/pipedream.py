"""PipeDream's planner without replication: one linear order of the layers, cut for the least slowest stage or link."""

from __future__ import annotations

import numpy as np

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT, PlacementReport
from tessel_core.placement.baselines.judged import chain_of, judged_split, no_split
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import DeviceClass, Floats, Pipeline
from tessel_core.registry import NoOptions


def solve(problem: PlacementProblem, config: NoOptions, control: Control) -> PlacementReport:
    """best[m][j] = min over i <= j of max(best[m - 1][i], transfers at i, time of groups i ... j - 1 on device m).

    Transfers overlap with work, as PipeDream has it; the report counts them as the problem does.
    """
    pipeline = chain_of(problem)
    paying = [(device, each) for each in pipeline.classes if each.pays for device in each.devices]
    stages = sorted(paying or [(device, each) for each in pipeline.classes for device in each.devices], key=_number)
    boundary = _transfers(pipeline)
    best, came_from = np.where(np.arange(len(boundary)) == 0, 0.0, np.inf), []
    for _, each in stages:
        entered = np.maximum(best, boundary)
        largest = np.maximum(entered[:, None], _stage_times(pipeline, each))
        came_from.append(largest.argmin(axis=0))
        best = largest.min(axis=0)
    if best[-1] == np.inf:
        return no_split(problem, "no cut of the linear order into stages on accelerators fits them")
    device_of, end = [0] * len(pipeline.members), len(pipeline.members)
    for (device, _), source in zip(reversed(stages), reversed(came_from), strict=True):
        first = int(source[end])
        device_of[first:end] = [device] * (end - first)
        end = first
    return judged_split(problem, pipeline, device_of)


def _number(stage: tuple[int, DeviceClass]) -> int:
    return stage[0]


def _transfers(pipeline: Pipeline) -> Floats:
    """Per position in the order, the cost of the nets that a cut there cuts."""
    changes = np.zeros(len(pipeline.members) + 1)
    for net in pipeline.nets:
        changes[min(net.groups) + 1] += net.cost
        changes[max(net.groups) + 1] -= net.cost
    return np.asarray(np.maximum(changes.cumsum(), 0.0))


def _stage_times(pipeline: Pipeline, each: DeviceClass) -> Floats:
    """Shape (i, j): time of groups i ... j - 1, infinite where j < i, or they are not supported, or do not fit."""

    def between(values: Floats) -> Floats:
        sums = np.concatenate([[0.0], values.cumsum()])
        return np.asarray(sums[None, :] - sums[:, None])

    supported = np.isfinite(each.time)
    time = between(np.where(supported, each.time, 0.0))
    fits = (between(pipeline.memory) <= each.capacity) & (between((~supported).astype(float)) == 0)
    order = np.arange(len(time))
    return np.where(fits & (order[:, None] <= order), np.maximum(time, 0.0), np.inf)


PIPEDREAM = Placer(
    "pipedream",
    "PipeDream",
    "Planner of PipeDream, Narayanan et al., SOSP 2019, without replication",
    solve,
    objectives=(THROUGHPUT,),
    contiguous=(True, False),
)
