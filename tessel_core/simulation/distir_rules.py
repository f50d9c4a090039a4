"""Costs on a mesh as DistIR's published code computes them, including its errors. There is one rule per operator.

The source is Santhanam et al., DistIR, arXiv 2111.05426, and its repository. DistIR simulates ONNX operators. One of
our operators, such as a layer norm, may correspond to several ONNX operators. It then costs their sum, as in the GPT-2
model that DistIR simulates, without operators that only compute shapes. DistIR lacks some operators, such as those of a
transformer's backward pass. They use the most similar rule. A gradient without a similar rule costs twice its forward
operator, as for a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.elementwise import BINARY, BINARY_GRADIENTS, UNARY
from tessel_core.ir.operators.functions import FUNCTION_GRADIENTS
from tessel_core.ir.operators.normalization import NORMALIZATION, NORMALIZATION_GRADIENTS
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.operators.reductions import REDUCTION_GRADIENTS, REDUCTIONS
from tessel_core.ir.types import WIDTHS, TensorType
from tessel_core.model import Device, DeviceMesh, Link
from tessel_core.simulation.costs import Costs, DeviceSeconds, stated_seconds

LAUNCH_S = 1e-5
"""Seconds for every launch, on any device."""


@dataclass(frozen=True)
class DistIrCosts(Costs):
    """Costs on a mesh whose device 0 is the host, as `with_host` returns it.

    Device d of a program is device d of the mesh.
    """

    mesh: DeviceMesh

    def seconds(self, kind: str, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
        """Return the seconds of an operation on each device.

        As in DistIR, an operator without a rule takes the time of one launch.
        """
        rule = RULES.get(kind)
        if rule is None:
            return {each.device: LAUNCH_S for each in (*types, *outputs)}
        return rule(self, types, outputs, values)

    def device(self, number: int) -> Device:
        """Return device `number` of the mesh. Raises InputError if the mesh has fewer devices."""
        if number >= len(self.mesh.devices):
            workers = len(self.mesh.devices) - 1
            raise InputError(f"device {number}", f"is not in mesh {self.mesh.name}, which has a host and {workers}")
        return self.mesh.devices[number]

    def rate(self, device: int) -> float:
        """Return the first of the device's rates, in FLOP/s. DistIR uses it for every number format."""
        return self.device(device).flops[0].flops

    def dram(self, device: int) -> float:
        """Return the bandwidth of the device's memory in bytes per second."""
        return self.device(device).memory_bandwidth or float("inf")

    def bandwidth(self, one: int, other: int) -> float:
        """Return the bytes per second between two devices. It is infinite if both are the same device."""
        self.device(max(one, other))
        return float("inf") if one == other else self.mesh.link(one, other).bandwidth

    def unary(self, x: TensorType, tensors: int = 1) -> float:
        """Return the seconds to read `tensors` tensors of the size of x and to do one FLOP per element of x."""
        return LAUNCH_S + x.bytes * tensors / self.dram(x.device) + x.elements / self.rate(x.device)

    def binary(self, x: TensorType) -> float:
        """Return the seconds to read two tensors of the size of x and to do one FLOP per element of x."""
        return self.unary(x, 2)

    def product(self, like: TensorType, x: Sequence[int], y: Sequence[int]) -> float:
        """Return the seconds of a product of matrices with shapes x and y.

        If there are more axes, DistIR uses the first two.
        """
        moved = WIDTHS[like.dtype] * (x[0] * x[1] + y[0] * y[1]) / self.dram(like.device)
        return LAUNCH_S + moved + 2 * x[0] * x[1] * y[1] / self.rate(like.device)


OnOne = Callable[[DistIrCosts, Types, Values], float]
"""Returns the seconds of an operator that runs on one device. The argument `types` has its input types."""
Rule = Callable[[DistIrCosts, Types, Types, Values], DeviceSeconds]
"""Returns the seconds of an operator on each device, from its input and output types."""


def _rows(x: TensorType) -> tuple[int, int]:
    """Return the shape of [.., n] after it is reshaped to a matrix [rows, n]."""
    return math.prod(x.shape[:-1]), x.shape[-1]


