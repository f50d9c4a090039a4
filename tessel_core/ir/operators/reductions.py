"""Operators that look along axes: sums, products, extremes and softmax.

Narrow formats are computed in fp32 and rounded once at the end.  FLOPs as the steps of the definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tessel_core.ir.operators.attributes import axes_of, integer
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    GradientRule,
    Operator,
    Reverse,
    Types,
    Values,
    need,
    rounded,
    wide,
)
from tessel_core.ir.operators.rules import alike, count, elementwise_work, kept, one, read_work, spread
from tessel_core.ir.types import TensorType

_ALONG = ("axes", "keep")

Reduction = Callable[..., Array]


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = types[0].shape
    axes, keep = axes_of(values, len(shape)), integer(values, "keep")
    need(keep in (0, 1), f"keep must be 0 or 1, got {keep}")
    left = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
    return (types[0].shaped(tuple(left)),)


def _reduction(kind: str, flops: float, function: Reduction, gradient: GradientRule) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        (x,) = arrays
        given = wide(x) if x.dtype.kind == "f" else x
        found = function(given, axis=axes_of(values, x.ndim), keepdims=bool(values["keep"]))
        return [np.asarray(found).astype(x.dtype)]

    return Operator(kind, _reduce, compute, read_work(flops), _ALONG, gradient=gradient)


def _reduce_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    (made,) = _reduce(types[:1], values)
    need(types[1] == made, f"takes the gradient of the output, {made}, got {types[1]}")
    return (types[0],)


def _reduction_gradient(kind: str, function: Callable[[Array, Array, tuple[int, ...]], Array]) -> Operator:
    """Of the input, the gradient with the axes that the reduction leaves out, and the axes."""

    @rounded
    def compute(x: Array, dz: Array, values: Values) -> Array:
        axes = axes_of(values, x.ndim)
        return function(x, dz.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)]), axes)

    return Operator(kind, _reduce_grad, compute, read_work(3.0), _ALONG)


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


def _shared(hit: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    """The gradient in equal parts for the places that are hit."""
    return np.asarray(hit * (dz / hit.sum(axis=axes, keepdims=True)))


def _max_slope(x: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    return _shared(x == largest_of(x, axes, keepdims=True), dz, axes)


def _min_slope(x: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    return _shared(x == _least_of(x, axes, keepdims=True), dz, axes)


def _prod_slope(x: Array, dz: Array, axes: tuple[int, ...]) -> Array:
    """Times the product of the others: of those before and those after, so that zeros do no harm."""
    ends = tuple(range(x.ndim - len(axes), x.ndim))
    moved = np.moveaxis(x, axes, ends)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], math.prod(moved.shape[x.ndim - len(axes) :]))
    one_more = np.ones_like(rows[..., :1])
    before = np.cumprod(np.concatenate([one_more, rows[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([one_more, rows[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    others = (before * after)[..., : rows.shape[-1]].reshape(moved.shape)
    return np.asarray(np.moveaxis(others, ends, axes) * dz)


def _sum_gradient(back: Reverse) -> list[int | None]:
    return [spread(back, kept(back, back.gradient), axes_of(back.values, len(back.types[0].shape)))]


def _mean_gradient(back: Reverse) -> list[int | None]:
    shape = back.types[0].shape
    axes = axes_of(back.values, len(shape))
    share = back.one("scale", back.gradient, by=1 / max(math.prod(shape[axis] for axis in axes), 1))
    return [spread(back, kept(back, share), axes)]


def _square_gradient(back: Reverse) -> list[int | None]:
    return [back.one("mul", back.inputs[0], kept(back, back.one("scale", back.gradient, by=2.0)))]


def _length_gradient(back: Reverse) -> list[int | None]:
    """The input over its length."""
    return [back.one("mul", back.inputs[0], kept(back, back.one("div", back.gradient, back.outputs[0])))]


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


def _softmax_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    axes_of(values, len(types[0].shape) if types else 0)
    return alike(types, values)


@rounded
def _softmax_grad_compute(z: Array, dz: Array, values: Values) -> Array:
    return np.asarray(z * (dz - (z * dz).sum(axis=axes_of(values, z.ndim), keepdims=True)))


@rounded
def _log_softmax_grad_compute(z: Array, dz: Array, values: Values) -> Array:
    return np.asarray(dz - np.exp(z) * dz.sum(axis=axes_of(values, z.ndim), keepdims=True))


def _own(kind: str) -> GradientRule:
    """The operator of that kind, of the input and the gradient of the output."""
    return lambda back: [back.one(kind, back.inputs[0], back.gradient, **back.values)]


def _own_of_output(kind: str) -> GradientRule:
    """The operator of that kind, of the output and its gradient."""
    return lambda back: [back.one(kind, back.outputs[0], back.gradient, **back.values)]


REDUCTIONS = (
    _reduction("reduce_sum", 1.0, np.sum, _sum_gradient),
    _reduction("reduce_mean", 1.0, np.mean, _mean_gradient),
    _reduction("reduce_max", 1.0, largest_of, _own("reduce_max_grad")),
    _reduction("reduce_min", 1.0, _least_of, _own("reduce_min_grad")),
    _reduction("reduce_prod", 1.0, np.prod, _own("reduce_prod_grad")),
    _reduction("reduce_sum_square", 2.0, _square_sum, _square_gradient),
    _reduction("reduce_l2", 2.0, lambda x, axis, keepdims: np.sqrt(_square_sum(x, axis, keepdims)), _length_gradient),
    Operator(
        "softmax",
        _softmax,
        _softmax_compute,
        elementwise_work(5.0),
        ("axes",),
        gradient=_own_of_output("softmax_grad"),
    ),
    Operator(
        "log_softmax",
        _softmax,
        _log_softmax_compute,
        elementwise_work(5.0),
        ("axes",),
        gradient=_own_of_output("log_softmax_grad"),
    ),
)
"""`softmax` over all of its axes together."""

REDUCTION_GRADIENTS = (
    _reduction_gradient("reduce_max_grad", _max_slope),
    _reduction_gradient("reduce_min_grad", _min_slope),
    _reduction_gradient("reduce_prod_grad", _prod_slope),
    Operator("softmax_grad", _softmax_grad, _softmax_grad_compute, elementwise_work(4.0), ("axes",)),
    Operator("log_softmax_grad", _softmax_grad, _log_softmax_grad_compute, elementwise_work(4.0), ("axes",)),
)
"""Numbers that are equally large share the gradient of their maximum, as in PyTorch.  Gradients of softmaxes take the
output."""
