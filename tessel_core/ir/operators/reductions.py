"""Operators that look along axes: sums and means, softmax, and normalisation over axes or over a batch's statistics.

Narrow formats are computed in fp32 and rounded once at the end.  FLOPs as the steps of the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    axes_of,
    broadcast,
    count,
    elementwise_work,
    integer,
    need,
    number,
    one,
    read_work,
    rounded,
    same_device,
    wide,
)
from tessel_core.ir.types import TensorType

Reduction = Callable[..., Array]


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = types[0].shape
    axes, keep = axes_of(values, len(shape)), integer(values, "keep")
    need(keep in (0, 1), f"keep must be 0 or 1, got {keep}")
    left = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
    return (types[0].shaped(tuple(left)),)


def _reduction(kind: str, flops: float, function: Reduction) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        (x,) = arrays
        given = wide(x) if x.dtype.kind == "f" else x
        found = function(given, axis=axes_of(values, x.ndim), keepdims=bool(values["keep"]))
        return [np.asarray(found).astype(x.dtype)]

    return Operator(kind, _reduce, compute, read_work(flops), ("axes", "keep"))


def end_of(x: Array, *, largest: bool) -> float | int | bool:
    """The least or largest number of a format, which is what an empty minimum or maximum is."""
    if x.dtype.kind == "b":
        return largest
    if x.dtype.kind == "f":
        return np.inf if largest else -np.inf
    limits = np.iinfo(x.dtype)
    return int(limits.max if largest else limits.min)


def largest_of(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """The maximum along axes, also of nothing."""
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims, initial=end_of(x, largest=False)))


def _least_of(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims, initial=end_of(x, largest=True)))


def _square_sum(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray((x * x).sum(axis=axis, keepdims=keepdims))


def _softmax(types: Types, values: Values) -> tuple[TensorType, ...]:
    axes_of(values, len(types[0].shape) if types else 0)
    return one(types, values)


def log_softmax_of(x: Array, axes: tuple[int, ...]) -> Array:
    """The logarithm of the softmax over all of the axes together."""
    shifted = x - largest_of(x, axes, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axes, keepdims=True)))


@rounded
def _log_softmax_compute(x: Array, values: Values) -> Array:
    return log_softmax_of(x, axes_of(values, x.ndim))


@rounded
def _softmax_compute(x: Array, values: Values) -> Array:
    return np.asarray(np.exp(log_softmax_of(x, axes_of(values, x.ndim))))


def _layer_normalization(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (2, 3), f"takes a tensor, its scale and perhaps a shift, got {len(types)} inputs")
    same_device(types)
    x, *rest = types
    axes_of(values, len(x.shape))
    number(values, "epsilon")
    fits = all(each.dtype == x.dtype and broadcast([x, each]) == x.shape for each in rest)
    need(fits, f"takes scale and shift that fit the tensor, got {', '.join(map(str, types))}")
    return (x,)


@rounded
def _layer_normalization_compute(x: Array, scale: Array, *rest: Any) -> Array:
    *shift, values = rest
    axes = axes_of(values, x.ndim)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + number(values, "epsilon"))
    found = (x - x.mean(axis=axes, keepdims=True)) / deviation * scale
    return np.asarray(found + shift[0] if shift else found)


def _batch_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 5)
    same_device(types)
    number(values, "epsilon")
    x, *rest = types
    fits = len(x.shape) > 1 and all(each.shape == x.shape[1:2] for each in rest)
    given = ", ".join(map(str, types))
    need(fits, f"takes [n, channels, ..], then scale, shift, mean and variance of channels, got {given}")
    return (x,)


@rounded
def _batch_norm_compute(x: Array, *rest: Any) -> Array:
    *statistics, values = rest
    scale, shift, mean, variance = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in statistics)
    return np.asarray((x - mean) / np.sqrt(variance + number(values, "epsilon")) * scale + shift)


_NORMALIZATION = ("axes", "epsilon")

REDUCTIONS = (
    _reduction("reduce_sum", 1.0, np.sum),
    _reduction("reduce_mean", 1.0, np.mean),
    _reduction("reduce_max", 1.0, largest_of),
    _reduction("reduce_min", 1.0, _least_of),
    _reduction("reduce_prod", 1.0, np.prod),
    _reduction("reduce_sum_square", 2.0, _square_sum),
    _reduction("reduce_l2", 2.0, lambda x, axis, keepdims: np.sqrt(_square_sum(x, axis, keepdims))),
    Operator("softmax", _softmax, _softmax_compute, elementwise_work(5.0), ("axes",)),
    Operator("log_softmax", _softmax, _log_softmax_compute, elementwise_work(5.0), ("axes",)),
    Operator("layer_normalization", _layer_normalization, _layer_normalization_compute, read_work(8.0), _NORMALIZATION),
    Operator("batch_norm", _batch_norm, _batch_norm_compute, read_work(2.0), ("epsilon",)),
)
"""`softmax` over all of its axes together; `layer_normalization` over any axes with any epsilon, where `layer_norm` is
that of transformers; `batch_norm` with statistics that are known, as in inference."""
