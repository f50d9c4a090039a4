"""Costs as DistIR's published code counts them, its faults included, so that its numbers can be reproduced.

[Santhanam et al., DistIR, arXiv 2111.05426, and its repository.]  What differs from the default costs:
the launch overhead is 10 µs whatever the device says; losses read one tensor instead of two; `sgd` costs its last
weight only; `reduce` and `gather` multiply bytes by the width of a number once more; products of more than two axes
count their first two; `scatter` and `broadcast` are free; sends and collectives have no latency, and a collective's
bandwidth is the mean over all pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from tessel_core.ir.operators.elementwise import BINARY, UNARY
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.model import DeviceMesh
from tessel_core.simulation.problem import Costs, DeviceSeconds, stated_seconds

LAUNCH_S = 1e-5

Types = Sequence[TensorType]


@dataclass(frozen=True)
class DistIrCosts(Costs):
    """Device d of a program is device d of the mesh, the host first; peaks are read in fp32, bandwidths from links."""

    mesh: DeviceMesh

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Per device, what the operation takes there."""
        rule = _RULES.get(kind)
        if rule is not None:
            return rule(self, types, outputs, values)
        return {each.device: LAUNCH_S for each in (*types, *outputs)}

    def rate(self, device: int) -> float:
        """FLOP/s."""
        found = self.mesh.devices[device].flops
        return found[0].flops

    def dram(self, device: int) -> float:
        """Bytes per second."""
        return self.mesh.devices[device].memory_bandwidth or float("inf")

    def bandwidth(self, one: int, other: int) -> float:
        """Bytes per second between two devices."""
        return self.mesh.link(one, other).bandwidth

    def mean_bandwidth(self, devices: Sequence[int]) -> float:
        """Over all pairs."""
        return mean(self.bandwidth(one, other) for one, other in combinations(devices, 2))


def _elementwise(costs: DistIrCosts, x: TensorType, tensors: int) -> float:
    moved = x.bytes * tensors / costs.dram(x.device)
    return LAUNCH_S + moved + x.elements / costs.rate(x.device)


def _unary(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return {types[0].device: _elementwise(costs, types[0], 1)}


def _binary(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return {types[0].device: _elementwise(costs, types[0].shaped(outputs[0].shape), 2)}


def _product(costs: DistIrCosts, device: int, width: int, m: int, k: int, n: int) -> float:
    return LAUNCH_S + width * (m * k + k * n) / costs.dram(device) + 2 * m * k * n / costs.rate(device)


def _matmul(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    x, y = types
    width = WIDTHS[x.dtype]
    return {x.device: _product(costs, x.device, width, x.shape[0], x.shape[1], y.shape[1])}


def _gemm(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    x, (m, n) = types[0], outputs[0].shape
    return {x.device: _product(costs, x.device, WIDTHS[x.dtype], m, x.shape[0 if values["trans_a"] else 1], n)}


def _matmul_grad(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    x, y, dz = types
    width = WIDTHS[x.dtype]
    by_input = _product(costs, x.device, width, dz.shape[0], dz.shape[1], y.shape[0])
    by_weight = _product(costs, x.device, width, x.shape[1], x.shape[0], dz.shape[1])
    return {x.device: by_input + by_weight}


def _send(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    one, other = types[0].device, outputs[0].device
    seconds = types[0].bytes / costs.bandwidth(one, other)
    return {one: seconds, other: seconds}


def _collective(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    devices, count = [each.device for each in types], len(types)
    if count == 1:
        return {devices[0]: 0.0}
    seconds = 2 * mean(each.bytes for each in types) * (count - 1) / count / costs.mean_bandwidth(devices)
    return dict.fromkeys(devices, seconds)


def _to_one(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    to, found = outputs[0].device, {outputs[0].device: 0.0}
    for each in types:
        if each.device != to:
            found[each.device] = each.bytes * WIDTHS[each.dtype] / costs.bandwidth(each.device, to)
            found[to] = max(found[to], found[each.device])
    return found


def _free(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return {each.device: 0.0 for each in (*types, *outputs)}


def _stated(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return stated_seconds(types, outputs, values)


def _sgd(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return {outputs[-1].device: _elementwise(costs, outputs[-1], 2)}


_Rule = Callable[[DistIrCosts, Types, Types, Values], DeviceSeconds]

_RULES: Mapping[str, _Rule] = {
    **{each.kind: _unary for each in UNARY},
    **{each.kind: _binary for each in BINARY},
    "identity": _free,
    "add": _binary,
    "matmul": _matmul,
    "gemm": _gemm,
    "matmul_grad": _matmul_grad,
    "relu": _unary,
    "relu_grad": _binary,
    "loss": _unary,
    "loss_grad": _unary,
    "sgd": _sgd,
    "send": _send,
    "allreduce": _collective,
    "allgather": _collective,
    "allgather_in_place": _collective,
    "reduce_scatter": _collective,
    "broadcast": _free,
    "scatter": _free,
    "gather": _to_one,
    "reduce": _to_one,
    "block": _stated,
    "delay": _stated,
}
