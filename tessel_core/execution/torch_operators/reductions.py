"""Operators that look along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, gradient_of, rounded, wide
from tessel_core.ir.operators.attributes import axes_of
from tessel_core.ir.operators.operator import Values

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def ends_of(x: Tensor) -> tuple[Any, Any]:
    """The least and the largest number of its format."""
    if x.dtype is torch.bool:
        return False, True
    if x.is_floating_point():
        return -torch.inf, torch.inf
    limits = torch.iinfo(x.dtype)
    return limits.min, limits.max


def largest_of(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """The maximum along axes, also of nothing."""
    return _extreme(torch.amax, ends_of(x)[0], x, axes, keep)


def _least(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _extreme(torch.amin, ends_of(x)[1], x, axes, keep)


def _extreme(function: Callable[..., Tensor], end: Any, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.numel():
        return function(x, dim=axes, keepdim=keep)
    empty = x.sum(dim=axes, keepdim=keep)
    return torch.full(empty.shape, end, dtype=x.dtype, device=x.device)


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(dim=axis, keepdim=keep)
    return x


def _square_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return (x * x).sum(dim=axes, keepdim=keep)


def along(function: Reduction, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Along no axis, each number is reduced by itself, where PyTorch would take all axes."""
    return function(x, axes, keep) if axes else function(x.unsqueeze(-1), (x.ndim,), False)


def _reduction(function: Reduction) -> Meaning:
    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        (x,) = tensors
        given = wide(x) if x.is_floating_point() else x
        return [along(function, given, axes_of(values, x.ndim), bool(values["keep"])).to(x.dtype)]

    return meaning


def log_softmax_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The logarithm of the softmax over all of the axes together."""
    if not axes:
        return log_softmax_of(x.unsqueeze(-1), (-1,)).squeeze(-1)
    shifted = x - largest_of(x, axes, True)
    return shifted - shifted.exp().sum(dim=axes, keepdim=True).log()


@rounded
def _log_softmax(x: Tensor, values: Values) -> Tensor:
    return log_softmax_of(x, axes_of(values, x.ndim))


@rounded
def _softmax(x: Tensor, values: Values) -> Tensor:
    return log_softmax_of(x, axes_of(values, x.ndim)).exp()


def _reduction_gradient(function: Reduction) -> Meaning:
    """Of the input, the gradient with or without the axes along which is reduced, and the axes."""

    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        x, dz = tensors
        axes = axes_of(values, x.ndim)
        kept = dz.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)])
        return gradient_of(lambda given, _: [along(function, given[0], axes, True)])([x, kept], values)

    return meaning


def _sum_along(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return along(lambda each, dim, keep: each.sum(dim, keepdim=keep), x, axes, True)


@rounded
def _softmax_grad(z: Tensor, dz: Tensor, values: Values) -> Tensor:
    return z * (dz - _sum_along(z * dz, axes_of(values, z.ndim)))


@rounded
def _log_softmax_grad(z: Tensor, dz: Tensor, values: Values) -> Tensor:
    return dz - z.exp() * _sum_along(dz, axes_of(values, z.ndim))


REDUCTIONS: dict[str, Meaning] = {
    "reduce_sum": _reduction(lambda x, axes, keep: x.sum(dim=axes, keepdim=keep)),
    "reduce_mean": _reduction(lambda x, axes, keep: wide(x).mean(dim=axes, keepdim=keep)),
    "reduce_max": _reduction(largest_of),
    "reduce_min": _reduction(_least),
    "reduce_prod": _reduction(_product),
    "reduce_sum_square": _reduction(_square_sum),
    "reduce_l2": _reduction(lambda x, axes, keep: wide(_square_sum(x, axes, keep)).sqrt()),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "reduce_max_grad": _reduction_gradient(largest_of),
    "reduce_min_grad": _reduction_gradient(_least),
    "reduce_prod_grad": _reduction_gradient(_product),
    "softmax_grad": _softmax_grad,
    "log_softmax_grad": _log_softmax_grad,
}
