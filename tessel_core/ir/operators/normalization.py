"""Normalization over any axes, per channel of a batch, or by the root mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessel_core.ir.operators.arrays import in_format, namespace, rounded, wide
from tessel_core.ir.operators.attributes import axes_of, number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, need
from tessel_core.ir.operators.reductions import mean_of, sum_of
from tessel_core.ir.operators.rules import broadcast, same_device, summed_to, together, with_gradient
from tessel_core.ir.operators.work import elementwise_work, read_work
from tessel_core.ir.types import TensorType

NORM_EPSILON = 1e-5
"""Number added to the variance by `layer_norm` [Radford 2019, GPT-2's published code]."""
RMS_EPSILON = 1e-6
"""Number added to the mean square before its root is taken [Zhang 2019; Touvron 2023, LLaMA's published code]."""


def _normal(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    """Return the tensor, normalized to mean 0 and variance 1 along `axes`, and its standard deviation."""
    centred = x - mean_of(x, axes, True)
    deviation = namespace(x).sqrt(mean_of(centred**2, axes, True) + epsilon)
    return centred / deviation, deviation


def _normal_slope(normal: Array, deviation: Array, by_normal: Array, axes: tuple[int, ...]) -> Array:
    """Return the gradient of a tensor, given the gradient of its normalized form."""
    centred = by_normal - mean_of(by_normal, axes, True)
    return (centred - normal * mean_of(by_normal * normal, axes, True)) / deviation


def _summed_like(array: Array, like: Array) -> Array:
    """Sum the array over the axes along which `like` was broadcast."""
    lead = array.ndim - like.ndim
    repeated = (lead + axis for axis, size in enumerate(like.shape) if size == 1)
    return sum_of(array, (*range(lead), *repeated), True).reshape(like.shape)


def _layer_normalization(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (2, 3), f"needs a tensor, its scale and optionally a shift, got {len(types)} inputs")
    same_device(types)
    x, *rest = types
    axes_of(values, len(x.shape))
    number(values, "epsilon")
    fits = all(each.dtype == x.dtype and broadcast([x, each]) == x.shape for each in rest)
    need(fits, f"needs scale and shift that fit the tensor, got {', '.join(map(str, types))}")
    return (x,)


@rounded
def _layer_normalization_compute(x: Array, scale: Array, *rest: Any) -> Array:
    *shift, values = rest
    found = _normal(x, axes_of(values, x.ndim), number(values, "epsilon"))[0] * scale
    return found + shift[0] if shift else found


@rounded
def _layer_normalization_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    axes = axes_of(values, x.ndim)
    normal, deviation = _normal(x, axes, number(values, "epsilon"))
    return _normal_slope(normal, deviation, dz * scale, axes), _summed_like(dz * normal, scale)


def _layer_normalization_gradients(back: Reverse) -> list[int | None]:
    found = back.add("layer_normalization_grad", (*back.inputs[:2], back.gradient), **back.values)
    return [*found, *(summed_to(back, back.gradient, 2) for _ in back.inputs[2:])]


def _layer_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, scale, shift = together(types, 3)
    fits = len(x.shape) > 0 and scale == shift == x.shaped(x.shape[-1:])
    need(fits, f"needs [.., n] with a scale and a shift of [n], got {', '.join(map(str, types))}")
    return (x,)


@rounded
def _layer_norm_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    normal, deviation = _normal(x, (-1,), NORM_EPSILON)
    by_input = _normal_slope(normal, deviation, dz * scale, (-1,))
    return by_input, _summed_like(dz * normal, scale), _summed_like(dz, scale)


def _rms_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, scale = together(types, 2)
    fits = len(x.shape) > 0 and scale == x.shaped(x.shape[-1:])
    need(fits, f"needs [.., n] with a scale of [n], got {x} and {scale}")
    return (x,)


def _root(x: Array) -> Array:
    return namespace(x).sqrt(mean_of(x**2, (-1,), True) + RMS_EPSILON)


@rounded
def _rms_norm_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    root, by_normal = _root(x), dz * scale
    normal = x / root
    by_input = (by_normal - normal * mean_of(by_normal * normal, (-1,), True)) / root
    return by_input, _summed_like(dz * normal, scale)


def _batch_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, *rest = together(types, 5)
    number(values, "epsilon")
    fits = len(x.shape) > 1 and all(each.shape == x.shape[1:2] for each in rest)
    given = ", ".join(map(str, types))
    need(fits, f"needs [n, channels, ..], then scale, shift, mean and variance of channels, got {given}")
    return (x,)


def _of_channels(each: Array, x: Array) -> Array:
    """Reshape an array of one number per channel so that it broadcasts over the tensor."""
    return each.reshape(-1, *[1] * (x.ndim - 2))


@rounded
def _batch_norm_compute(x: Array, *rest: Any) -> Array:
    *statistics, values = rest
    scale, shift, mean, variance = (_of_channels(each, x) for each in statistics)
    return (x - mean) / namespace(x).sqrt(variance + number(values, "epsilon")) * scale + shift


def _other_axes(x: Array) -> tuple[int, ...]:
    """Return all axes but the channel axis."""
    return (0, *range(2, x.ndim))


def _batch_norm_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, dz = wide(arrays[0]), wide(arrays[5])
    scale, _, mean, variance = (_of_channels(wide(each), x) for each in arrays[1:5])
    deviation, axes = namespace(x).sqrt(variance + number(values, "epsilon")), _other_axes(x)
    normal = (x - mean) / deviation
    by_input = dz * (scale / deviation)
    by_scale, by_shift = (dz * normal).sum(axis=axes), dz.sum(axis=axes)
    by_mean, by_variance = -by_input.sum(axis=axes), -(by_input * normal / (2 * deviation)).sum(axis=axes)
    found = by_input, by_scale, by_shift, by_mean, by_variance
    return [in_format(each, like) for each, like in zip(found, arrays, strict=False)]


def _batch_norm_training(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, scale, shift = together(types, 3)
    number(values, "epsilon")
    fits = len(x.shape) > 1 and scale == shift == x.shaped(x.shape[1:2])
    need(fits, f"needs [n, channels, ..], then scale and shift of channels, got {', '.join(map(str, types))}")
    return (x,)


@rounded
def _batch_norm_training_compute(x: Array, scale: Array, shift: Array, values: Values) -> Array:
    normal, _ = _normal(x, _other_axes(x), number(values, "epsilon"))
    return normal * _of_channels(scale, x) + _of_channels(shift, x)


@rounded
def _batch_norm_training_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    axes = _other_axes(x)
    normal, deviation = _normal(x, axes, number(values, "epsilon"))
    by_input = _normal_slope(normal, deviation, dz * _of_channels(scale, x), axes)
    return by_input, (dz * normal).sum(axis=axes), dz.sum(axis=axes)


_NORMS = (
    with_gradient(
        Operator(
            "layer_normalization",
            _layer_normalization,
            _layer_normalization_compute,
            read_work(8.0),
            ("axes", "epsilon"),
            gradient=_layer_normalization_gradients,
        ),
        range(2),
        _layer_normalization_grad_compute,
        read_work(16.0),
    ),
    with_gradient(
        Operator(
            "layer_norm",
            _layer_norm,
            rounded(lambda x, scale, shift, values: _normal(x, (-1,), NORM_EPSILON)[0] * scale + shift),
            elementwise_work(8.0),
            statistics=lambda types, values: 8 * types[0].elements / types[0].shape[-1],  # Mean and deviation, in fp32.
        ),
        (0, 1, 1),
        _layer_norm_grad_compute,
        elementwise_work(16.0),
    ),
    with_gradient(
        Operator(
            "rms_norm",
            _rms_norm,
            rounded(lambda x, scale, values: x / _root(x) * scale),
            elementwise_work(4.0),
            statistics=lambda types, values: 4 * types[0].elements / types[0].shape[-1],  # Roots of mean squares, fp32.
        ),
        range(2),
        _rms_norm_grad_compute,
        elementwise_work(10.0),
    ),
    with_gradient(
        Operator("batch_norm", _batch_norm, _batch_norm_compute, read_work(2.0), ("epsilon",)),
        range(5),
        _batch_norm_grad_compute,
        read_work(8.0),
    ),
    with_gradient(
        Operator(
            "batch_norm_training",
            _batch_norm_training,
            _batch_norm_training_compute,
            read_work(8.0),
            ("epsilon",),
            statistics=lambda types, values: 8 * types[0].shape[1],  # Mean and deviation of the channels, in fp32.
        ),
        (0, 1, 1),
        _batch_norm_training_grad_compute,
        read_work(16.0),
    ),
)

NORMALIZATION = tuple(norm for norm, _ in _NORMS)
"""Operators of normalization.

`layer_normalization` normalizes over any axes with any epsilon. `layer_norm` normalizes over the last axis with a fixed
epsilon. `rms_norm` also normalizes over the last axis [Zhang 2019].
`batch_norm` gets the statistics as inputs, as in inference, and `batch_norm_training` computes them from the batch.
"""

NORMALIZATION_GRADIENTS = tuple(gradient for _, gradient in _NORMS)
"""Gradients of the norms. Inputs are the tensor, its scale and the output's gradient.

`batch_norm_grad` also needs all other inputs of the forward pass.
"""
