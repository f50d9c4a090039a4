"""The task of the latency searches: give each unit of operators a slot, which is one subgraph of one accelerator.

A split is the slot of each unit. Units that are in no slot run on hosts, which are CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tessel_core.errors import InputError
from tessel_core.model import CPU, Latency, Placement
from tessel_core.model.latency import circle_of
from tessel_core.placement.groups import group_time, held_bytes
from tessel_core.placement.problem import PlacementProblem
from tessel_core.rules.placement_referee import with_rounding

HOST = -1
"""Number that a unit on a host has instead of a slot number."""

Slots = tuple[int, ...]
"""Slot of each unit. Subgraph j of the a-th accelerator has the slot a * subgraphs + j."""


@dataclass(frozen=True)
class LatencyTask:
    """A placement problem with a number of subgraphs per device.

    With one subgraph per device, a unit is a set of operators that must share a device. With several, each operator is
    a unit, because operators that share a device may be in different subgraphs.

    Raises InputError if an operator has no time on any of its allowed devices.
    """

    problem: PlacementProblem
    subgraphs: int

    def __post_init__(self) -> None:
        problem = self.problem
        for operator, allowed in zip(problem.graph.operators, problem.allowed_on, strict=True):
            on = [each for each in problem.devices if allowed is None or each.name in allowed]
            if all(operator.time_on(each.kind) is None for each in on):
                kinds = " or ".join(dict.fromkeys(each.kind for each in on)) or CPU
                why = f"fits nowhere: no device of kind {kinds} has a time for it"
                raise InputError(f"operator {operator.name}", why)

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Operators of each unit, as indices."""
        graph = self.problem.graph
        return graph.colocated if self.subgraphs == 1 else tuple((i,) for i in range(len(graph.operators)))

    @cached_property
    def unit_of(self) -> tuple[int, ...]:
        """Unit of each operator."""
        graph = self.problem.graph
        return graph.group_of if self.subgraphs == 1 else tuple(range(len(graph.operators)))

    @cached_property
    def mates(self) -> tuple[tuple[int, ...], ...]:
        """Sets of two or more units that must share a device but may be in different subgraphs."""
        return () if self.subgraphs == 1 else tuple(each for each in self.problem.graph.colocated if len(each) > 1)

    @cached_property
    def accelerators(self) -> tuple[int, ...]:
        """Indices of the devices that are not hosts."""
        return tuple(i for i, device in enumerate(self.problem.devices) if not device.is_host)

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.accelerators) * self.subgraphs

    @cached_property
    def memory(self) -> tuple[float, ...]:
        """Bytes of each unit."""
        memory = held_bytes(self.problem)
        return tuple(sum(float(memory[i]) for i in unit) for unit in self.units)

    @cached_property
    def capacity(self) -> tuple[float, ...]:
        """Capacity of each device in bytes, plus an allowance for rounding. Infinite if memory is not limited."""
        capacities = (device.memory_capacity for device in self.problem.devices)
        return tuple(float("inf") if each is None else with_rounding(each) for each in capacities)

    @cached_property
    def host_capacity(self) -> float:
        """Sum of the capacities of all hosts, in bytes."""
        return sum(self.capacity[i] for i, device in enumerate(self.problem.devices) if device.is_host)

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Sets of interchangeable accelerators."""
        sets: dict[tuple[object, ...], list[int]] = {}
        for device in self.accelerators:
            which = None if self.has_equal_links else device
            sets.setdefault((self.time[device], self.capacity[device], which), []).append(device)
        return tuple(map(tuple, sets.values()))

    @property
    def is_uniform(self) -> bool:
        """Whether all accelerators are alike and have one subgraph each, so that slots can be exchanged."""
        return len(self.alike) <= 1 and self.subgraphs == 1

    @cached_property
    def moved(self) -> tuple[float, ...]:
        """Time to move each operator's output over the fastest link, in the graph's unit."""
        return self.problem.transfers.over_links(self.problem.graph, min)

    @cached_property
    def has_equal_links(self) -> bool:
        """Whether moving an output takes the same time between any two devices."""
        return self.problem.transfers.over_links(self.problem.graph, max) == self.moved

    @property
    def stays_for_nothing(self) -> bool:
        """Whether moving an output to another subgraph of the same device is free.

        If not, the output goes through a host.
        """
        return self.problem.transfers.mesh is not None and self.subgraphs > 1

    @property
    def pays_transfers(self) -> bool:
        """Whether transfers occupy accelerators. If not, they only delay the receiver."""
        return self.problem.transfers.load_devices

    @cached_property
    def time(self) -> tuple[tuple[float, ...], ...]:
        """Times [device][unit] in the graph's unit. Infinite if a unit is not allowed or does not fit in memory."""
        return tuple(
            tuple(self._time(unit, device) for unit in range(len(self.units)))
            for device in range(len(self.problem.devices))
        )

    def _time(self, unit: int, device: int) -> float:
        on, allowed = self.problem.devices[device], self.problem.allowed_on
        members = self.units[unit]
        if any(known is not None and on.name not in known for known in (allowed[i] for i in members)):
            return float("inf")
        return float("inf") if self.memory[unit] > self.capacity[device] else group_time(self.problem, members, on.kind)

    @cached_property
    def host(self) -> tuple[int | None, ...]:
        """Index of the first host that supports each unit and all units that must share its device.

        None if there is none.
        """
        hosts = [i for i, device in enumerate(self.problem.devices) if device.is_host]
        together = {unit: mates for mates in self.mates for unit in mates}

        def first_host(unit: int) -> int | None:
            mates = together.get(unit, (unit,))
            return next((on for on in hosts if all(self.time[on][each] < float("inf") for each in mates)), None)

        return tuple(map(first_host, range(len(self.units))))

    def device_of(self, unit: int, slot: int) -> int:
        """Return the device with the given slot. If `slot` is HOST, return the host of the unit."""
        if slot != HOST:
            return self.accelerators[slot // self.subgraphs]
        host = self.host[unit]
        assert host is not None, "a unit without a host is on an accelerator"
        return host

    def placement(self, slots: Sequence[int]) -> Placement:
        """Return the placement of the split `slots`, which has the slot of each unit."""
        graph, problem = self.problem.graph, self.problem
        on = tuple((self.device_of(unit, slots[unit]),) for unit in self.unit_of)
        order = tuple(max(slots[unit], 0) % self.subgraphs for unit in self.unit_of)
        return Placement(graph, problem.devices, on, problem.transfers, order)

    def latency(self, slots: Sequence[int]) -> float:
        """Return the latency of one sample in a valid split, in the graph's unit."""
        return Latency.of(self.placement(slots)).total

    def keeps_rules(self, slots: Sequence[int]) -> bool:
        """Return whether the split `slots` is valid.

        Units must be on devices that support them, devices must not exceed their memory, units in `mates` must share a
        device, and subgraphs must not wait for each other in a cycle.
        """
        held = [0.0] * len(self.problem.devices)
        for unit, slot in enumerate(slots):
            if slot == HOST and self.host[unit] is None:
                return False
            device = self.device_of(unit, slot)
            held[device] += self.memory[unit]
            if self.time[device][unit] == float("inf"):
                return False
        if any(amount > capacity for amount, capacity in zip(held, self.capacity, strict=True)):
            return False
        if any(len({self.device_of(unit, slots[unit]) for unit in mates}) > 1 for mates in self.mates):
            return False
        return not circle_of(self.placement(slots), in_order=True)
