"""Operators that look along axes or through windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, rounded, wide
from tessel_core.ir.operators.attributes import axes_of, integer, integers, number
from tessel_core.ir.operators.operator import Values

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _ends(x: Tensor) -> tuple[Any, Any]:
    """The least and the largest number of its format."""
    if x.dtype is torch.bool:
        return False, True
    if x.is_floating_point():
        return -torch.inf, torch.inf
    limits = torch.iinfo(x.dtype)
    return limits.min, limits.max


def _largest(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """The maximum along axes, also of nothing."""
    return _extreme(torch.amax, _ends(x)[0], x, axes, keep)


def _least(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _extreme(torch.amin, _ends(x)[1], x, axes, keep)


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


def _along(function: Reduction, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Along no axis, each number is reduced by itself, where PyTorch would take all axes."""
    return function(x, axes, keep) if axes else function(x.unsqueeze(-1), (x.ndim,), False)


def _reduction(function: Reduction) -> Meaning:
    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        (x,) = tensors
        given = wide(x) if x.is_floating_point() else x
        return [_along(function, given, axes_of(values, x.ndim), bool(values["keep"])).to(x.dtype)]

    return meaning


def log_softmax_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The logarithm of the softmax over all of the axes together."""
    if not axes:
        return log_softmax_of(x.unsqueeze(-1), (-1,)).squeeze(-1)
    shifted = x - _largest(x, axes, True)
    return shifted - shifted.exp().sum(dim=axes, keepdim=True).log()


@rounded
def _log_softmax(x: Tensor, values: Values) -> Tensor:
    return log_softmax_of(x, axes_of(values, x.ndim))


@rounded
def _softmax(x: Tensor, values: Values) -> Tensor:
    return log_softmax_of(x, axes_of(values, x.ndim)).exp()


@rounded
def _layer_normalization(x: Tensor, scale: Tensor, *rest: Any) -> Tensor:
    *shift, values = rest
    axes = axes_of(values, x.ndim)
    mean = _along(lambda each, dim, keep: each.mean(dim, keepdim=keep), x, axes, True)
    variance = _along(lambda each, dim, keep: each.mean(dim, keepdim=keep), (x - mean) ** 2, axes, True)
    found = (x - mean) / (variance + number(values, "epsilon")).sqrt() * scale
    return found + shift[0] if shift else found


@rounded
def _batch_norm(x: Tensor, *rest: Any) -> Tensor:
    *statistics, values = rest
    scale, shift, mean, variance = (each.reshape(-1, *[1] * (x.ndim - 2)) for each in statistics)
    return (x - mean) / (variance + number(values, "epsilon")).sqrt() * scale + shift


REDUCTIONS: dict[str, Meaning] = {
    "reduce_sum": _reduction(lambda x, axes, keep: x.sum(dim=axes, keepdim=keep)),
    "reduce_mean": _reduction(lambda x, axes, keep: wide(x).mean(dim=axes, keepdim=keep)),
    "reduce_max": _reduction(_largest),
    "reduce_min": _reduction(_least),
    "reduce_prod": _reduction(_product),
    "reduce_sum_square": _reduction(_square_sum),
    "reduce_l2": _reduction(lambda x, axes, keep: wide(_square_sum(x, axes, keep)).sqrt()),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_normalization": _layer_normalization,
    "batch_norm": _batch_norm,
}


def _padded(x: Tensor, values: Values, fill: Any) -> Tensor:
    pads, spatial = integers(values, "pads"), x.ndim - 2
    pairs = [each for axis in reversed(range(spatial)) for each in (pads[axis], pads[spatial + axis])]
    return functional.pad(x, pairs, value=fill) if any(pads) else x


def _windows(x: Tensor, kernel: tuple[int, ...], values: Values, fill: Any) -> Tensor:
    """[n, channels, places .., kernel ..], all looks at one padded tensor."""
    seen, dilations = _padded(x, values, fill), integers(values, "dilations")
    for axis, (size, apart, stride) in enumerate(zip(kernel, dilations, integers(values, "strides"), strict=True)):
        seen = seen.unfold(2 + axis, (size - 1) * apart + 1, stride)
    return seen[(..., *(slice(None, None, apart) for apart in dilations))]


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@rounded
def _conv(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    *bias, values = rest
    groups, spatial = integer(values, "groups"), w.ndim - 2
    if spatial in _CONVOLUTIONS:
        steps = {"stride": integers(values, "strides"), "dilation": integers(values, "dilations")}
        return _CONVOLUTIONS[spatial](_padded(x, values, 0.0), w, *bias, **steps, groups=groups)
    seen = _windows(x, tuple(w.shape[2:]), values, 0.0).chunk(groups, dim=1)
    inner = [1, *range(2 + spatial, 2 + 2 * spatial)], [1, *range(2, 2 + spatial)]
    parts = [torch.tensordot(a, b, inner) for a, b in zip(seen, w.chunk(groups), strict=True)]
    made = torch.cat(parts, dim=-1).movedim(-1, 1)
    return made + bias[0].reshape(-1, *[1] * spatial) if bias else made


def _max_pool(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,), kernel = tensors, integers(values, "kernel")
    return [_largest(_windows(x, kernel, values, _ends(x)[0]), tuple(range(-len(kernel), 0)), False)]


@rounded
def _average_pool(x: Tensor, values: Values) -> Tensor:
    kernel = integers(values, "kernel")
    last = tuple(range(-len(kernel), 0))
    total = _windows(x, kernel, values, 0.0).sum(dim=last)
    inside = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    return total / _windows(inside, kernel, values, float(integer(values, "count_pads"))).sum(dim=last)


@rounded
def _global_average_pool(x: Tensor, values: Values) -> Tensor:
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


@rounded
def _global_max_pool(x: Tensor, values: Values) -> Tensor:
    return _largest(x, tuple(range(2, x.ndim)), True)


WINDOWS: dict[str, Meaning] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_average_pool": _global_average_pool,
    "global_max_pool": _global_max_pool,
}
