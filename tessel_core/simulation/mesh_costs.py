"""The default costs: operators by the cost model of their device, transfers by the links of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessel_core.costs.timing import operator_seconds
from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.types import HOST, TensorType
from tessel_core.model import DeviceMesh, Link, Operator
from tessel_core.simulation.problem import Costs, DeviceSeconds

Types = Sequence[TensorType]


@dataclass(frozen=True)
class MeshCosts(Costs):
    """Worker w of a program is device w - 1 of the mesh; the host's transfers are free, it stands for data at hand.

    Collectives run as rings over the devices in their order, at the pace of the ring's slowest link: latencies are
    counted per step [Patarasuk 2009]; a broadcast and a reduction go along a chain in pieces.
    """

    mesh: DeviceMesh

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Per device, seconds of an operation; InputError for a device that the mesh does not have."""
        operator = find_operator(kind)
        if operator.pattern:
            return _PATTERNS[operator.pattern](self, types, outputs)
        device = types[0].device
        if device == HOST or operator.view:
            return {device: 0.0}
        work = operator.work(types, outputs, values)
        backward = kind.endswith("_grad")
        known_as = kind.removesuffix("_grad") + "_backward" if backward else kind
        asked = Operator(kind, known_as, flops=work.flops, bytes=work.bytes, backward=backward)
        return {device: operator_seconds(asked, self.mesh.devices[self.position(device)], types[0].dtype)}

    def position(self, device: int) -> int:
        """Where the mesh has a worker."""
        if not 1 <= device <= len(self.mesh.devices):
            raise InputError(f"device {device}", f"is not in mesh {self.mesh.name}, which has {len(self.mesh.devices)}")
        return device - 1

    def link(self, one: int, other: int) -> Link | None:
        """The link between two of a program's devices; None where it is free."""
        if HOST in (one, other) or one == other:
            return None
        return self.mesh.link(self.position(one), self.position(other))


def _step(costs: MeshCosts, devices: Sequence[int], amount: float) -> float:
    """Every device passes `amount` bytes on to the next of the ring."""
    links = [costs.link(one, other) for one, other in pairwise((*devices, devices[0]))]
    return max((link.seconds(amount) for link in links if link is not None), default=0.0)


def _ring(passes: int, split: bool) -> Callable[[MeshCosts, Types, Types], DeviceSeconds]:
    """So many rounds of n - 1 steps of an n-th of the input, or of all of it."""

    def cost(costs: MeshCosts, types: Types, outputs: Types) -> DeviceSeconds:
        devices, count = [each.device for each in types], len(types)
        if count == 1:
            return {devices[0]: 0.0}
        amount = types[0].bytes / count if split else types[0].bytes
        return dict.fromkeys(devices, passes * (count - 1) * _step(costs, devices, amount))

    return cost


def _send(costs: MeshCosts, types: Types, outputs: Types) -> DeviceSeconds:
    link = costs.link(types[0].device, outputs[0].device)
    seconds = 0.0 if link is None else link.seconds(types[0].bytes)
    return {types[0].device: seconds, outputs[0].device: seconds}


def _chain(costs: MeshCosts, types: Types, outputs: Types) -> DeviceSeconds:
    """Along a chain in pieces: every latency once, the bytes once at the slowest link."""
    devices = list(dict.fromkeys(each.device for each in (*types, *outputs)))
    links = [link for one, other in pairwise(devices) if (link := costs.link(one, other)) is not None]
    seconds = sum(link.latency for link in links)
    seconds += max((types[0].bytes / link.bandwidth for link in links), default=0.0)
    return dict.fromkeys(devices, seconds)


def _star(costs: MeshCosts, types: Types, outputs: Types) -> DeviceSeconds:
    """One device with each of the others in turn, a part at a time."""
    many, one = (types, outputs[0]) if len(types) > 1 else (outputs, types[0])
    found = {one.device: 0.0}
    for each in many:
        link = costs.link(one.device, each.device)
        if link is not None:
            found[each.device] = link.seconds(each.bytes)
            found[one.device] += found[each.device]
    return found


_PATTERNS: Mapping[str, Callable[[MeshCosts, Types, Types], DeviceSeconds]] = {
    "send": _send,
    "allreduce": _ring(2, split=True),
    "allgather": _ring(1, split=False),
    "reduce_scatter": _ring(1, split=True),
    "broadcast": _chain,
    "reduce": _chain,
    "scatter": _star,
    "gather": _star,
}
