"""Operators that look along axes or through windows: sums, softmax, normalisation, convolutions and pools.

Narrow formats are computed in fp32 and rounded once at the end.  FLOPs as the steps of the definitions.  Windows move
over tensors [n, channels, sizes ..], as ONNX has them; `pads` are those before each spatial axis, then those after."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tessel_core.ir.operators.attributes import axes_of, integer, integers, number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, Work, need, rounded, wide
from tessel_core.ir.operators.rules import (
    broadcast,
    count,
    elementwise_work,
    moved,
    one,
    read_work,
    same_device,
    together,
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
    x, *rest = together(types, 5)
    number(values, "epsilon")
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


_STEPS = ("dilations", "pads", "strides")


def _swept(x: TensorType, kernel: tuple[int, ...], values: Values) -> tuple[int, ...]:
    """How many places a window has along each spatial axis."""
    sizes = x.shape[2:]
    dilations, strides, pads = (
        integers(values, name, least) for name, least in (("dilations", 1), ("strides", 1), ("pads", 0))
    )
    fits = len(sizes) == len(kernel) == len(dilations) == len(strides) == len(pads) / 2 > 0 and min(kernel) > 0
    need(fits, f"takes [n, channels, sizes ..], a kernel, dilations and strides of as many axes, got {x} and {kernel}")
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    room = [size + before + after for size, before, after in zip(sizes, pads, pads[len(sizes) :], strict=False)]
    inside = all(a <= b for a, b in zip(reach, room, strict=True))
    need(inside, f"its window {tuple(reach)} is larger than {x} with pads")
    return tuple((b - a) // stride + 1 for a, b, stride in zip(reach, room, strides, strict=True))


def _windows(x: Array, kernel: tuple[int, ...], values: Values, fill: float) -> Array:
    """[n, channels, places .., kernel ..]."""
    dilations, strides, pads = (integers(values, name) for name in ("dilations", "strides", "pads"))
    spatial = len(kernel)
    pairs = [(0, 0), (0, 0), *zip(pads, pads[spatial:], strict=False)]
    padded = np.pad(x, pairs, constant_values=np.asarray(fill).astype(x.dtype))
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
    seen = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + spatial)))
    steps = (slice(None, None, step) for step in (*strides, *dilations))
    return np.asarray(seen[(slice(None), slice(None), *steps)])


def _conv(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (2, 3), f"takes a tensor, a kernel and perhaps a bias, got {len(types)} inputs")
    same_device(types)
    x, w, *bias = types
    groups = integer(values, "groups", 1)
    fits = len(x.shape) == len(w.shape) > 2 and x.dtype == w.dtype and x.shape[1] == groups * w.shape[1]
    fits = fits and w.shape[0] % groups == 0 and all(each == x.shaped(w.shape[:1]) for each in bias)
    need(fits, f"takes [n, c, ..], [m, c / {groups}, ..] and perhaps [m], got {', '.join(map(str, types))}")
    return (x.shaped((x.shape[0], w.shape[0], *_swept(x, w.shape[2:], values))),)


@rounded
def _conv_compute(x: Array, w: Array, *rest: Any) -> Array:
    *bias, values = rest
    groups, spatial = integer(values, "groups"), w.ndim - 2
    seen = np.split(_windows(x, w.shape[2:], values, 0.0), groups, axis=1)
    inner = [1, *range(2 + spatial, 2 + 2 * spatial)], [1, *range(2, 2 + spatial)]
    parts = (np.tensordot(a, b, inner) for a, b in zip(seen, np.split(w, groups), strict=True))
    made = np.moveaxis(np.concatenate(list(parts), axis=-1), -1, 1)
    return np.asarray(made + bias[0].reshape(-1, *[1] * spatial) if bias else made)


def _conv_work(types: Types, outputs: Types, values: Values) -> Work:
    each = 2 * math.prod(types[1].shape[1:]) + (len(types) > 2)
    return Work(float(outputs[0].elements * each), moved(types, outputs))


def _pool(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return (types[0].shaped((*types[0].shape[:2], *_swept(types[0], integers(values, "kernel"), values))),)


def _pool_work(types: Types, outputs: Types, values: Values) -> Work:
    """Each number made looks at a whole window."""
    return Work(float(outputs[0].elements * math.prod(integers(values, "kernel"))), moved(types, outputs))


def _max_pool_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,), kernel = arrays, integers(values, "kernel")
    return [_windows(x, kernel, values, end_of(x, largest=False)).max(axis=tuple(range(-len(kernel), 0)))]


@rounded
def _average_pool_compute(x: Array, values: Values) -> Array:
    kernel = integers(values, "kernel")
    last = tuple(range(-len(kernel), 0))
    total = _windows(x, kernel, values, 0.0).sum(axis=last)
    inside = np.ones((1, 1, *x.shape[2:]))
    return np.asarray(total / _windows(inside, kernel, values, float(integer(values, "count_pads"))).sum(axis=last))


def _average_pool(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(integer(values, "count_pads") in (0, 1), f"count_pads must be 0 or 1, got {values['count_pads']}")
    return _pool(types, values)


def _global(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    need(len(types[0].shape) > 2, f"takes [n, channels, sizes ..], got {types[0]}")
    return (types[0].shaped((*types[0].shape[:2], *[1] * (len(types[0].shape) - 2))),)


def _global_pool(kind: str, function: Callable[..., Array]) -> Operator:
    @rounded
    def compute(x: Array, values: Values) -> Array:
        return function(x, axis=tuple(range(2, x.ndim)), keepdims=True)

    return Operator(kind, _global, compute, read_work(1.0))


WINDOWS = (
    Operator("conv", _conv, _conv_compute, _conv_work, ("groups", *_STEPS)),
    Operator("max_pool", _pool, _max_pool_compute, _pool_work, ("kernel", *_STEPS)),
    Operator("average_pool", _average_pool, _average_pool_compute, _pool_work, ("count_pads", "kernel", *_STEPS)),
    _global_pool("global_average_pool", np.mean),
    _global_pool("global_max_pool", largest_of),
)
"""`count_pads` says whether a mean counts the pads."""
