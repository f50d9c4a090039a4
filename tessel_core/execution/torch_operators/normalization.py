"""Operators that normalise."""

from __future__ import annotations

from typing import Any

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, gradient_of, rounded
from tessel_core.execution.torch_operators.reductions import along
from tessel_core.ir.operators.attributes import axes_of, number
from tessel_core.ir.operators.normalization import RMS_EPSILON
from tessel_core.ir.operators.operator import Values


def _mean(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return along(lambda each, dim, keep: each.mean(dim, keepdim=keep), x, axes, True)


def _normal(x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    """Mean 0 and variance 1 along axes."""
    centred = x - _mean(x, axes)
    return centred / (_mean(centred**2, axes) + epsilon).sqrt()


def shifted_gradient_of(meaning: Meaning) -> Meaning:
    """The gradient of a norm by its tensor, scale and shift, which takes no shift: nothing depends on that."""
    gradient = gradient_of(meaning)
    return lambda tensors, values: gradient([*tensors[:2], torch.zeros_like(tensors[1]), tensors[2]], values)


@rounded
def _layer_normalization(x: Tensor, scale: Tensor, *rest: Any) -> Tensor:
    *shift, values = rest
    found = _normal(x, axes_of(values, x.ndim), number(values, "epsilon")) * scale
    return found + shift[0] if shift else found


def _root(x: Tensor) -> Tensor:
    return (x.square().mean(dim=-1, keepdim=True) + RMS_EPSILON).sqrt()


@rounded
def _rms_norm(x: Tensor, scale: Tensor, values: Values) -> Tensor:
    return x / _root(x) * scale


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


@rounded
def _batch_norm_training(x: Tensor, scale: Tensor, shift: Tensor, values: Values) -> Tensor:
    normal = _normal(x, _other_axes(x), number(values, "epsilon"))
    return normal * _of_channels(scale, x) + _of_channels(shift, x)


NORMALIZATION: dict[str, Meaning] = {
    "layer_normalization": _layer_normalization,
    "layer_normalization_grad": gradient_of(_layer_normalization),
    "rms_norm": _rms_norm,
    "rms_norm_grad": gradient_of(_rms_norm),
    "batch_norm": _batch_norm,
    "batch_norm_grad": gradient_of(_batch_norm),
    "batch_norm_training": _batch_norm_training,
    "batch_norm_training_grad": shifted_gradient_of(_batch_norm_training),
}
