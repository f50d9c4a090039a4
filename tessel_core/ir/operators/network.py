"""Operators of transformers besides attention: embedding, norm, activation, bias and loss, each with gradients.

Narrow formats are computed in fp32 and rounded once at the end, as frameworks do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.basic import product_flops
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    Work,
    alike,
    count,
    elementwise_work,
    integer,
    moved,
    need,
    one,
    read_work,
    rounded,
    same_device,
    wide,
)
from tessel_core.ir.operators.reductions import log_softmax_of
from tessel_core.ir.types import TensorType

NORM_EPSILON = 1e-5
"""Added to the variance [Radford 2019, GPT-2's published code]."""

_GELU_SCALE, _GELU_CUBE = float(np.sqrt(2 / np.pi)), 0.044715


def _is_integer(each: TensorType) -> bool:
    return each.dtype.startswith("int")


def _bias(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    same_device(types)
    x, b = types
    fits = x.dtype == b.dtype and 0 < len(b.shape) < len(x.shape) and x.shape[-len(b.shape) :] == b.shape
    need(fits, f"takes [.., n] and what is added to each [n], got {x} and {b}")
    return (x,)


def _bias_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    axes = integer(values, "axes", 1)
    need(axes < len(types[0].shape), f"sums over axes before the last {axes}, {types[0]} has none")
    return (types[0].shaped(types[0].shape[-axes:]),)


@rounded
def _bias_grad_compute(dz: Array, values: Values) -> Array:
    return np.asarray(dz.sum(axis=tuple(range(dz.ndim - integer(values, "axes", 1)))))


def _linear(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    same_device(types)
    x, w, b = types
    fits = len(w.shape) == 2 and x.shape[-1:] == w.shape[:1] and b == w.shaped(w.shape[1:]) and x.dtype == w.dtype
    need(fits and len(x.shape) > 1, f"takes [.., m, k], [k, n] and [n] of one dtype, got {x}, {w} and {b}")
    return (x.resized(len(x.shape) - 1, w.shape[1]),)


def _linear_work(types: Types, outputs: Types, values: Values) -> Work:
    """The product; the bias is added on the way out."""
    return Work(product_flops(types[0], types[1]), moved(types, outputs))


def _residual(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    alike(types[:2], values)
    return _bias(types[1:], values)


def _slope_of_tanh(x: Array) -> tuple[Array, Array]:
    """tanh of the tanh approximation's argument, and the argument's derivative."""
    tanh = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x**3))
    return tanh, _GELU_SCALE * (1 + 3 * _GELU_CUBE * x**2)


@rounded
def _gelu_compute(x: Array, values: Values) -> Array:
    return np.asarray(0.5 * x * (1 + _slope_of_tanh(x)[0]))


@rounded
def _gelu_grad_compute(x: Array, dz: Array, values: Values) -> Array:
    tanh, inner = _slope_of_tanh(x)
    return np.asarray((0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * inner) * dz)


def _layer_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    same_device(types)
    x, scale, shift = types
    fits = len(x.shape) > 0 and scale == shift == x.shaped(x.shape[-1:])
    need(fits, f"takes [.., n] with a scale and a shift of [n], got {', '.join(map(str, types))}")
    return (x,)


def _normal(x: Array) -> tuple[Array, Array]:
    """Mean 0 and variance 1 along the last axis, and what was divided by."""
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + NORM_EPSILON)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation, deviation


@rounded
def _layer_norm_compute(x: Array, scale: Array, shift: Array, values: Values) -> Array:
    return _normal(x)[0] * scale + shift


def _layer_norm_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    _layer_norm((types[0], types[1], types[1]), values)
    need(types[2] == types[0], f"takes the gradient of the output, {types[0]}, got {types[2]}")
    return types[0], types[1], types[1]


@rounded
def _layer_norm_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    normal, deviation = _normal(x)
    rows = tuple(range(x.ndim - 1))
    by_normal = dz * scale
    centred = by_normal - by_normal.mean(axis=-1, keepdims=True)
    by_input = (centred - normal * (by_normal * normal).mean(axis=-1, keepdims=True)) / deviation
    return by_input, (dz * normal).sum(axis=rows), dz.sum(axis=rows)


def _embedding(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    same_device(types)
    table, rows = types
    fits = len(table.shape) == 2 and _is_integer(rows)
    need(fits, f"takes a table [rows, n] and row numbers, got {table} and {rows}")
    return (table.shaped((*rows.shape, table.shape[-1])),)


def _checked(rows: Array, table: Array) -> Array:
    outside = rows[(rows < 0) | (rows >= len(table))]
    if outside.size:
        raise InputError("embedding", f"row {outside.flat[0]} is not in the table, which has {len(table)}")
    return rows


def _embedding_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [arrays[0][_checked(arrays[1], arrays[0])]]


def _embedding_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(0.0, float(types[1].bytes + 2 * outputs[0].bytes))


def _embedding_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    (out,) = _embedding(types[:2], values)
    need(types[2] == out, f"takes the gradient of the output, {out}, got {types[2]}")
    return (types[0],)


def _embedding_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    table, rows, dz = arrays
    found = np.zeros_like(wide(table))
    np.add.at(found, _checked(rows, table), wide(dz))
    return [found.astype(table.dtype)]


def _embedding_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """The whole gradient is filled with zeros; rows that are hit are read and written."""
    _, rows, dz = types
    return Work(float(dz.elements), float(rows.bytes + 3 * dz.bytes + outputs[0].bytes))


def _predictions(types: Types) -> tuple[TensorType, TensorType]:
    count(types, 3)
    same_device(types)
    logits, targets, number = types
    fits = len(logits.shape) > 0 and targets.shape == logits.shape[:-1] and _is_integer(targets)
    need(fits, f"takes [.., n] and a class for each of its rows, got {logits} and {targets}")
    need(number.shape == () and _is_integer(number), f"takes the number of predictions as int32[], got {number}")
    return logits, targets


def _cross_entropy(types: Types, values: Values) -> tuple[TensorType, ...]:
    logits, targets = _predictions(types)
    return (logits.shaped(targets.shape),)


def _cross_entropy_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    return (_predictions(types)[0],)


def _cross_entropy_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, targets, number = arrays
    found = np.take_along_axis(log_softmax_of(wide(arrays[0]), (-1,)), targets[..., None], axis=-1)[..., 0]
    return [(-found / number).astype(logits.dtype)]


def _cross_entropy_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, targets, number = arrays
    slope = np.exp(log_softmax_of(wide(arrays[0]), (-1,)))
    hit = np.take_along_axis(slope, targets[..., None], axis=-1)
    np.put_along_axis(slope, targets[..., None], hit - 1, axis=-1)
    return [(slope / number).astype(logits.dtype)]


NETWORK = (
    Operator("linear", _linear, lambda arrays, values: [arrays[0] @ arrays[1] + arrays[2]], _linear_work),
    Operator("residual", _residual, lambda a, values: [a[0] + (a[1] + a[2])], elementwise_work(2.0)),
    Operator("bias", _bias, lambda arrays, values: [arrays[0] + arrays[1]], elementwise_work()),
    Operator("bias_grad", _bias_grad, _bias_grad_compute, read_work(1.0), ("axes",)),
    Operator("gelu", one, _gelu_compute, elementwise_work(9.0)),
    Operator("gelu_grad", alike, _gelu_grad_compute, elementwise_work(18.0)),
    Operator("layer_norm", _layer_norm, _layer_norm_compute, elementwise_work(8.0)),
    Operator("layer_norm_grad", _layer_norm_grad, _layer_norm_grad_compute, elementwise_work(16.0)),
    Operator("embedding", _embedding, _embedding_compute, _embedding_work),
    Operator("embedding_grad", _embedding_grad, _embedding_grad_compute, _embedding_grad_work),
    Operator("cross_entropy", _cross_entropy, _cross_entropy_compute, read_work(5.0)),
    Operator("cross_entropy_grad", _cross_entropy_grad, _cross_entropy_grad_compute, read_work(6.0)),
)
"""`linear` is a product and a bias, `residual` a stream and what is added to it with its bias.  `bias` adds a tensor to
each of several, and the gradient of one with so many `axes` is their sum.  GELU by its tanh approximation [Hendrycks
2016].  `cross_entropy` of each prediction over their number in the whole batch, so that sums over micro-batches and
replicas are the batch's."""
