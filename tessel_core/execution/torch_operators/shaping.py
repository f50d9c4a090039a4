"""Operators that change where numbers stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, wide
from tessel_core.ir.operators.attributes import axis_of, integer, integers
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.operators.shaping import check_places, reshaped


def _reshape(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [tensors[0].reshape(reshaped(tuple(tensors[0].shape), integers(values, "shape")))]


def _permute(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [tensors[0].permute(integers(values, "axes"))]


def _transpose(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [_permute(tensors, values)[0].clone(memory_format=torch.contiguous_format)]


def _expand(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    shape = np.broadcast_shapes(tuple(tensors[0].shape), integers(values, "shape"))
    return [tensors[0].expand(shape).clone(memory_format=torch.contiguous_format)]


def _take(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, places = tensors
    axis = axis_of(values, x.ndim)
    check_places(places.cpu().numpy(), axis, x.shape[axis])
    taken = x.index_select(axis, torch.where(places < 0, places + x.shape[axis], places).flatten())
    return [taken.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])]


def _strided_slice(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,) = tensors
    each = (integers(values, name) for name in ("axes", "counts", "starts", "steps"))
    for axis, many, start, step in zip(*each, strict=True):
        x = x.index_select(axis % x.ndim, start + step * torch.arange(many, device=x.device))
    return [x]


def _split_at(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,) = tensors
    return [each.clone() for each in x.split(integers(values, "sizes"), dim=axis_of(values, x.ndim))]


def _pad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,), pads = tensors, integers(values, "pads")
    sizes = zip(x.shape, pads, pads[x.ndim :], strict=False)
    made = x.new_full([before + size + after for size, before, after in sizes], values["value"])
    inside = made
    for axis, before in enumerate(pads[: x.ndim]):
        inside = inside.narrow(axis, before, x.shape[axis])
    inside.copy_(x)
    return [made]


def _roll(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    axes = integers(values, "axes")
    return [torch.roll(tensors[0], integers(values, "shifts"), axes) if axes else tensors[0].clone()]


def _take_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    places, dz = tensors
    axis, size = integer(values, "axis"), integer(values, "size")
    check_places(places.cpu().numpy(), axis, size)
    rows = torch.where(places < 0, places + size, places).flatten()
    before, after = dz.shape[:axis], dz.shape[axis + places.ndim :]
    found = torch.zeros((*before, size, *after), dtype=wide(dz).dtype, device=dz.device)
    return [found.index_add_(axis, rows, wide(dz).reshape(*before, len(rows), *after)).to(dz.dtype)]


def _strided_slice_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (dz,) = tensors
    each = (integers(values, name) for name in ("axes", "counts", "starts", "steps", "sizes"))
    for axis, many, start, step, size in zip(*each, strict=True):
        shape = list(dz.shape)
        shape[axis] = size
        places = start + step * torch.arange(many, device=dz.device)
        dz = dz.new_zeros(shape).index_add_(axis % dz.ndim, places, dz)
    return [dz]


SHAPING: dict[str, Meaning] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "permute": _permute,
    "expand": _expand,
    "take": _take,
    "take_grad": _take_grad,
    "strided_slice": _strided_slice,
    "strided_slice_grad": _strided_slice_grad,
    "split_at": _split_at,
    "pad": _pad,
    "roll": _roll,
}
