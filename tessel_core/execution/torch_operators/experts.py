"""Operators of mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, wide
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.operator import Values


def _scores(logits: Tensor, values: Values) -> Tensor:
    return torch.sigmoid(logits) if values["score"] == "sigmoid" else torch.softmax(logits, dim=-1)


def _route(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    scores = _scores(wide(tensors[0]), values)
    ranked = scores + tensors[1] if len(tensors) > 1 else scores
    choice = torch.argsort(ranked, dim=-1, descending=True, stable=True)[..., : integer(values, "top")]
    share = scores.gather(-1, choice)
    if values["normed"]:
        share = share / share.sum(dim=-1, keepdim=True)
    return [(number(values, "scale") * share).to(tensors[0].dtype), choice.to(torch.int32)]


def _route_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    logits, choice, up = wide(tensors[0]), tensors[1].long(), number(values, "scale") * wide(tensors[2])
    scores = _scores(logits, values)
    if values["normed"]:
        share = scores.gather(-1, choice)
        total = share.sum(dim=-1, keepdim=True)
        up = (up - (up * share).sum(dim=-1, keepdim=True) / total) / total
    by_score = torch.zeros_like(scores).scatter_(-1, choice, up)
    if values["score"] == "sigmoid":
        found = by_score * scores * (1 - scores)
    else:
        found = scores * (by_score - (by_score * scores).sum(dim=-1, keepdim=True))
    return [found.to(tensors[0].dtype)]


def _places(choice: Tensor) -> Tensor:
    """The numbers of chosen pairs (token, rank), in the order of their experts and then of tokens."""
    return torch.argsort(choice.flatten(), stable=True)


def _in_order(rows: Tensor, choice: Tensor) -> Tensor:
    """Rows sorted by expert, as [.., top, n]."""
    found = torch.empty_like(rows)
    found[_places(choice)] = rows
    return found.reshape(*choice.shape, rows.shape[-1])


def _dispatch(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, choice = tensors
    return [x.flatten(0, -2)[_places(choice) // choice.shape[-1]]]


def _dispatch_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    choice, dz = tensors
    return [_in_order(wide(dz), choice).sum(dim=-2).to(dz.dtype)]


def _combine(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    rows, choice, share = tensors
    return [(_in_order(wide(rows), choice) * wide(share).unsqueeze(-1)).sum(dim=-2).to(rows.dtype)]


def _combine_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    rows, choice, share, dz = tensors
    spread = (wide(dz).unsqueeze(-2) * wide(share).unsqueeze(-1)).reshape(rows.shape)
    by_share = (_in_order(wide(rows), choice) * wide(dz).unsqueeze(-2)).sum(dim=-1)
    return [spread[_places(choice)].to(rows.dtype), by_share.to(share.dtype)]


def _spans(choice: Tensor, experts: int) -> list[int]:
    """Per expert, how many rows it has."""
    counts: list[int] = torch.bincount(choice.flatten(), minlength=experts).tolist()
    return counts


def _grouped_matmul(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    rows, choice, w = tensors
    parts = rows.split(_spans(choice, len(w)))
    return [torch.cat([part @ each for part, each in zip(parts, w, strict=True)])]


def _grouped_matmul_input_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    w, choice, dz = tensors
    parts = dz.split(_spans(choice, len(w)))
    return [torch.cat([part @ each.T for part, each in zip(parts, w, strict=True)])]


def _grouped_matmul_weight_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    rows, choice, w, dz = tensors
    counts = _spans(choice, len(w))
    return [torch.stack([x.T @ z for x, z in zip(rows.split(counts), dz.split(counts), strict=True)])]


def _grouped_matmul_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    rows, choice, w, dz = tensors
    by_rows = _grouped_matmul_input_grad((w, choice, dz), values)
    return [*by_rows, *_grouped_matmul_weight_grad((rows, choice, w, dz), values)]


EXPERTS: dict[str, Meaning] = {
    "route": _route,
    "route_grad": _route_grad,
    "dispatch": _dispatch,
    "dispatch_grad": _dispatch_grad,
    "combine": _combine,
    "combine_grad": _combine_grad,
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_grad": _grouped_matmul_grad,
    "grouped_matmul_input_grad": _grouped_matmul_input_grad,
    "grouped_matmul_weight_grad": _grouped_matmul_weight_grad,
}
