"""Durations of collectives on a group of devices of a mesh, as NCCL runs them.

A group has N devices in n nodes, g of them per node. It uses several parallel rings, which NCCL calls channels and this
module calls *rails*. Each rail leaves and enters a node through its own network port, so there are min(g, ports) rails.
A ring moves 2 (N - 1) / N of the bytes for an all-reduce, and half of that for an all-gather or a reduce-scatter
[Patarasuk 2009]. The bandwidth is that of all rails together, or that of the links inside a node if it is lower. The
latency is that of a ring, which grows with N, or that of a tree, which grows with log n. The shorter one counts [Hu
2025, "Demystifying NCCL", arXiv 2507.04786, section 5; NCCL, tuning.cc].
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise

from tessel_core.model import DeviceMesh, Link

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "allreduce", "allgather", "reduce_scatter", "alltoall"
SEND = "send"

_ROUNDS = {ALL_REDUCE: 2, ALL_GATHER: 1, REDUCE_SCATTER: 1}
"""Number of times that each byte passes around the ring."""


@dataclass(frozen=True, slots=True)
class Wires:
    """Links over which a group of devices communicates."""

    nodes: int
    """Number of nodes with devices of the group."""
    per_node: int
    """Number of the group's devices in the node that has the fewest of them."""
    devices: int
    inside: Link | None
    """Slowest link between devices of one node. None if no two devices share a node."""
    between: Link | None
    """Slowest link between nodes, for one network port. None if the group is in one node."""
    rails: int
    """Number of parallel rings. Each uses its own network port."""
    uplink: float
    """Largest number of bytes per second that can leave a node."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of all rails together."""
        between = math.inf if self.between is None else min(self.rails * self.between.bandwidth, self.uplink)
        return min(between, math.inf if self.inside is None else self.inside.bandwidth)

    @property
    def ring_latency(self) -> float:
        """Seconds for one round of a ring.

        The ring crosses from node to node n - 1 times, and takes its other steps inside nodes.
        """
        crossing = (self.nodes - 1) * (self.between.latency if self.between else 0.0)
        return crossing + (self.devices - self.nodes) * (self.inside.latency if self.inside else 0.0)

    @property
    def tree_latency(self) -> float:
        """Seconds to go up a binary tree of nodes. Each node is a chain of its devices. Going down takes as long."""
        depth = math.ceil(math.log2(self.nodes))
        crossing = depth * (self.between.latency if self.between else 0.0)
        chain = -(-self.devices // self.nodes) - 1
        return crossing + chain * (self.inside.latency if self.inside else 0.0)


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective. Its duration is latency + amount / bandwidth."""

    amount: float
    """Bytes that pass each point of the rings, added over all rails."""
    bandwidth: float
    """Bytes per second."""
    latency: float
    """Seconds before the first byte arrives."""
    rails: int = 1
    """Number of parallel rings or paths."""
    tree: bool = False
    """Whether the latency is that of a tree instead of a ring."""

    @property
    def seconds(self) -> float:
        """Duration in seconds: latency + amount / bandwidth."""
        return self.latency + self.amount / self.bandwidth


def collective(pattern: str, amount: float, wires: Wires, fraction: float = 1.0) -> Collective:
    """Return a collective of `amount` bytes per device, counted before a reduction or after an all-gather.

    It uses `fraction` of the bandwidth. Raises KeyError for an unknown pattern.

    >>> node = Wires(1, 8, 8, Link(450e9, 2e-06), None, 1, math.inf)
    >>> round(collective(ALL_REDUCE, 4.5e9, node).seconds * 1e3, 3)  # 2 · 7/8 of 10 ms, and 14 hops of 2 µs
    17.528
    """
    if pattern == ALL_TO_ALL:
        return _all_to_all(amount, wires, fraction)
    rounds, ring, tree = _ROUNDS[pattern], wires.ring_latency, wires.tree_latency
    moved = rounds * (wires.devices - 1) / wires.devices * amount
    return Collective(moved, wires.bandwidth * fraction, rounds * min(ring, tree), wires.rails, tree < ring)


def _all_to_all(amount: float, wires: Wires, fraction: float) -> Collective:
    """Return an all-to-all. Each device sends an equal part of its `amount` bytes to every other device.

    Parts for the same node use the device's links. Other parts use the network ports, which the devices of a node share
    equally. Both transfers run at the same time, and the longer one counts. All parts are sent at once, so the latency
    is that of one transfer.
    """
    part, mates = amount / wires.devices, wires.per_node - 1
    inside = Collective(0.0, math.inf, 0.0)
    if wires.inside is not None:
        inside = Collective(mates * part, wires.inside.bandwidth * fraction, wires.inside.latency)
    if wires.between is None:
        return inside
    share = min(wires.between.bandwidth, wires.uplink / wires.per_node) * fraction
    outside = Collective((wires.devices - mates - 1) * part, share, wires.between.latency, wires.rails)
    return max(inside, outside, key=lambda each: each.seconds)


def ring_order(devices: Sequence[int], nodes: Sequence[int]) -> list[list[int]]:
    """Return the devices of each node. Nodes are in the order of their first device.

    `nodes` has the node of each device.
    """
    found: dict[int, list[int]] = {}
    for device, node in zip(devices, nodes, strict=True):
        found.setdefault(node, []).append(device)
    return list(found.values())


def ring_pairs(by_node: Sequence[Sequence[int]], rails: int) -> list[tuple[int, int]]:
    """Return the pairs of neighbours on each of `rails` rings. Each ring leaves a node from another device.

    >>> ring_pairs([[1, 2], [3, 4]], 2)
    [(1, 2), (2, 3), (3, 4), (4, 1), (2, 1), (1, 4), (4, 3), (3, 2)]
    """
    found = list[tuple[int, int]]()
    for rail in range(rails):
        ring = [members[(rail + i) % len(members)] for members in by_node for i in range(len(members))]
        found += pairwise((*ring, ring[0]))
    return found


def wires_of(mesh: DeviceMesh, positions: tuple[int, ...]) -> Wires:
    """Return the links over which a group of devices communicates. `positions` are indices of the mesh's devices."""
    nodes = [mesh.devices[each].node for each in positions]
    by_node = ring_order(positions, nodes)
    per_node = min(map(len, by_node))
    pairs = ring_pairs(by_node, 1) if mesh.connections else _some_pairs(by_node)
    inside, between = list[Link](), list[Link]()
    for one, other in pairs:
        if one != other:
            same = mesh.devices[one].node == mesh.devices[other].node
            (inside if same else between).append(mesh.link(one, other))
    port, uplink = _slowest(between), math.inf if mesh.node_uplink is None else mesh.node_uplink
    # If the mesh lists single links, the number of parallel ports is unknown.
    ports = 1 if mesh.connections or port is None else max(1, math.ceil(min(uplink / port.bandwidth, per_node)))
    return Wires(len(by_node), per_node, len(positions), _slowest(inside), port, min(per_node, ports), uplink)


def _some_pairs(by_node: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return one pair of devices inside a node and one between nodes.

    All other pairs have the same links as these two.
    """
    inside = [tuple(members[:2]) for members in by_node if len(members) > 1][:1]
    return [*((one, other) for one, other in inside), *((a[0], b[0]) for a, b in pairwise(by_node[:2]))]


def _slowest(links: Sequence[Link]) -> Link | None:
    """Return a link with the smallest bandwidth and the longest latency of several links. None if there are none."""
    if not links:
        return None
    return Link(min(link.bandwidth for link in links), max(link.latency for link in links))


@dataclass(frozen=True, slots=True)
class _Measured:
    """Measured fraction of a link's nominal bandwidth that a collective reached."""

    kind: str
    pattern: str
    devices: int | None
    """Number of devices of the group inside a node. None if the fraction holds for every number."""
    inside: bool
    fraction: float


@lru_cache(maxsize=1)
def _measured() -> tuple[_Measured, ...]:
    """Return the rows of data/measured_collectives.csv.

    They come from system files of SimuMax (Apache-2.0, © Moore Threads).
    """
    text = files("tessel_core.costs").joinpath("data/measured_collectives.csv").read_text("ascii")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        _Measured(
            row["device"],
            row["pattern"],
            int(row["devices"]) if row["devices"] else None,
            row["link"] == "inside",
            min(1.0, float(row["fraction"])),
        )
        for row in rows
    )


def measured_fraction(mesh: DeviceMesh, positions: Sequence[int], pattern: str, wires: Wires) -> float:
    """Return the measured fraction of the data sheet's bandwidth, for this kind of device and size of group.

    The fraction is 1 if nothing was measured, or if the group has several kinds of devices.
    """
    kinds = {mesh.devices[each].kind for each in positions}
    inside = wires.between is None or (wires.inside is not None and wires.bandwidth == wires.inside.bandwidth)
    found = [row for row in _measured() if kinds == {row.kind} and row.pattern == pattern and row.inside == inside]
    # Use the row with the nearest group size. If two are equally near, use the smaller one.
    nearest = min(found, key=lambda row: (abs((row.devices or 0) - wires.per_node), row.devices or 0), default=None)
    return 1.0 if nearest is None else nearest.fraction


def send_link(mesh: DeviceMesh, one: int, other: int) -> Link:
    """Return the link from one device of a mesh to another, with the bandwidth that was measured for sends."""
    found, ends = mesh.link(one, other), (one, other)
    fraction = measured_fraction(mesh, ends, SEND, wires_of(mesh, ends))
    return found if fraction == 1 else replace(found, bandwidth=found.bandwidth * fraction)
