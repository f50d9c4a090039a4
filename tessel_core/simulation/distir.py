"""DistIR's published costs on a mesh, faults included, so that its numbers can be reproduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.types import TensorType
from tessel_core.model import Device, DeviceMesh, Link
from tessel_core.simulation.distir_rules import LAUNCH_S, RULES, Speeds
from tessel_core.simulation.problem import Costs, DeviceSeconds


@dataclass(frozen=True)
class DistIrCosts(Costs):
    """Device d of a program is device d of the mesh, the host first: see `with_host`."""

    mesh: DeviceMesh

    def seconds(
        self, kind: str, types: Sequence[TensorType], outputs: Sequence[TensorType], values: Values
    ) -> DeviceSeconds:
        """Per device, what the operation takes there; a launch where there is no rule, as DistIR has it."""
        rule = RULES.get(kind)
        if rule is None:
            return {each.device: LAUNCH_S for each in (*types, *outputs)}
        return rule(self._speeds, types, outputs, values)

    @cached_property
    def _speeds(self) -> Speeds:
        return Speeds(self.mesh)


def with_host(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh as DistIR's costs take it: a host before its devices, on a node of its own, at the slowest link.

    InputError for a device without FLOP/s or memory bandwidth, which those costs are made of.
    """
    for device in mesh.devices:
        if not device.flops or device.memory_bandwidth is None:
            missing = "memory_bandwidth" if device.flops else "flops"
            raise InputError(f"device {device.name}", f"has no {missing}, from which times are derived")
    slowest = min(mesh.links, key=lambda link: link.bandwidth, default=Link(1.0))
    nodes, names = {device.node for device in mesh.devices}, {device.name for device in mesh.devices}
    name = next(word for word in ("host", *(f"host{i}" for i in range(len(names)))) if word not in names)
    host = Device(name, name, max(nodes) + 1, None, mesh.devices[0].flops, mesh.devices[0].memory_bandwidth)
    return replace(mesh, devices=(host, *mesh.devices), default_link=mesh.default_link or slowest)