def _flattens(x: TensorType, y: TensorType) -> bool:
    """Return whether a product reshapes x to a matrix. DistIR multiplies only tensors of equal rank."""
    return len(x.shape) > len(y.shape)


def _matmul(costs: DistIrCosts, types: Types, values: Values) -> float:
    x, y = types[:2]
    if _flattens(x, y):
        return 2 * LAUNCH_S + costs.product(x, _rows(x), y.shape)
    return costs.product(x, x.shape, y.shape)


def _turned(matrix: TensorType) -> TensorType:
    return matrix.shaped(matrix.shape[::-1])


def _matmul_grad(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of two products: gradient x transposed factor, and transposed input x gradient."""
    x, y, dz = types
    by_weight = y.shape[1], y.shape[0]
    if _flattens(x, y):
        rows, columns = _rows(x), _rows(dz)
        return 3 * LAUNCH_S + costs.product(x, columns, by_weight) + costs.product(x, rows[::-1], columns)
    return costs.product(x, dz.shape, by_weight) + costs.product(x, (x.shape[1], x.shape[0]), dz.shape)


def _matmul_input_grad(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the first product of `_matmul_grad`."""
    w, dz = types
    flat = _flattens(dz, w)
    return 2 * LAUNCH_S * flat + costs.product(dz, _rows(dz) if flat else dz.shape, w.shape[::-1])


def _matmul_weight_grad(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the second product of `_matmul_grad`."""
    x, _, dz = types
    return 2 * LAUNCH_S * (len(x.shape) > 2) + costs.product(x, _rows(x)[::-1], _rows(dz))


def _linear(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the product and of the sum with the bias."""
    x, w, _ = types
    return _matmul(costs, (x, w), values) + costs.binary(x.shaped((_rows(x)[0], w.shape[1])))


def _gemm(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the product and, if there is a bias, of the sum with it.

    The factors may be transposed.
    """
    pairs = zip(types[:2], ("trans_a", "trans_b"), strict=True)
    x, w = (each.shape[::-1] if values[name] else each.shape for each, name in pairs)
    bias = costs.binary(types[0].shaped((x[0], w[1]))) if len(types) > 2 else 0.0
    return costs.product(types[0], x, w) + bias


def _layer_norm(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the nine ONNX operators of a layer norm.

    They are mean, difference, square, mean, sum with epsilon, root, quotient, product with the scale, and sum with the
    shift.
    """
    x, deviation = types[0], types[0].shaped((*types[0].shape[:-1], 1))
    return 2 * costs.unary(x) + 5 * costs.binary(x) + costs.binary(deviation) + costs.unary(deviation)


def _attention(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the ONNX operators of attention.

    They are the split of heads, scores, division, mask, softmax, sum of values, and the merge of heads.
    """
    q, k, v = types[:3]
    scores = q.shaped((q.shape[0], q.shape[2] // integer(values, "head_size", 1), q.shape[1], k.shape[1]))
    softmax = _masked_softmax(costs, (scores,), values)
    return _attention_product(costs, (q, k), scores) + softmax + _attention_product(costs, (v, q), scores)


def _attention_product(costs: DistIrCosts, moved: Types, scores: TensorType) -> float:
    """Return the seconds of one of the two products of attention.

    They include the reshapes and transposes of the two tensors in `moved`.
    """
    pair = scores.shape[:2]
    return 2 * LAUNCH_S + sum(map(costs.unary, moved)) + costs.product(scores, pair, pair)


def _masked_softmax(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the division, the mask and the softmax. The mask takes two slices and a product."""
    scores, mask = types[0], types[0].shaped((1, 1, *types[0].shape[2:]))
    masked = 2 * LAUNCH_S + 2 * costs.binary(scores) + costs.binary(mask) if values["causal"] else 0.0
    return costs.binary(scores) + masked + costs.unary(scores)


def _attention_scores(costs: DistIrCosts, types: Types, values: Values) -> float:
    q, k = types[:2]
    heads = q.shape[2] // integer(values, "head_size", 1)
    return _attention_product(costs, (q, k), q.shaped((q.shape[0], heads, q.shape[1], k.shape[1])))


def _attention_context(costs: DistIrCosts, types: Types, values: Values) -> float:
    weights, v = types[:2]
    batch, heads, queries, _ = weights.shape
    made = weights.shaped((batch, queries, heads * integer(values, "head_size", 1)))
    return _attention_product(costs, (v, made), weights)


def _attention_bias(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of `_attention`, plus those of the sum of scores and bias."""
    q, k = types[:2]
    heads = q.shape[2] // integer(values, "head_size", 1)
    scores = q.shaped((q.shape[0], heads, q.shape[1], k.shape[1]))
    return _attention(costs, types, {"causal": 0, **values}) + costs.binary(scores)


def _adam(costs: DistIrCosts, types: Types, values: Values) -> float:
    """Return the seconds of the step.

    Each weight needs three operators for the mean, four for the square, seven for the step, and one copy.
    """
    masters = integer(values, "masters")
    count = len(types) // (4 + masters)
    cast = sum(map(costs.unary, types[count : 2 * count])) if masters else 0.0
    return cast + sum(13 * costs.binary(each) + costs.unary(each) for each in types[-1 - 2 * count : -1 - count])


def _steps(unary: int = 0, binary: int = 0, launches: int = 0) -> OnOne:
    """Return a rule that counts `unary` operators of one tensor, `binary` operators of two, and further launches.

    All tensors have the size of the first input.
    """

    def rule(costs: DistIrCosts, types: Types, values: Values) -> float:
        return binary * costs.binary(types[0]) + unary * costs.unary(types[0]) + launches * LAUNCH_S

    return rule


_unary, _binary = _steps(unary=1), _steps(binary=1)
_gelu = _steps(1, 7)
"""Rule of GELU: half of x, its cube, a product, a sum, a product, tanh, a sum, a product."""
_cross_entropy = _steps(2, launches=1)
"""Rule of the loss: softmax, logarithm, gather."""


_rms_norm = _steps(1, 3, launches=2)
"""Rule of RMS norm.

It counts the square, its mean, a sum and a root of few numbers, a quotient, and a product with the scale.
"""


def _launch(costs: DistIrCosts, types: Types, values: Values) -> float:
    return LAUNCH_S


def _twice(forward: OnOne) -> OnOne:
    """Return a rule for a gradient: twice the cost of the forward operator.

    Its input types are those of the forward operator, followed by the output's gradient.
    """
    return lambda costs, types, values: 2 * forward(costs, types, values)


def _on_one(rule: OnOne) -> Rule:
    return lambda costs, types, outputs, values: {types[0].device: rule(costs, types, values)}


def _send(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    pair = types[0].device, outputs[0].device
    return dict.fromkeys(pair, types[0].bytes / costs.bandwidth(*pair))


def _collective(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    devices, count = [each.device for each in types], len(types)
    if count == 1:
        return {devices[0]: 0.0}
    bandwidth = mean(costs.bandwidth(*pair) for pair in combinations(devices, 2))
    return dict.fromkeys(devices, 2 * mean(each.bytes for each in types) * (count - 1) / count / bandwidth)


def _to_one(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    """Return the seconds for each sender, and for the receiver the longest of them.

    As in DistIR, the bytes are multiplied by the width of a number once more. A part that comes from the receiver
    itself overwrites the parts before it.
    """
    to, found = outputs[0].device, {outputs[0].device: 0.0}
    for each in types:
        found[each.device] = each.bytes * WIDTHS[each.dtype] / costs.bandwidth(each.device, to)
        found[to] = max(found[to], found[each.device])
    return found


def _free(costs: DistIrCosts, types: Types, outputs: Types, values: Values) -> DeviceSeconds:
    return {each.device: 0.0 for each in (*types, *outputs)}


_TWICE: Mapping[str, OnOne] = {
    **dict.fromkeys(("layer_norm", "layer_normalization"), _layer_norm),
    "rms_norm": _rms_norm,
    "gelu": _gelu,
    "cross_entropy": _cross_entropy,
    "attention": _attention,
    "attention_scores": _attention_scores,
    "masked_softmax": _masked_softmax,
    "attention_context": _attention_context,
    "attention_bias": _attention_bias,
    "embedding": _launch,
}
"""Rules of operators whose gradient costs twice as much."""

_ON_ONE: Mapping[str, OnOne] = {
    **{each.kind: _unary for each in (*UNARY, *REDUCTIONS, *NORMALIZATION)},
    **{each.kind: _binary for each in BINARY},
    **{each.kind: _binary for each in (*FUNCTION_GRADIENTS, *BINARY_GRADIENTS, *REDUCTION_GRADIENTS)},
    **{each.kind: _twice(_unary) for each in NORMALIZATION_GRADIENTS},
    **dict.fromkeys(("cast", "transpose", "relu", "loss", "loss_grad", "bias_grad"), _unary),
    **dict.fromkeys(("add", "add_in_place", "accumulate", "relu_grad", "bias"), _binary),
    **dict.fromkeys(("concat", "split", "chunk", "part", "slice", "unpack_qkv", "pack_qkv", "roll", "after"), _launch),
    "write": _launch,
    **_TWICE,
    **{f"{kind}_grad": _twice(rule) for kind, rule in _TWICE.items()},
    "gelu_erf": _steps(1, 4),  # The steps are a quotient, erf, a sum, a product and a halving.
    "gemm": _gemm,
    "matmul": _matmul,
    "matmul_transposed": lambda costs, types, values: _matmul(costs, (types[0], _turned(types[1])), values),
    "grouped_matmul": lambda costs, types, values: costs.product(types[0], types[0].shape, types[2].shape[1:]),
    "matmul_transposed_grad": lambda costs, types, values: _matmul_grad(
        costs, (types[0], _turned(types[1]), types[2]), values
    ),
    "grouped_matmul_grad": lambda costs, types, values: (
        costs.product(types[0], types[3].shape, types[2].shape[:0:-1])
        + costs.product(types[0], types[0].shape[::-1], types[3].shape)
    ),
    "grouped_matmul_input_grad": lambda costs, types, values: costs.product(
        types[2], types[2].shape, types[0].shape[:0:-1]
    ),
    "grouped_matmul_weight_grad": lambda costs, types, values: costs.product(
        types[0], types[0].shape[::-1], types[3].shape
    ),
    "matmul_grad": _matmul_grad,
    "matmul_input_grad": _matmul_input_grad,
    "matmul_weight_grad": _matmul_weight_grad,
    "sgd": lambda costs, types, values: costs.binary(types[len(types) // 2 - 1]),  # DistIR counts only the last weight.
    "adam": _adam,
    "linear": _linear,
    "residual": _steps(binary=2),
    "rotary": _steps(binary=3),
    "dropout": _unary,
    "dropout_grad": _binary,
}

RULES: Mapping[str, Rule] = {
    **{kind: _on_one(rule) for kind, rule in _ON_ONE.items()},
    **dict.fromkeys(("allreduce", "allgather", "allgather_in_place", "reduce_scatter"), _collective),
    **dict.fromkeys(("gather", "reduce"), _to_one),
    **dict.fromkeys(("identity", "broadcast", "scatter"), _free),
    **dict.fromkeys(("block", "delay"), lambda costs, *asked: stated_seconds(*asked)),
    "send": _send,
}
"""Rules by operator, with DistIR's errors.

A loss reads one tensor instead of two. Copies, broadcasts and scatters are free. Sends and collectives have no latency.
"""


def with_host(mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh with a host as device 0.

    The host is on its own node. Its links are as fast as the slowest link of the mesh. Raises InputError for a device
    without FLOP/s or memory bandwidth.
    """
    for device in mesh.devices:
        if not device.flops or device.memory_bandwidth is None:
            missing = "memory_bandwidth" if device.flops else "flops"
            raise InputError(f"device {device.name}", f"has no {missing}, from which times could be derived")
    slowest = min(mesh.links, key=lambda link: link.bandwidth, default=Link(1.0))
    nodes, names = {device.node for device in mesh.devices}, {device.name for device in mesh.devices}
    name = next(word for word in ("host", *(f"host{i}" for i in range(len(names)))) if word not in names)
    host = Device(name, name, max(nodes) + 1, None, mesh.devices[0].flops, mesh.devices[0].memory_bandwidth)
    return replace(mesh, devices=(host, *mesh.devices), default_link=mesh.default_link or slowest)
