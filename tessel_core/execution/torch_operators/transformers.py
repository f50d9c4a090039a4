"""Operators of transformers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, gradient_of, rounded, wide
from tessel_core.execution.torch_operators.normalization import shifted_gradient_of
from tessel_core.execution.torch_operators.reductions import log_softmax_of
from tessel_core.ir.operators.attributes import axis_of, integer
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.operators.transformers import NORM_EPSILON, check_rows, turns


@rounded
def _gelu(x: Tensor, values: Values) -> Tensor:
    return functional.gelu(x, approximate="tanh")


@rounded
def _layer_norm(x: Tensor, scale: Tensor, shift: Tensor, values: Values) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], scale, shift, NORM_EPSILON)


@rounded
def _rotary(x: Tensor, values: Values) -> Tensor:
    angles = torch.from_numpy(turns(x.shape[1], values)).to(x)[:, None]
    first = integer({"first": 0, **values}, "first")
    heads = x.unflatten(2, (-1, integer(values, "head_size"))).clone()
    pairs = heads[..., first : first + 2 * angles.shape[-1]]
    one, other = pairs.clone().chunk(2, dim=-1)
    pairs.copy_(torch.cat((one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()), -1))
    return heads.flatten(2)


def _rows(tensors: Tensors) -> Tensor:
    """The row numbers, checked, one after the other."""
    table, rows = tensors[:2]
    check_rows(rows.cpu().numpy(), len(table))
    return rows.flatten()


def _embedding(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    table, rows = tensors
    return [table.index_select(0, _rows(tensors)).reshape(*rows.shape, table.shape[-1])]


def _embedding_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    table, _, dz = tensors
    rows = _rows(tensors)
    found = torch.zeros_like(wide(table)).index_add_(0, rows, wide(dz).reshape(len(rows), table.shape[-1]))
    return [found.to(table.dtype)]


def _cross_entropy(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    logits, targets, many = tensors
    found = log_softmax_of(wide(logits), (-1,)).gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    return [(-found / many).to(logits.dtype)]


def _cross_entropy_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    logits, targets, many = tensors
    slope = log_softmax_of(wide(logits), (-1,)).exp()
    hit = targets.long().unsqueeze(-1)
    slope.scatter_add_(-1, hit, torch.full_like(hit, -1, dtype=slope.dtype))
    return [(slope / many).to(logits.dtype)]


def _write(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    cache, new = tensors
    axis = axis_of(values, cache.ndim)
    cache.narrow(axis, integer(values, "at"), new.shape[axis]).copy_(new)
    return [cache]


TRANSFORMERS: dict[str, Meaning] = {
    "gelu": _gelu,
    "gelu_grad": gradient_of(_gelu),
    "layer_norm": _layer_norm,
    "layer_norm_grad": shifted_gradient_of(_layer_norm),
    "embedding": _embedding,
    "embedding_grad": _embedding_grad,
    "cross_entropy": _cross_entropy,
    "cross_entropy_grad": _cross_entropy_grad,
    "rotary": _rotary,
    "write": _write,
}
