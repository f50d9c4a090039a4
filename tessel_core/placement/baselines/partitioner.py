"""The placer `partitioner`: METIS divides the graph into parts of equal work, with small cuts, and ignores pipelines.

A group is a set of operators that must share a device. Each accelerator gets one part of the groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.control import Control
from tessel_core.model import PlacementReport
from tessel_core.options import Option, option
from tessel_core.placement.answer import evaluate_split
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.moves import Moves, devices_for
from tessel_core.placement.pipeline import Pipeline
from tessel_core.placement.placers import Placer
from tessel_core.placement.problem import PlacementProblem

_UNITS = 1_000_000
"""Number of integer units in the sum of all times, and in the largest transfer, because METIS needs integer weights."""


@dataclass(frozen=True, slots=True)
class PartitionerConfig:
    """Options of METIS."""

    seed: int = option(0, Option("Seed", "Seed of METIS's random choices", 0, 2**31 - 1))


def solve(problem: PlacementProblem, config: PartitionerConfig, control: Control) -> PlacementReport:
    """Return the report on a division of the graph into one part per accelerator.

    If an accelerator does not support a group of its part, the group goes to the last device that supports it. Then
    groups move off devices that exceed their memory.
    """
    pipeline = pipeline_of(problem)
    classes = [each for each in pipeline.classes if each.pays] or list(pipeline.classes)
    devices = sorted(device for each in classes for device in each.devices)
    device_of = [
        devices[part] if devices[part] in allowed else allowed[-1]
        for part, allowed in zip(_partition(pipeline, len(devices), config.seed), devices_for(pipeline), strict=True)
    ]
    moves = Moves(pipeline.parts(problem.objective), device_of)
    _relieve(moves, control)
    return evaluate_split(problem, pipeline, moves.on)


def _partition(pipeline: Pipeline, parts: int, seed: int) -> list[int]:
    """Return the number of the part of each group, from 0.

    Groups are vertices, weighted by their least time on any device. The cost of a tensor is divided over the edges
    between the groups that produce or consume it.
    """
    import pymetis

    count = len(pipeline.members)
    if parts == 1:
        return [0] * count
    weight: list[dict[int, float]] = [{} for _ in range(count)]
    for net in pipeline.nets:
        for one in net.groups:
            for other in net.groups:
                if one != other:
                    weight[one][other] = weight[one].get(other, 0.0) + net.cost / (len(net.groups) - 1)
    starts = np.cumsum([0, *map(len, weight)]).tolist()
    largest = max((cost for each in weight for cost in each.values()), default=1.0) or 1.0
    time = np.min([each.time for each in pipeline.classes], axis=0)
    partition = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(starts, [other for each in weight for other in each]),
        vweights=np.ceil(time / max(float(time.sum()), 1e-300) * _UNITS).astype(int).tolist(),
        eweights=[max(1, int(cost / largest * _UNITS)) for each in weight for cost in each.values()],
        options=pymetis.Options(seed=seed),
    )
    return list(partition.vertex_part)


def _relieve(moves: Moves, control: Control) -> None:
    """Move groups off devices that exceed their memory. Each time, make the move with the least resulting objective."""
    while not control.stopped:
        better = [
            (moves.after(group, device)[1], group, device)
            for group, source in enumerate(moves.on)
            if moves.overfull(source) and moves.holds(group)
            for device in moves.allowed[group]
            if device != source and moves.fits(group, device)
        ]
        if not better:
            return
        _, group, device = min(better)
        moves.shift(group, device)


PARTITIONER = Placer(
    "partitioner",
    "Graph partitioner (non-contiguous)",
    "METIS, Karypis and Kumar, SIAM J. Sci. Comput. 1998, by pymetis; then operators leave devices that are too full",
    solve,
    PartitionerConfig,
    contiguous=(False,),
)
