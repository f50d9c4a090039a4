"""Describe the process groups of a strategy, with their devices and links."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.costs.collectives import wires_of
from tessel_core.model import DeviceMesh
from tessel_core.strategies.ranks import CUT_DIMENSIONS, Ranks
from tessel_core.units import counted, show_memory

_MAX_LISTED = 8
"""Largest group whose devices are all named. Of a larger group, the first two and the last are named."""


@dataclass(frozen=True, slots=True)
class DimensionGroups:
    """Text about the process groups of one parallel dimension."""

    dimension: str
    groups: str
    """Number of groups, and of devices per group."""
    devices: str
    """The devices of the first group."""
    links: str
    """Whether groups span nodes, and the bandwidth of their links."""

    @property
    def sentence(self) -> str:
        """One line, such as "tensor: 8 groups of 8 devices (first: gpu0, gpu1, …), inside a node, 300 GB/s"."""
        return f"{self.dimension}: {self.groups} (first: {self.devices}), {self.links}"


def groups_of(ranks: Ranks, mesh: DeviceMesh) -> list[DimensionGroups]:
    """Return the groups of each dimension of size 2 or more, in rank order.

    The strategy uses the first devices of the mesh.
    """
    found = []
    named = ("tensor", "context", "expert", "data", "pipeline")
    for dimension in sorted((name for name in named if getattr(ranks, name) > 1), key=(*ranks.order, *named).index):
        groups = [tuple(worker - 1 for worker in group) for group in ranks.groups(dimension)]
        chain = dimension == "pipeline"
        lie = Counter(_links(mesh, group, chain=chain) for group in groups)
        links = "; ".join(f"{count} {words}" if len(lie) > 1 else words for words, count in lie.most_common())
        size = f"{counted(len(groups), 'group')} of {counted(len(groups[0]), 'device')}"
        found.append(DimensionGroups(dimension, size, _named(mesh, groups[0]), links))
    return found


def group_names(ranks: Ranks, mesh: DeviceMesh) -> dict[str, list[list[str]]]:
    """Return the device names of each group, by dimension.

    Context and expert groups are included only if their size is 2 or more.
    """
    return {
        dimension: [[mesh.devices[worker - 1].name for worker in group] for group in ranks.groups(dimension)]
        for dimension in (*CUT_DIMENSIONS, *(name for name in ("context", "expert") if getattr(ranks, name) > 1))
    }


def _named(mesh: DeviceMesh, group: Sequence[int]) -> str:
    names = [mesh.devices[each].name for each in group]
    return ", ".join(names) if len(names) <= _MAX_LISTED else f"{names[0]}, {names[1]} … {names[-1]}"


def _links(mesh: DeviceMesh, group: tuple[int, ...], *, chain: bool) -> str:
    """Return text about the links of a group.

    In a `chain`, only neighbours exchange data. In other groups, all devices communicate together.
    """
    wires = wires_of(mesh, group)
    if wires.between is None:
        return f"inside a node, {_rate(wires.inside.bandwidth if wires.inside else math.inf)}"
    if wires.inside is None or chain:
        return f"across {wires.nodes} nodes, {_rate(wires.between.bandwidth)} per device"
    return f"across {wires.nodes} nodes, on {counted(wires.rails, 'rail')}, {_rate(wires.bandwidth)} together"


def _rate(bandwidth: float) -> str:
    return "free" if math.isinf(bandwidth) else f"{show_memory(bandwidth, 'B')}/s"
