"""Operators that normalise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, rounded, wide
from tessel_core.execution.torch_operators.reductions import along
from tessel_core.ir.operators.attributes import axes_of, number
from tessel_core.ir.operators.normalization import RMS_EPSILON
from tessel_core.ir.operators.operator import Values


def _mean(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return along(lambda each, dim, keep: each.mean(dim, keepdim=keep), x, axes, True)


def _normal(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor]:
    """Mean 0 and variance 1 along axes, and what was divided by."""
    centred = x - _mean(x, axes)
    deviation = (_mean(centred**2, axes) + epsilon).sqrt()
    return centred / deviation, deviation


def _normal_slope(normal: Tensor, deviation: Tensor, by_normal: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The gradient of a tensor from that of its normal form."""
    return (by_normal - _mean(by_normal, axes) - normal * _mean(by_normal * normal, axes)) / deviation


@rounded
def _layer_normalization(x: Tensor, scale: Tensor, *rest: Any) -> Tensor:
    *shift, values = rest
    found = _normal(x, axes_of(values, x.ndim), number(values, "epsilon"))[0] * scale
    return found + shift[0] if shift else found


@rounded
def _layer_normalization_grad(x: Tensor, scale: Tensor, dz: Tensor, values: Values) -> tuple[Tensor, ...]:
    axes = axes_of(values, x.ndim)
    normal, deviation = _normal(x, axes, number(values, "epsilon"))
    return _normal_slope(normal, deviation, dz * scale, axes), (dz * normal).sum_to_size(scale.shape)


def _root(x: Tensor) -> Tensor:
    return (x.square().mean(dim=-1, keepdim=True) + RMS_EPSILON).sqrt()


@rounded
def _rms_norm(x: Tensor, scale: Tensor, values: Values) -> Tensor:
    return x / _root(x) * scale


@rounded
def _rms_norm_grad(x: Tensor, scale: Tensor, dz: Tensor, values: Values) -> tuple[Tensor, ...]:
    root, by_normal = _root(x), dz * scale
    normal = x / root
    by_input = (by_normal - normal * (by_normal * normal).mean(dim=-1, keepdim=True)) / root
    return by_input, (dz * normal).sum_to_size(scale.shape)


def _of_channels(each: Tensor, x: Tensor) -> Tensor:
    """One number for each channel, so that it broadcasts over the tensor."""
    return each.reshape(-1, *[1] * (x.ndim - 2))


def _other_axes(x: Tensor) -> tuple[int, ...]:
    """All but that of channels."""
    return (0, *range(2, x.ndim))


@rounded
def _batch_norm(x: Tensor, *rest: Any) -> Tensor:
    *statistics, values = rest
    scale, shift, mean, variance = (_of_channels(each, x) for each in statistics)
    return (x - mean) / (variance + number(values, "epsilon")).sqrt() * scale + shift


def _batch_norm_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, dz = wide(tensors[0]), wide(tensors[5])
    scale, _, mean, variance = (_of_channels(wide(each), x) for each in tensors[1:5])
    deviation, axes = (variance + number(values, "epsilon")).sqrt(), _other_axes(x)
    normal, by_input = (x - mean) / deviation, dz * (scale / deviation)
    by_mean, by_variance = -by_input.sum(dim=axes), -(by_input * normal / (2 * deviation)).sum(dim=axes)
    found = by_input, (dz * normal).sum(dim=axes), dz.sum(dim=axes), by_mean, by_variance
    return [each.to(like.dtype) for each, like in zip(found, tensors, strict=False)]


@rounded
def _batch_norm_training(x: Tensor, scale: Tensor, shift: Tensor, values: Values) -> Tensor:
    normal, _ = _normal(x, _other_axes(x), number(values, "epsilon"))
    return normal * _of_channels(scale, x) + _of_channels(shift, x)


@rounded
def _batch_norm_training_grad(x: Tensor, scale: Tensor, dz: Tensor, values: Values) -> tuple[Tensor, ...]:
    axes = _other_axes(x)
    normal, deviation = _normal(x, axes, number(values, "epsilon"))
    by_input = _normal_slope(normal, deviation, dz * _of_channels(scale, x), axes)
    return by_input, (dz * normal).sum(dim=axes), dz.sum(dim=axes)


NORMALIZATION: dict[str, Meaning] = {
    "layer_normalization": _layer_normalization,
    "layer_normalization_grad": _layer_normalization_grad,
    "rms_norm": _rms_norm,
    "rms_norm_grad": _rms_norm_grad,
    "batch_norm": _batch_norm,
    "batch_norm_grad": _batch_norm_grad,
    "batch_norm_training": _batch_norm_training,
    "batch_norm_training_grad": _batch_norm_training_grad,
}
