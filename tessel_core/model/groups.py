"""Tensor-parallel groups of neighbouring devices. A placement treats each group as one device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from tessel_core.errors import InputError
from tessel_core.model.checks import grouped
from tessel_core.model.mesh import Connection, Device, DeviceMesh, Link, PlacementDevice


@dataclass(frozen=True)
class DeviceGroups:
    """Groups of `size` neighbouring devices of one node, in the order of the mesh.

    `as_mesh` has one device for each group. Its capacity is that of the smallest member, because each member holds
    1/`size` of the data of the group. The link between two groups is the slowest link between their members. All
    members send at the same time, each over its own port.

    Raises InputError if `size` does not divide the devices of the mesh or of a node, if the mesh has a host, or if
    the members of a group are of different kinds.
    """

    mesh: DeviceMesh
    size: int
    kinds: tuple[str, ...] = ()
    """Device kind of each group, as operators name it in their times. Empty if it is the kind of the members."""

    def __post_init__(self) -> None:
        count = len(self.mesh.devices)
        if count % self.size:
            raise InputError("tensor", f"groups of {self.size} do not divide the {count} devices of {self.mesh.name}")
        for device in self.mesh.placement_devices:
            if device.is_host:
                raise InputError("tensor", f"device {device.name} is a host, but only accelerators form groups")
        for node in self._nodes:
            if len(node) % self.size:
                where = self.mesh.devices[node[0]].node
                raise InputError(
                    "tensor", f"groups of {self.size} do not divide the {len(node)} devices of node {where}"
                )
        for members in self.members:
            first, *others = (self.mesh.devices[each] for each in members)
            other = next((each for each in others if each.kind != first.kind), None)
            if other is not None:
                why = f"{first.name} is a {first.kind} and {other.name} a {other.kind}, but a group needs one kind"
                raise InputError("tensor", why)

    @property
    def _nodes(self) -> tuple[tuple[int, ...], ...]:
        nodes = list(dict.fromkeys(device.node for device in self.mesh.devices))
        return grouped(len(nodes), ((nodes.index(device.node), i) for i, device in enumerate(self.mesh.devices)))

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Positions in the mesh of the devices of each group."""
        return tuple(node[i : i + self.size] for node in self._nodes for i in range(0, len(node), self.size))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each group, made of the names of its first and its last device."""
        ends = ((self.mesh.devices[each[0]], self.mesh.devices[each[-1]]) for each in self.members)
        return tuple(f"{first.name}..{last.name}" for first, last in ends)

    @cached_property
    def as_mesh(self) -> DeviceMesh:
        """A mesh with one device for each group."""
        return replace(
            self.mesh,
            devices=tuple(self._as_device(group) for group in range(len(self.members))),
            connections=tuple(self._connections()) if self.mesh.connections else (),
        )

    def _as_device(self, group: int) -> Device:
        devices = [self.mesh.devices[each] for each in self.members[group]]
        limits = [each.memory_capacity for each in devices if each.memory_capacity is not None]
        kind = self.kinds[group] if self.kinds else devices[0].kind
        return replace(devices[0], name=self.names[group], kind=kind, memory_capacity=min(limits, default=None))

    def _connections(self) -> list[Connection]:
        connections = []
        for one in range(len(self.members)):
            for other in range(one + 1, len(self.members)):
                links = [self.mesh.link(*pair) for pair in product(self.members[one], self.members[other])]
                slowest = Link(min(each.bandwidth for each in links), max(each.latency for each in links))
                connections.append(Connection((self.names[one], self.names[other]), slowest))
        return connections

    @property
    def placement_devices(self) -> tuple[PlacementDevice, ...]:
        """One placement device for each group."""
        return self.as_mesh.placement_devices

    def group_of(self, names: tuple[str, ...]) -> int | None:
        """Return the index of the group that consists of the named devices, or None if they are not a group."""
        return self._by_names.get(frozenset(names))

    @cached_property
    def _by_names(self) -> dict[frozenset[str], int]:
        sets = (frozenset(self.mesh.devices[each].name for each in members) for members in self.members)
        return {names: group for group, names in enumerate(sets)}
