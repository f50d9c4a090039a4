"""Placements: the device or devices of each operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tessel_core.errors import InputError
from tessel_core.model.checks import check_amount, check_integer, check_unique, grouped, quotient
from tessel_core.model.in_flight import USUAL, InFlight
from tessel_core.model.layout import layout_memory, layout_of
from tessel_core.model.mesh import MAX_DEVICES, PlacementDevice
from tessel_core.model.operator_graph import CPU, OperatorGraph
from tessel_core.model.replicas import Replication
from tessel_core.model.transfers import OWN_COSTS, Transfers
from tessel_core.shown import Shown


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Identical accelerators `acc0 …` and hosts `cpu0 …`. `memory` is per accelerator, and None means unlimited."""

    accelerators: int
    cpus: int = 0
    memory: float | None = None

    def __post_init__(self) -> None:
        for what, count in (("accelerators", self.accelerators), ("cpus", self.cpus)):
            check_integer("devices", what, count, least=0)
            if count > MAX_DEVICES:
                raise InputError("devices", f"{what} must be at most {MAX_DEVICES}, got {count}")
        if self.accelerators + self.cpus == 0:
            raise InputError("devices", "there are none, but a placement needs at least one")
        if self.memory is not None:
            check_amount("devices", "memory", self.memory)

    def devices(self, graph: OperatorGraph) -> tuple[PlacementDevice, ...]:
        """Return the devices, accelerators first. Their kind is the one for which the graph has accelerator times.

        Raises InputError if operators have times for several kinds of accelerators.
        """
        kinds = [kind for kind in graph.kinds if kind != CPU] or ["accelerator"]
        if len(kinds) > 1:
            why = f"operators have times for {', '.join(kinds)}: a pool needs times for one kind of accelerator"
            raise InputError(f"graph {graph.name}", why)
        return (
            *(PlacementDevice(f"acc{i}", kinds[0], self.memory) for i in range(self.accelerators)),
            *(PlacementDevice(f"cpu{i}", CPU) for i in range(self.cpus)),
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """Names of the devices on which an operator may be placed. A pinned operator has one name."""

    operator: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Placement(Shown):
    """The indices of the devices on which each operator runs.

    An operator with several devices is shared by a tensor-parallel group, or by replicas if `replication` is set. An
    operator without devices has not been placed. A placement may break rules. `tessel_core.rules` reports the broken
    ones.
    """

    graph: OperatorGraph
    devices: tuple[PlacementDevice, ...]
    assignment: tuple[tuple[int, ...], ...]
    transfers: Transfers = OWN_COSTS
    subgraphs: tuple[int, ...] | None = None
    """Subgraph of each operator, for placements that minimise latency, else None. Each device runs its subgraphs in
    ascending order. Operators on hosts run one by one, and their entry has no effect."""
    in_flight: InFlight = USUAL
    """Rule for the number of micro-batches whose activations each pipeline stage holds in training."""
    replication: Replication | None = None
    """Cost of replicas, if the devices of an operator divide each micro-batch. None if they form a tensor group."""
    stages: tuple[int, ...] | None = None
    """Pipeline stage of each operator, numbered from 0, if devices have several stages. Else None."""

    def __post_init__(self) -> None:
        check_unique("devices", (device.name for device in self.devices))
        numbered = ("subgraphs", self.subgraphs), ("stages", self.stages)
        for what, entries in (("assignment", self.assignment), *numbered):
            if entries is not None and len(entries) != len(self.graph.operators):
                why = f"has {len(entries)} entries, but the graph has {len(self.graph.operators)} operators"
                raise InputError(what, why)
        for operator, on in zip(self.graph.operators, self.assignment, strict=True):
            if len(set(on)) < len(on) or any(not 0 <= device < len(self.devices) for device in on):
                why = f"must name distinct devices from 0 to {len(self.devices) - 1}, got {list(on)}"
                raise InputError(f"assignment of {operator.name}", why)
        for what, numbers in numbered:
            for operator, number in zip(self.graph.operators, numbers or (), strict=False):
                check_integer(f"{what} of {operator.name}", "the index", number, least=0)

    @cached_property
    def operators_on(self) -> tuple[frozenset[int], ...]:
        """Indices of the operators on each device."""
        pairs = ((device, operator) for operator, on in enumerate(self.assignment) for device in on)
        return tuple(map(frozenset, grouped(len(self.devices), pairs)))

    def replicas(self, operator: int) -> int:
        """Return the number of devices that divide an operator's micro-batches: 1 without a replication."""
        return max(1, len(self.assignment[operator])) if self.replication is not None else 1

    @cached_property
    def replicated(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Operators that each set of replicas shares. Keys are device indices in ascending order."""
        shared: dict[tuple[int, ...], list[int]] = {}
        for operator, on in enumerate(self.assignment):
            if self.replicas(operator) > 1:
                shared.setdefault(tuple(sorted(on)), []).append(operator)
        return {devices: tuple(operators) for devices, operators in shared.items()}

    def stage_at(self, device: int) -> tuple[int, ...]:
        """Return the devices that share the stage of a device: itself and its replicas."""
        return next((devices for devices in self.replicated if device in devices), (device,))

    @property
    def on_members(self) -> Placement:
        """The placement with each tensor-parallel group replaced by its member devices.

        Without groups, the placement itself.
        """
        groups = self.transfers.groups
        if groups is None:
            return self
        kinds = {device: self.devices[i].kind for i, each in enumerate(groups.members) for device in each}
        devices = (replace(each, kind=kinds[i]) for i, each in enumerate(groups.mesh.placement_devices))
        return replace(
            self,
            devices=tuple(devices),
            assignment=tuple(tuple(d for group in on for d in groups.members[group]) for on in self.assignment),
            transfers=Transfers(groups.mesh, self.transfers.communication),
        )

    @cached_property
    def held(self) -> tuple[int, ...]:
        """Number of micro-batches whose activations each device holds. It is 1 if there are subgraphs.

        A stage consists of the operators on one device or one group of devices. Stages without operators do not count
        in the position of a stage. If stages share a device, or tensors flow in a cycle between them (placements that
        are not contiguous), stages have no position. Each device then holds one micro-batch per device, or per group.
        That is enough for every schedule with at most this many micro-batches in flight.
        """
        rule = self.in_flight if self.subgraphs is None else InFlight(self.in_flight.included)
        stages = tuple(dict.fromkeys(map(frozenset, filter(None, self.assignment))))
        if not rule.by_position or sum(map(len, stages)) > len(frozenset().union(*stages)):
            return (rule.held_at(len(self.devices)),) * len(self.devices)
        number = {stage: i for i, stage in enumerate(stages)}
        at = [number.get(frozenset(self.assignment[members[0]]), -1) for members in self.graph.colocated]
        arcs = ((at[one], at[other]) for one, other in self.graph.flow)
        before = quotient(len(stages), (arc for arc in arcs if min(arc) >= 0))
        places = len(self.devices) // min(map(len, stages), default=1)
        held = rule.held_by(before, lambda stage, count: self._excess(stages[stage], count), places)
        of_device = {device: count for stage, count in zip(stages, held, strict=True) for device in stage}
        return tuple(of_device.get(device, 1) for device in range(len(self.devices)))

    @cached_property
    def memory(self) -> tuple[float, ...]:
        """Bytes that each device holds, including the activations of all micro-batches in flight."""
        layout = layout_of(self)
        if layout is not None:
            return layout_memory(self, layout)
        return tuple(self._bytes(on, count) for on, count in zip(self.operators_on, self.held, strict=True))

    @cached_property
    def lasting_bytes(self) -> tuple[float, ...]:
        """Bytes of each operator on each of its devices, without the activations that micro-batches in flight keep."""
        numbers = set(map(self.replicas, range(len(self.assignment))))
        lasting = {replicas: self.graph.lasting_bytes(self.in_flight.included, replicas) for replicas in numbers}
        return tuple(lasting[self.replicas(i)][i] for i in range(len(self.assignment)))

    def bytes_on_each(self, operator: int) -> float:
        """Return the bytes of an operator on each of its devices, with `in_flight.included` micro-batches."""
        kept = self.in_flight.included * self.graph.kept_bytes[operator] / self.replicas(operator)
        return self.lasting_bytes[operator] + kept

    def most_bytes(self, operators: Iterable[int]) -> float:
        """Return the largest number of bytes that a device with these operators holds at any position in a pipeline.

        The device has no replicas.
        """
        on, count = sorted(operators), self.in_flight.held_at(len(self.devices))
        lasting = self.graph.lasting_bytes(self.in_flight.included)
        return sum(lasting[i] for i in on) + count * sum(self.graph.kept_bytes[i] for i in on)

    def _bytes(self, operators: Iterable[int], count: int) -> float:
        on = sorted(operators)
        kept = sum(self.graph.kept_bytes[i] / self.replicas(i) for i in on)
        return sum(self.lasting_bytes[i] for i in on) + count * kept

    def _excess(self, stage: frozenset[int], count: int) -> float:
        """Return the largest excess over capacity of the stage's devices. It is negative if all fit."""
        limits = ((device, self.devices[device].memory_capacity) for device in stage)
        on = self.operators_on
        return max(-inf if most is None else self._bytes(on[device], count) - most for device, most in limits)
