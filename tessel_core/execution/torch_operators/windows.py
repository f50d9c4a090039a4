"""Operators that move windows over tensors: convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch.nn import functional

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, rounded
from tessel_core.execution.torch_operators.reductions import ends_of, largest_of
from tessel_core.ir.operators.attributes import integer, integers
from tessel_core.ir.operators.operator import Values


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


def _folded(seen: Tensor, sizes: Sequence[int], values: Values) -> Tensor:
    """The way back from windows: a tensor of these spatial sizes, each number the sum over the windows that see it."""
    spatial = len(sizes)
    dilations, strides, pads = (integers(values, name) for name in ("dilations", "strides", "pads"))
    places, kernel = seen.shape[2 : 2 + spatial], tuple(seen.shape[2 + spatial :])
    room = [size + before + after for size, before, after in zip(sizes, pads, pads[spatial:], strict=False)]
    found = seen.new_zeros((*seen.shape[:2], *room))
    for offset in product(*map(range, kernel)):
        starts = [at * apart for at, apart in zip(offset, dilations, strict=True)]
        each = zip(starts, places, strides, strict=True)
        found[(..., *(slice(start, start + many * step, step) for start, many, step in each))] += seen[(..., *offset)]
    return _inside(found, sizes, values)


def _inside(padded: Tensor, sizes: Sequence[int], values: Values) -> Tensor:
    """Without the pads."""
    pads = integers(values, "pads")
    return padded[(..., *(slice(before, before + size) for before, size in zip(pads, sizes, strict=False)))]


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


def _slopes(x: Tensor, w: Tensor, dz: Tensor, values: Values, wanted: tuple[bool, bool]) -> list[Tensor]:
    """Gradients of a convolution, of the tensor and the kernel or one of them."""
    spatial, groups = w.ndim - 2, integer(values, "groups")
    padded = _padded(x, values, 0.0)
    if spatial in _CONVOLUTIONS:
        steps = integers(values, "strides"), [0] * spatial, integers(values, "dilations"), False, [0] * spatial, groups
        found = torch.ops.aten.convolution_backward(dz, padded, w, None, *steps, [*wanted, False])
        return [_inside(found[0], x.shape[2:], values) if wanted[0] else None, found[1]]
    seen = _windows(x, tuple(w.shape[2:]), values, 0.0).chunk(groups, dim=1)
    over, parts = [0, *range(2, 2 + spatial)], list(zip(dz.chunk(groups, dim=1), w.chunk(groups), seen, strict=True))
    by_input = [torch.tensordot(up, kernel, ([1], [0])).movedim(1 + spatial, 1) for up, kernel, _ in parts]
    by_weight = [torch.tensordot(up, each, (over, over)) for up, _, each in parts]
    return [_folded(torch.cat(by_input, dim=1), x.shape[2:], values), torch.cat(by_weight)]


@rounded
def _conv_grad(x: Tensor, w: Tensor, dz: Tensor, values: Values) -> tuple[Tensor, ...]:
    return tuple(_slopes(x, w, dz, values, (True, True)))


@rounded
def _conv_input_grad(w: Tensor, dz: Tensor, values: Values) -> Tensor:
    shape = len(dz), integer(values, "groups") * w.shape[1], *integers(values, "sizes")
    return _slopes(dz.new_zeros(()).expand(shape), w, dz, values, (True, False))[0]


@rounded
def _conv_weight_grad(x: Tensor, dz: Tensor, values: Values) -> Tensor:
    shape = dz.shape[1], x.shape[1] // integer(values, "groups"), *integers(values, "kernel")
    return _slopes(x, dz.new_zeros(()).expand(shape), dz, values, (False, True))[1]


def _max_pool(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,), kernel = tensors, integers(values, "kernel")
    return [largest_of(_windows(x, kernel, values, ends_of(x)[0]), tuple(range(-len(kernel), 0)), False)]


@rounded
def _average_pool(x: Tensor, values: Values) -> Tensor:
    kernel = integers(values, "kernel")
    last = tuple(range(-len(kernel), 0))
    return _windows(x, kernel, values, 0.0).sum(dim=last) / _counted(x, x.shape[2:], values)


def _counted(like: Tensor, sizes: Sequence[int], values: Values) -> Tensor:
    """How many numbers each window takes the mean of."""
    kernel, inside = integers(values, "kernel"), like.new_ones((1, 1, *sizes))
    seen = _windows(inside, kernel, values, float(integer(values, "count_pads")))
    return seen.sum(dim=tuple(range(-len(kernel), 0)))


@rounded
def _average_pool_grad(dz: Tensor, values: Values) -> Tensor:
    kernel, sizes = integers(values, "kernel"), integers(values, "sizes")
    share = (dz / _counted(dz, sizes, values)).reshape(*dz.shape, *[1] * len(kernel))
    return _folded(share.expand(*dz.shape, *kernel), sizes, values)


@rounded
def _max_pool_grad(x: Tensor, dz: Tensor, values: Values) -> Tensor:
    """The first of the largest numbers of a window gets its gradient."""
    seen = _windows(x, integers(values, "kernel"), values, -torch.inf)
    rows = seen.reshape(*dz.shape, math.prod(integers(values, "kernel")))
    found = torch.zeros_like(rows).scatter_(-1, rows.argmax(dim=-1, keepdim=True), dz.unsqueeze(-1))
    return _folded(found.reshape(seen.shape), x.shape[2:], values)


@rounded
def _global_average_pool(x: Tensor, values: Values) -> Tensor:
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


@rounded
def _global_max_pool(x: Tensor, values: Values) -> Tensor:
    return largest_of(x, tuple(range(2, x.ndim)), True)


WINDOWS: dict[str, Meaning] = {
    "conv": _conv,
    "conv_grad": _conv_grad,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    "max_pool": _max_pool,
    "max_pool_grad": _max_pool_grad,
    "average_pool": _average_pool,
    "average_pool_grad": _average_pool_grad,
    "global_average_pool": _global_average_pool,
    "global_max_pool": _global_max_pool,
}
