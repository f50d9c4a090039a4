"""The groups of a strategy on a mesh, and whether they lie alike for all replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tessel_core.model import DeviceMesh
from tessel_core.strategies.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that communicate; groups of one pattern do it equally fast."""

    devices: tuple[int, ...]
    """Workers, numbered from 1."""
    pattern: tuple[int, ...]
    """Per device its node, nodes numbered in the order in which they come."""


@dataclass(frozen=True, slots=True)
class Places:
    """Per device of the pipeline, one group that stands for all that lie like it."""

    tensor: tuple[Group, ...]
    """Those that share layers."""
    data: tuple[Group, ...]
    """The replicas of one device."""
    onward: tuple[Group, ...]
    """A device and the next one of the pipeline; where it goes round, after the last comes the first."""


def nodes_of(mesh: DeviceMesh) -> tuple[int, ...] | None:
    """Per device its node; None where devices or links differ by more than the node."""
    if len(mesh.kinds) > 1 or mesh.connections:
        return None
    links = {mesh.same_node_link, mesh.default_link} - {None}
    return (0,) * len(mesh.devices) if len(links) < 2 else tuple(device.node for device in mesh.devices)


@lru_cache(maxsize=4096)
def places_of(nodes: tuple[int, ...], ranks: Ranks, loop: bool = False) -> Places | None:
    """The groups of the ranks on devices of these nodes; None where not all groups of a device lie alike.

    With `loop` the pipeline goes round its devices.
    """
    pipeline, pairs = range(ranks.pipeline), range(ranks.pipeline if loop else ranks.pipeline - 1)
    mine: dict[str, list[list[tuple[int, ...]]]] = {name: [[] for _ in pipeline] for name in ("tensor", "data")}
    for name, found in mine.items():
        for group in ranks.groups(name):
            found[ranks.coordinate(group[0], "pipeline")].append(group)
    chains = ranks.groups("pipeline")
    onward = [[(chain[p], chain[(p + 1) % ranks.pipeline]) for chain in chains] for p in pairs]
    every = [[_alike(nodes, groups) for groups in each] for each in (mine["tensor"], mine["data"], onward)]
    known = [tuple(group for group in groups if group is not None) for groups in every]
    return Places(*known) if list(map(len, known)) == list(map(len, every)) else None


def _alike(nodes: tuple[int, ...], groups: Iterable[tuple[int, ...]]) -> Group | None:
    found = [Group(group, _pattern([nodes[worker - 1] for worker in group])) for group in groups]
    return found[0] if len({group.pattern for group in found}) == 1 else None


def _pattern(nodes: list[int]) -> tuple[int, ...]:
    number: dict[int, int] = {}
    return tuple(number.setdefault(node, len(number)) for node in nodes)
