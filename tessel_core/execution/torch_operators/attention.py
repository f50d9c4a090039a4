"""Attention over heads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, gradient_of
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.operator import Values, wide


def _heads(tensor: Tensor, values: Values) -> Tensor:
    """[batch, tokens, columns] as [batch, head, tokens, head size], no narrower than fp32."""
    return wide(tensor).unflatten(2, (-1, integer(values, "head_size", 1))).transpose(1, 2)


def _in_groups(tensors: Tensors, values: Values) -> list[Tensor]:
    """Queries, keys, values and perhaps the output's gradient as [batch, group, head of the group, tokens, size]."""
    size = integer(values, "head_size", 1)
    groups, heads = tensors[1].shape[2] // size, tensors[0].shape[2] // size

    def parted(tensor: Tensor, each: int) -> Tensor:
        return wide(tensor).reshape(*tensor.shape[:2], groups, each, -1).permute(0, 2, 3, 1, 4)

    return [parted(tensor, heads // groups if place in (0, 3) else 1) for place, tensor in enumerate(tensors)]


def _columns(heads: Tensor, like: Tensor) -> Tensor:
    """[batch, .., tokens, size] as [batch, tokens, columns]."""
    return heads.movedim(-2, 1).flatten(2).to(like.dtype)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """Scaled products, of heads."""
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def _weights(q: Tensor, k: Tensor, values: Values) -> Tensor:
    """Softmax of the scores that are seen."""
    return torch.softmax(_seen(_capped(_scores(q, k), values), values), dim=-1)


def _capped(scores: Tensor, values: Values) -> Tensor:
    """Scores drawn below a cap, where there is one."""
    cap = values.get("cap")
    return cap * torch.tanh(scores / cap) if isinstance(cap, int | float) else scores


def _seen(scores: Tensor, values: Values) -> Tensor:
    """Scores, minus infinity where a mask hides the key."""
    if not values.get("causal"):
        return scores
    queries, keys = scores.shape[-2:]
    seen = torch.ones((queries, keys), dtype=torch.bool, device=scores.device).tril(keys - queries)
    if "window" in values:
        seen = seen.triu(keys - queries - integer(values, "window", 1) + 1)
    return scores.masked_fill(~seen, -torch.inf)


def _attention(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    q, k, v = _in_groups(tensors, values)
    return [_columns(_weights(q, k, values) @ v, tensors[0])]


def _by_bias(scores: Tensor, bias: Tensor, values: Values) -> tuple[Tensor, int]:
    """The batch as groups of entries along two axes, of which the one returned is that of the entries of a bias."""
    if values.get("consecutive"):
        return scores.unflatten(0, (len(bias), -1)), 1
    return scores.unflatten(0, (-1, len(bias))), 0


def _biased_weights(q: Tensor, k: Tensor, bias: Tensor, values: Values) -> Tensor:
    """Entry b of the batch takes bias b mod g, or bias b // (batch / g) where those of one bias are consecutive."""
    scores, entries = _by_bias(_scores(q, k), bias, values)
    return torch.softmax(_seen(scores + bias.unsqueeze(entries), values), dim=-1).flatten(0, 1)


def _attention_bias(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    q, k, v = (_heads(each, values) for each in tensors[:3])
    return [_columns(_biased_weights(q, k, wide(tensors[3]), values) @ v, tensors[0])]


ATTENTION: dict[str, Meaning] = {
    "attention": _attention,
    "attention_grad": gradient_of(_attention),
    "attention_bias": _attention_bias,
    "attention_bias_grad": gradient_of(_attention_bias),
}
