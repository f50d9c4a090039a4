"""Durations of operations.

An operation states its duration, or it follows from the cost model and the links of a mesh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tessel_core.costs.collectives import (
    Collective,
    Wires,
    collective,
    measured_fraction,
    ring_order,
    send_link,
    wires_of,
)
from tessel_core.costs.costed import Beside, KernelSpeed, OperatorTerms, kernel_speed, work_of
from tessel_core.costs.fit import CostFit
from tessel_core.costs.operations import amounts_of, as_operator, format_of
from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.attributes import integers, number
from tessel_core.ir.operators.formats import FORMAT, FUSED, casts_of
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.model import DeviceMesh, Link
from tessel_core.simulation.transfers import AllreduceFit, Transfer, transfers_of
from tessel_core.units import show_flops, show_memory, show_time

DeviceSeconds = dict[int, float]
"""For each device of an operation, the seconds for which the operation keeps the device busy."""


class Costs(ABC):
    """Durations of operations on devices."""

    @abstractmethod
    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Return the seconds of an operation on each device, given its input and output types and attributes."""


class StatedCosts(Costs):
    """Costs of a program in which every operation states its duration, such as a converted schedule.

    No mesh is needed.
    """

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Return the stated seconds. Raises InputError for an operation that states no duration."""
        if not find_operator(kind).stated:
            raise InputError(kind, "does not state its duration, so it needs a mesh")
        return stated_seconds(types, outputs, values)


def stated_seconds(types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    """Return the attribute `seconds` for every device of an operation."""
    devices = values.get("devices")
    named = devices if isinstance(devices, tuple) else (each.device for each in (*types, *outputs))
    return dict.fromkeys(named, number(values, "seconds"))


@dataclass(frozen=True)
class MeshCosts(Costs):
    """Costs on a mesh.

    Worker w of a program is device w - 1 of the mesh. Transfers to and from the host are free, because the host stands
    for local data.
    """

    mesh: DeviceMesh
    fit: CostFit | None = None
    """Calibrated parameters of the devices. None for the shipped parameters."""
    training: bool = False
    """Whether launches are as slow as autograd makes them. Launches in inference are faster."""
    allreduce: AllreduceFit | None = None
    """Measured all-reduces, by number of devices. For other numbers, the formula of rings is used."""
    _groups: dict[tuple[str, tuple[int, ...]], tuple[Wires, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cache of the links of each group of devices, and of the fraction of their bandwidth that a pattern reaches."""
    _computations: dict[tuple[object, ...], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache of the seconds of computations."""
    _speeds: dict[tuple[object, ...], KernelSpeed] = field(default_factory=dict, init=False, repr=False, compare=False)

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Return the seconds of an operation on each device. Raises InputError for a device that is not in the mesh."""
        operator = find_operator(kind)
        if operator.stated:
            return stated_seconds(types, outputs, values)
        if operator.pattern:
            found = {each.device: 0.0 for each in (*types, *outputs)}
            for transfer in self.transfers(kind, types, outputs):
                for device in transfer.devices:
                    found[device] += transfer.seconds
            return found
        device = (*types, *outputs)[0].device
        if device == HOST or operator.view:
            return {device: 0.0}
        key = kind, *types, *outputs, *values.items()
        seconds = self._computations.get(key)
        if seconds is None:
            seconds = self._computations[key] = self.terms(kind, types, outputs, values).seconds
        return {device: seconds}

    def transfers(self, kind: str, types: Types, outputs: Types) -> tuple[Transfer, ...]:
        """Return the transfers of a communication, one after the other."""
        found = transfers_of(find_operator(kind).pattern, types, outputs, self)
        if kind == "allreduce" and self.allreduce is not None:
            devices = len({each.device for each in types})
            if devices in self.allreduce.per_byte:
                amount = sum(each.bytes for each in types if each.device == types[0].device)
                return tuple(self.allreduce.applied(each, devices, amount) for each in found)
        return found

    def by_node(self, devices: Sequence[int]) -> list[list[int]]:
        """Return the workers of each node. The host is left out, because transfers to it are free."""
        workers = [device for device in devices if device != HOST]
        return ring_order(workers, [self.mesh.devices[self.position(each)].node for each in workers])

    def collective(self, pattern: str, devices: tuple[int, ...], amount: float) -> Collective:
        """Return the collective of a group of workers.

        `amount` is the bytes on each worker, before a reduction or after an all-gather.
        """
        if (pattern, devices) not in self._groups:
            positions = tuple(map(self.position, devices))
            wires = wires_of(self.mesh, positions)
            self._groups[pattern, devices] = wires, measured_fraction(self.mesh, positions, pattern, wires)
        wires, fraction = self._groups[pattern, devices]
        return collective(pattern, amount, wires, fraction)

    def terms(self, kind: str, types: Types, outputs: Types, values: Values) -> OperatorTerms:
        """Return the parts of an operation's duration on one worker."""
        return self.terms_on(self.position((*types, *outputs)[0].device), kind, types, outputs, values)

    def terms_on(self, position: int, kind: str, types: Types, outputs: Types, values: Values) -> OperatorTerms:
        """Return the parts of an operation's duration on the device at this index of the mesh."""
        known_as, flops, moved, made = amounts_of(kind, types, outputs, values)
        if flops == moved == 0:
            return OperatorTerms(0.0, 0.0, 0.0, 0.0)
        dtype, launches, casts = format_of((*types, *outputs), values), None, Beside()
        if FUSED in values:
            launches = integers(values, FUSED)[0]
        elif FORMAT in values:
            casts = Beside(*casts_of(kind, types, values))
        speed = self._speed(position, known_as, dtype, launches)
        return speed.terms(work_of(known_as, flops, moved, made, dtype), casts)

    def _speed(self, position: int, kind: str, dtype: str, launches: int | None) -> KernelSpeed:
        key = position, kind, dtype, launches
        if key not in self._speeds:
            # The launches of fused kernels do not go through autograd.
            training = self.training and launches is None
            self._speeds[key] = kernel_speed(
                kind, self.mesh.devices[position], dtype, training, self.fit, launches=launches
            )
        return self._speeds[key]

    def position(self, device: int) -> int:
        """Return the index of a worker among the mesh's devices."""
        if not 1 <= device <= len(self.mesh.devices):
            raise InputError(
                f"device {device}", f"is not in mesh {self.mesh.name}, whose devices are 1 to {len(self.mesh.devices)}"
            )
        return device - 1

    def link(self, one: int, other: int) -> Link | None:
        """Return the link between two devices of a program, or None if transfers between them are free."""
        if HOST in (one, other) or one == other:
            return None
        return send_link(self.mesh, self.position(one), self.position(other))


def costs_on(mesh: DeviceMesh, program: Program) -> MeshCosts:
    """Return the costs of a program's operations on a mesh."""
    return MeshCosts(mesh, training=program.is_training)


def formula(program: Program, op: Op, costs: MeshCosts | None = None) -> str:
    """Return the formula of an operation's duration with its numbers. Without `costs`, return only its work.

    The formula shows work divided by speed, for arithmetic and for memory traffic. The longer of the two counts, and
    the launch overlaps with it. For a communication, the formula shows each transfer.
    """
    operator, values = find_operator(op.kind), dict(op.attributes)
    types, outputs = program.types_of(op.inputs), program.types_of(op.outputs)
    if operator.stated:
        return f"{values['seconds']:g} s, as stated"
    if operator.pattern:
        amount = show_memory(max(each.bytes for each in types), "B")
        return f"{amount} from each" if costs is None else _moved(costs.transfers(op.kind, types, outputs))
    work = as_operator(op.kind, types, outputs, values)
    flops, moved = work.flops or 0.0, work.bytes or 0.0
    if costs is None or operator.view or (*types, *outputs)[0].device == HOST:
        return f"{show_flops(flops)}, {show_memory(moved, 'B')} moved"
    terms = costs.terms(op.kind, types, outputs, values)
    parts = [
        _over(show_flops(flops), flops, terms.computing, show_flops),
        _over(show_memory(moved, "B"), moved, terms.moving, lambda rate: show_memory(rate, "B")),
        f"casts to FP8 {show_time(terms.casting, 's')}" if terms.casting else "",
        f"launch {show_time(terms.launch, 's')}",
    ]
    return "; ".join(filter(None, parts))


def _over(shown: str, amount: float, seconds: float, show: Callable[[float], str]) -> str:
    return f"{shown} ÷ {show(amount / seconds)}/s = {show_time(seconds, 's')}" if seconds else ""


def _moved(transfers: Sequence[Transfer]) -> str:
    if not transfers:
        return "free"
    first = transfers[0]
    one = f"{show_memory(first.amount, 'B')} ÷ {show_memory(first.bandwidth, 'B')}/s"
    if first.rails > 1:
        one += f" on {first.rails} rails"
    if first.latency:
        by = "" if not first.by_node else " of a tree" if first.tree else " of a ring"
        one += f" + {show_time(first.latency, 's')}{by}"
    return f"{len(transfers)} × ({one})" if len(transfers) > 1 else one
