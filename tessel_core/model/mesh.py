"""Devices, the links between them, and the reduced view of a device that placements need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, product

from tessel_core.errors import InputError
from tessel_core.model.checks import check_amount, check_integer, check_name, check_rate, check_unique
from tessel_core.model.operator_graph import CPU

MAX_DEVICES = 16_384


@dataclass(frozen=True, slots=True)
class PlacementDevice:
    """Name, kind and memory of a device, which a placement needs. A capacity of None means unlimited memory."""

    name: str
    kind: str
    memory_capacity: float | None = None

    def __post_init__(self) -> None:
        check_name("a device", self.name)
        check_name(f"device {self.name}, kind", self.kind)
        if self.memory_capacity is not None:
            check_amount(f"device {self.name}", "memory_capacity", self.memory_capacity)

    @property
    def is_host(self) -> bool:
        """Whether the device is a host, which pays no communication."""
        return self.kind == CPU


@dataclass(frozen=True, slots=True)
class PeakRate:
    """Peak floating-point operations per second of a device in one number format, such as bf16."""

    dtype: str
    flops: float


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a mesh. A field of None means unknown, except that a `memory_capacity` of None means unlimited."""

    name: str
    kind: str
    node: int = 0
    """Number of the node (server) of the device. Devices of one node use `DeviceMesh.same_node_link`."""
    memory_capacity: int | None = None
    """Bytes."""
    flops: tuple[PeakRate, ...] = ()
    memory_bandwidth: float | None = None
    """Bytes per second between the device's memory and its processors."""

    def __post_init__(self) -> None:
        check_name("a device", self.name)
        where = f"device {self.name}"
        check_name(f"{where}, kind", self.kind)
        check_integer(where, "node", self.node, least=0)
        if self.memory_capacity is not None:
            check_integer(where, "memory_capacity", self.memory_capacity, least=0)
        check_unique(f"{where}, flops", (each.dtype for each in self.flops))
        for each in self.flops:
            check_name(f"{where}, flops", each.dtype)
            check_rate(where, f"flops.{each.dtype}", each.flops)
        if self.memory_bandwidth is not None:
            check_rate(where, "memory_bandwidth", self.memory_bandwidth)

    def peak(self, dtype: str) -> float | None:
        """Return the peak FLOP/s in a number format, or None if it is unknown."""
        return next((each.flops for each in self.flops if each.dtype == dtype), None)


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link between two devices, equally fast in both directions."""

    bandwidth: float
    """Bytes per second in each direction."""
    latency: float = 0.0
    """Seconds until the first byte arrives."""

    def __post_init__(self) -> None:
        check_rate("a link", "bandwidth", self.bandwidth)
        check_amount("a link", "latency", self.latency)

    def seconds(self, amount: float) -> float:
        """Return the time to move `amount` bytes: latency + amount / bandwidth."""
        return self.latency + amount / self.bandwidth


@dataclass(frozen=True, slots=True)
class Connection:
    """A link between two named devices. It is used instead of the default link."""

    between: tuple[str, str]
    link: Link


@dataclass(frozen=True)
class DeviceMesh:
    """Devices on one or several nodes, with a link between every two devices.

    Raises InputError, which names the device or link, if the mesh is malformed or two devices have no link.
    """

    name: str
    devices: tuple[Device, ...]
    connections: tuple[Connection, ...] = ()
    same_node_link: Link | None = None
    """Link between devices of one node that have no connection of their own."""
    default_link: Link | None = None
    """Link between devices of different nodes that have no connection of their own."""
    node_uplink: float | None = None
    """Bytes per second that a node's devices share on the way to other nodes. None if each has its own uplink."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name("mesh", self.name)
        if not self.devices:
            raise InputError("devices", "the mesh has none, but needs at least one")
        if len(self.devices) > MAX_DEVICES:
            raise InputError("devices", f"there are {len(self.devices):,}, more than the {MAX_DEVICES:,} allowed")
        check_unique("devices", (device.name for device in self.devices))
        object.__setattr__(self, "_index", {device.name: i for i, device in enumerate(self.devices)})
        if self.node_uplink is not None:
            check_rate("mesh", "node_uplink", self.node_uplink)
        self._check_kinds()
        self._check_connections()
        self._check_linked()

    def _check_kinds(self) -> None:
        """Raise InputError if devices of one kind differ in speed, because times are given per kind."""
        first: dict[str, Device] = {}
        for device in self.devices:
            alike = first.setdefault(device.kind, device)
            if (set(device.flops), device.memory_bandwidth) != (set(alike.flops), alike.memory_bandwidth):
                why = f"is of kind {device.kind} like {alike.name}, but has different flops or memory_bandwidth"
                raise InputError(f"device {device.name}", why)

    def _check_connections(self) -> None:
        for connection in self.connections:
            one, other = connection.between
            where = f"link {one} - {other}"
            for name in connection.between:
                if name not in self._index:
                    raise InputError(where, f"unknown device {name!r}")
            if one == other:
                raise InputError(where, "links a device to itself")
        check_unique("links", (" - ".join(sorted(each.between)) for each in self.connections))

    def _check_linked(self) -> None:
        nodes = defaultdict[int, list[int]](list)
        for i, device in enumerate(self.devices):
            nodes[device.node].append(i)
        within = (pair for members in nodes.values() for pair in combinations(members, 2))
        across = (pair for groups in combinations(nodes.values(), 2) for pair in product(*groups))
        without_default = [
            pairs for pairs, link in ((within, self.same_node_link), (across, self.default_link)) if link is None
        ]
        for one, other in chain(*without_default):
            if self._link(one, other) is None:
                a, b = self.devices[one], self.devices[other]
                missing = "same_node_link" if a.node == b.node else "default_link"
                raise InputError("links", f"nothing links {a.name} and {b.name}: list the link or give {missing}")

    def with_capacity(self, capacity: int) -> DeviceMesh:
        """Return the mesh with another `memory_capacity` for every device that is not a host."""
        devices = (each if each.kind == CPU else replace(each, memory_capacity=capacity) for each in self.devices)
        return replace(self, devices=tuple(devices))

    def part(self, devices: Sequence[int]) -> DeviceMesh:
        """Return the mesh of some devices, given by their positions, in this order."""
        if tuple(devices) == tuple(range(len(self.devices))):
            return self
        kept = tuple(self.devices[i] for i in devices)
        names = {device.name for device in kept}
        connections = tuple(each for each in self.connections if names.issuperset(each.between))
        return replace(self, name=f"{len(kept)} of {self.name}", devices=kept, connections=connections)

    def link(self, one: int, other: int) -> Link:
        """Return the link between two different devices, given by their positions in the mesh."""
        link = self._link(one, other)
        assert link is not None, "every two devices are linked"
        return link

    def _link(self, one: int, other: int) -> Link | None:
        own = self._own_links.get(frozenset((one, other)))
        same = self.devices[one].node == self.devices[other].node
        return own or (self.same_node_link if same else self.default_link)

    @cached_property
    def _own_links(self) -> dict[frozenset[int], Link]:
        return {frozenset(self._index[name] for name in each.between): each.link for each in self.connections}

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Distinct links between devices."""
        nodes = {device.node for device in self.devices}
        near = self.same_node_link if len(nodes) < len(self.devices) else None
        far = self.default_link if len(nodes) > 1 else None
        links = (*(each.link for each in self.connections), near, far)
        return tuple(dict.fromkeys(link for link in links if link is not None))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Distinct kinds of the devices, in order of first appearance."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @cached_property
    def placement_devices(self) -> tuple[PlacementDevice, ...]:
        """A `PlacementDevice` (name, kind, memory) for each device, in the same order."""
        return tuple(PlacementDevice(each.name, each.kind, each.memory_capacity) for each in self.devices)
