"""Cost of reducing gradients over the replicas of a stage. It is the cost of an all-reduce, as in the simulator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from math import ceil, comb, log2
from typing import Protocol

from tessel_core.costs.collectives import ALL_REDUCE, collective, measured_fraction, wires_of
from tessel_core.model import Communication, DeviceMesh, DevicePool, Reductions, Replication
from tessel_core.options import Option, option
from tessel_core.units import TICKS_PER_SECOND

_MAX_TRIED_GROUPS = 500
"""If there are more groups of devices than this, a lower bound is used instead of trying all groups."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Options for stages that run on several devices as replicas."""

    reduce_every: int = option(
        1,
        Option(
            "Micro-batches per reduction",
            "Number of micro-batches whose gradients are added before a reduction. Raise it to make replicas cheaper: "
            "each micro-batch counts its share of the reduction.",
            1,
            1_000_000,
        ),
    )
    bandwidth: float = option(
        16.0,
        Option(
            "Bandwidth of reductions",
            "Bandwidth between identical accelerators, used if there is no mesh. Raise it to make replicas cheaper.",
            1e-6,
            1e9,
            "GB/s",
        ),
    )


@dataclass(frozen=True, slots=True, order=True)
class ReductionTime:
    """Time of a reduction: latency + bytes * per_byte, or 0 for 0 bytes."""

    latency: float
    per_byte: float

    def seconds(self, amount: float) -> float:
        """Return the time to reduce `amount` bytes."""
        return self.latency + amount * self.per_byte if amount > 0 else 0.0


class GroupReductions(Reductions, Protocol):
    """Reductions whose times are linear functions of the number of bytes."""

    def seconds(self, devices: tuple[int, ...], amount: float) -> float:
        """Return the time to reduce `amount` bytes over these devices, per micro-batch."""
        return self.time_of(devices).seconds(amount)

    @abstractmethod
    def time_of(self, devices: tuple[int, ...]) -> ReductionTime:
        """Return the time of a reduction over these devices, per micro-batch."""

    @abstractmethod
    def least_time(self, devices: tuple[int, ...], replicas: int) -> ReductionTime:
        """Return a lower bound on the time of a reduction over any `replicas` of these devices."""


@dataclass(frozen=True)
class PoolReductions(GroupReductions):
    """Reductions over equal accelerators: a ring over r devices moves 2 (r - 1) / r of the bytes [Patarasuk 2009].

    Latency is not counted.
    """

    bandwidth: float
    """Bytes per unit of the graph's time."""
    reduce_every: int = 1

    def time_of(self, devices: tuple[int, ...]) -> ReductionTime:
        """Return the time of a reduction over these devices, per micro-batch."""
        return self.least_time(devices, len(devices))

    def least_time(self, devices: tuple[int, ...], replicas: int) -> ReductionTime:
        """Return the time of a reduction over any `replicas` of the devices. All devices are equal."""
        return ReductionTime(0.0, 2 * (replicas - 1) / replicas / self.bandwidth / self.reduce_every)


@dataclass(frozen=True)
class MeshReductions(GroupReductions):
    """Reductions over the links of a mesh, in seconds."""

    mesh: DeviceMesh
    reduce_every: int = 1
    _known: dict[tuple[int, ...], ReductionTime] = field(default_factory=dict, init=False, repr=False, compare=False)

    def time_of(self, devices: tuple[int, ...]) -> ReductionTime:
        """Return the time of a reduction over these devices in seconds, per micro-batch."""
        found = self._known.get(devices)
        if found is None:
            wires = wires_of(self.mesh, devices)
            fraction = measured_fraction(self.mesh, devices, ALL_REDUCE, wires)
            of_one = collective(ALL_REDUCE, 1.0, wires, fraction)
            per_byte = of_one.amount / of_one.bandwidth
            found = ReductionTime(of_one.latency / self.reduce_every, per_byte / self.reduce_every)
            self._known[devices] = found
        return found

    def least_time(self, devices: tuple[int, ...], replicas: int) -> ReductionTime:
        """Return the smallest latency and the smallest time per byte of any group of `replicas` devices.

        If the mesh lists no single links, the time of a group depends only on its number of nodes and on the smallest
        number of its devices in a node. So one group of each such combination is tried. If the mesh lists single links
        and there are too many groups, the bound assumes that every link is as fast as the fastest.
        """
        groups: Iterator[tuple[int, ...]] | None = None
        if comb(len(devices), replicas) <= _MAX_TRIED_GROUPS:
            groups = combinations(devices, replicas)
        elif not self.mesh.connections:
            groups = self._representatives(devices, replicas)
        if groups is None:
            return self._fastest_links(replicas)
        times = [self.time_of(group) for group in groups]
        return ReductionTime(min(each.latency for each in times), min(each.per_byte for each in times))

    def _representatives(self, devices: Sequence[int], replicas: int) -> Iterator[tuple[int, ...]]:
        """Yield one group for each number of nodes and each smallest number of devices in a node."""
        by_node: dict[int, list[int]] = {}
        for device in devices:
            by_node.setdefault(self.mesh.devices[device].node, []).append(device)
        largest = sorted(by_node.values(), key=len, reverse=True)
        for nodes in range(1, len(largest) + 1):
            room = [len(each) for each in largest[:nodes]]
            for fewest in range(1, room[-1] + 1):
                spare = replicas - fewest * nodes
                if 0 <= spare <= sum(room[:-1]) - fewest * (nodes - 1):
                    yield tuple(sorted(_taken(largest[:nodes], fewest, spare)))

    def _fastest_links(self, replicas: int) -> ReductionTime:
        rounds = 2 * (replicas - 1) / replicas / self._fastest_bandwidth
        hops = ceil(log2(replicas))
        latency = 2 * hops * min(link.latency for link in self.mesh.links)
        return ReductionTime(latency / self.reduce_every, rounds / self.reduce_every)

    @cached_property
    def _fastest_bandwidth(self) -> float:
        return max(link.bandwidth for link in self.mesh.links)


def _taken(nodes: Sequence[Sequence[int]], fewest: int, spare: int) -> Iterator[int]:
    """Yield `fewest` devices of each node, and `spare` further devices from all nodes but the last."""
    for node in nodes:
        more = 0 if node is nodes[-1] else min(spare, len(node) - fewest)
        spare -= more
        yield from islice(node, fewest + more)


def replication_on(
    devices: DeviceMesh | DevicePool,
    options: ReplicaOptions,
    communication: Communication = Communication.BLOCKING,
    time_unit: str = "s",
) -> Replication:
    """Return the rules for the cost of replicas on a mesh or on equal accelerators.

    On equal accelerators, a reduction always blocks its devices. `time_unit` is that of the graph.
    """
    if isinstance(devices, DeviceMesh):
        reductions = MeshReductions(devices, options.reduce_every)
        return Replication(reductions, communication is Communication.OVERLAPPED)
    per_unit = options.bandwidth * 1e9 / TICKS_PER_SECOND.get(time_unit, 1.0)
    return Replication(PoolReductions(per_unit, options.reduce_every))
