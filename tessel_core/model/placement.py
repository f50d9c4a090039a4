"""Which operator runs on which device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tessel_core.errors import InputError
from tessel_core.model.checks import check_amount, check_integer, check_unique, grouped, quotient
from tessel_core.model.in_flight import USUAL, InFlight
from tessel_core.model.layout import layout_memory, layout_of
from tessel_core.model.mesh import MOST_DEVICES, PlacementDevice
from tessel_core.model.operator_graph import CPU, OperatorGraph
from tessel_core.model.replicas import Replication
from tessel_core.model.transfers import OWN_COSTS, Transfers
from tessel_core.shown import Shown


@dataclass(frozen=True, slots=True)
class DevicePool:
    """Identical accelerators `acc0 …` and hosts `cpu0 …`; `memory` is one accelerator's, None is unlimited."""

    accelerators: int
    cpus: int = 0
    memory: float | None = None

    def __post_init__(self) -> None:
        for what, count in (("accelerators", self.accelerators), ("cpus", self.cpus)):
            check_integer("devices", what, count, least=0)
            if count > MOST_DEVICES:
                raise InputError("devices", f"{what} must be at most {MOST_DEVICES}, got {count}")
        if self.accelerators + self.cpus == 0:
            raise InputError("devices", "there are none, a placement needs at least one")
        if self.memory is not None:
            check_amount("devices", "memory", self.memory)

    def devices(self, graph: OperatorGraph) -> tuple[PlacementDevice, ...]:
        """The devices, accelerators first, of the one kind that the graph has accelerator times for.

        Raises InputError where operators have times for several kinds of accelerators.
        """
        kinds = [kind for kind in graph.kinds if kind != CPU] or ["accelerator"]
        if len(kinds) > 1:
            why = f"operators have times for {', '.join(kinds)}; which of them the accelerators are is not said"
            raise InputError(f"graph {graph.name}", why)
        return (
            *(PlacementDevice(f"acc{i}", kinds[0], self.memory) for i in range(self.accelerators)),
            *(PlacementDevice(f"cpu{i}", CPU) for i in range(self.cpus)),
        )


@dataclass(frozen=True, slots=True)
class Allowance:
    """An operator that may only go to some of the devices, by name: pinned to one, or kept away from the others."""

    operator: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Placement(Shown):
    """Per operator, the indices of its devices: one, several for a tensor-parallel group, none where it has no place.

    With a `replication`, several devices are replicas.  A placement may break rules; the referee says which.
    """

    graph: OperatorGraph
    devices: tuple[PlacementDevice, ...]
    assignment: tuple[tuple[int, ...], ...]
    transfers: Transfers = OWN_COSTS
    subgraphs: tuple[int, ...] | None = None
    """For the latency of one sample: per operator, which of its device's subgraphs it is in, in the order in which the
    device runs them; operators of hosts run alone, whatever it says.  None where devices are stages of a pipeline."""
    in_flight: InFlight = USUAL
    """How many micro-batches' activations the stages of a pipeline hold in training."""
    replication: Replication | None = None
    """Where several devices of an operator divide its micro-batches; None where each does the same or its shard."""
    stages: tuple[int, ...] | None = None
    """Where devices have several stages of a pipeline: per operator its stage, numbered along the flow from 0."""

    def __post_init__(self) -> None:
        check_unique("devices", (device.name for device in self.devices))
        numbered = ("subgraphs", self.subgraphs), ("stages", self.stages)
        for what, entries in (("assignment", self.assignment), *numbered):
            if entries is not None and len(entries) != len(self.graph.operators):
                why = f"has {len(entries)} entries, the graph has {len(self.graph.operators)} operators"
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
        """Per device, the indices of its operators."""
        found = ((device, operator) for operator, on in enumerate(self.assignment) for device in on)
        return tuple(map(frozenset, grouped(len(self.devices), found)))

    def replicas(self, operator: int) -> int:
        """Number of devices that divide an operator's micro-batches between them: 1 without a replication."""
        return max(1, len(self.assignment[operator])) if self.replication is not None else 1

    @cached_property
    def replicated(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Per set of replicas, in ascending order, the operators that they share."""
        found: dict[tuple[int, ...], list[int]] = {}
        for operator, on in enumerate(self.assignment):
            if self.replicas(operator) > 1:
                found.setdefault(tuple(sorted(on)), []).append(operator)
        return {devices: tuple(operators) for devices, operators in found.items()}

    def stage_at(self, device: int) -> tuple[int, ...]:
        """The devices that share the stage of a device: itself and its replicas."""
        return next((devices for devices in self.replicated if device in devices), (device,))

    @property
    def on_members(self) -> Placement:
        """The placement on the devices of each tensor-parallel group, if its devices are groups."""
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
        """Per device, the micro-batches whose activations it holds; one where there are subgraphs.

        A stage is what is on one device, or on one group of devices, and has its position among those in use.  Stages
        that share a device, or between which tensors flow in a circle (placements that are not contiguous), count
        together: each device holds as many micro-batches as there are devices, or groups, for all of its stages.  That
        is enough for any schedule that lets no more of them be under way at once.
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
        """Per device, the bytes that its operators hold, with the activations of the micro-batches in flight."""
        layout = layout_of(self)
        if layout is not None:
            return layout_memory(self, layout)
        return tuple(self._bytes(on, count) for on, count in zip(self.operators_on, self.held, strict=True))

    @cached_property
    def lasting_bytes(self) -> tuple[float, ...]:
        """Per operator, the bytes that it holds on each of its devices however many micro-batches are in flight."""
        numbers = set(map(self.replicas, range(len(self.assignment))))
        found = {replicas: self.graph.lasting_bytes(self.in_flight.included, replicas) for replicas in numbers}
        return tuple(found[self.replicas(i)][i] for i in range(len(self.assignment)))

    def bytes_on_each(self, operator: int) -> float:
        """Bytes of an operator on each of its devices, with one micro-batch, or the number in flight."""
        kept = self.in_flight.included * self.graph.kept_bytes[operator] / self.replicas(operator)
        return self.lasting_bytes[operator] + kept

    def most_bytes(self, operators: Iterable[int]) -> float:
        """What a device with these operators holds at most, wherever it is in the pipeline, alone on its stage."""
        on, count = sorted(operators), self.in_flight.held_at(len(self.devices))
        lasting = self.graph.lasting_bytes(self.in_flight.included)
        return sum(lasting[i] for i in on) + count * sum(self.graph.kept_bytes[i] for i in on)

    def _bytes(self, operators: Iterable[int], count: int) -> float:
        on = sorted(operators)
        kept = sum(self.graph.kept_bytes[i] / self.replicas(i) for i in on)
        return sum(self.lasting_bytes[i] for i in on) + count * kept

    def _excess(self, stage: frozenset[int], count: int) -> float:
        """The most that a device of the stage holds over its capacity."""
        limits = ((device, self.devices[device].memory_capacity) for device in stage)
        on = self.operators_on
        return max(-inf if most is None else self._bytes(on[device], count) - most for device, most in limits)
