"""The groups of a strategy on a mesh, and whether they lie alike for all replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tessel_core.model import DeviceMesh


@dataclass(frozen=True, slots=True)
class Group:
    """Devices that communicate; groups of one pattern do it equally fast."""

    devices: tuple[int, ...]
    """Workers, numbered from 1."""
    pattern: tuple[int, ...]
    """Per device its node, nodes numbered in the order in which they come."""


@dataclass(frozen=True, slots=True)
class Places:
    """Per stage, one group that stands for all that lie like it."""

    tensor: tuple[Group, ...]
    """Those that share layers."""
    data: tuple[Group, ...]
    """The replicas of one device."""
    onward: tuple[Group, ...]
    """A device and its next stage; one less than there are stages."""


def nodes_of(mesh: DeviceMesh) -> tuple[int, ...] | None:
    """Per device its node; None where devices or links differ by more than the node."""
    if len(mesh.kinds) > 1 or mesh.connections:
        return None
    links = {mesh.same_node_link, mesh.default_link} - {None}
    return (0,) * len(mesh.devices) if len(links) < 2 else tuple(device.node for device in mesh.devices)


@lru_cache(maxsize=4096)
def places_of(nodes: tuple[int, ...], data: int, tensor: int, pipeline: int) -> Places | None:
    """The groups of D·H·P devices, device d·H·P + h·P + p; None where not all groups of a stage lie alike."""

    def worker(d: int, h: int, p: int) -> int:
        return 1 + d * tensor * pipeline + h * pipeline + p

    replicas, shards = range(data), range(tensor)
    pairs = [(d, h) for d in replicas for h in shards]
    sharing = [_alike(nodes, ([worker(d, h, p) for h in shards] for d in replicas)) for p in range(pipeline)]
    copies = [_alike(nodes, ([worker(d, h, p) for d in replicas] for h in shards)) for p in range(pipeline)]
    onward = [_alike(nodes, ([worker(d, h, p), worker(d, h, p + 1)] for d, h in pairs)) for p in range(pipeline - 1)]
    found = [tuple(group for group in groups if group is not None) for groups in (sharing, copies, onward)]
    if [len(each) for each in found] != [pipeline, pipeline, pipeline - 1]:
        return None
    return Places(*found)


def _alike(nodes: tuple[int, ...], groups: Iterable[list[int]]) -> Group | None:
    found = [Group(tuple(group), _pattern([nodes[worker - 1] for worker in group])) for group in groups]
    return found[0] if len({group.pattern for group in found}) == 1 else None


def _pattern(nodes: list[int]) -> tuple[int, ...]:
    number: dict[int, int] = {}
    return tuple(number.setdefault(node, len(number)) for node in nodes)
