"""Attention over heads, and the columns that hold queries, keys and values together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, gradient_of, rounded, wide
from tessel_core.ir.operators.attention_steps import SCORES, SUM_OF_KEYS
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.dropout import kept_columns
from tessel_core.ir.operators.operator import Values


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


def _mask(like: Tensor, values: Values) -> Tensor:
    """1 for each column that dropout keeps, else 0."""
    return torch.from_numpy(kept_columns(like.shape[-1], values)).to(like.device)


def _attention(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    q, k, v = _in_groups(tensors, values)
    weights = _weights(q, k, values)
    if "rate" in values:
        weights = _without(weights, _mask(weights, values), values)
    return [_columns(weights @ v, tensors[0])]


def _without(x: Tensor, mask: Tensor, values: Values) -> Tensor:
    return x * mask / (1 - number(values, "rate"))


def _dropout(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    (x,) = tensors
    mask = _mask(x, values).expand(x.shape).clone()
    return [*_dropout_grad((x, mask), values), mask]


_dropout_grad = rounded(_without)


def _attention_scores(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    q, k = map(wide, tensors)
    size = integer(values, "head_size", 1)
    keys = k.unflatten(2, (-1, size))
    scores = torch.einsum(SCORES, q.unflatten(2, (keys.shape[2], -1, size)), keys)
    return [scores.flatten(1, 2).to(tensors[0].dtype)]


@rounded
def _masked_softmax(scores: Tensor, values: Values) -> Tensor:
    return torch.softmax(_seen(number(values, "scale") * scores, values), dim=-1)


@rounded
def _masked_softmax_grad(weights: Tensor, dz: Tensor, values: Values) -> Tensor:
    return number(values, "scale") * weights * (dz - (weights * dz).sum(dim=-1, keepdim=True))


def _attention_context(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    weights, v = map(wide, tensors)
    by_group = v.unflatten(2, (-1, integer(values, "head_size", 1)))
    found = torch.einsum(SUM_OF_KEYS, weights.unflatten(1, (by_group.shape[2], -1)), by_group)
    return [found.flatten(2).to(tensors[0].dtype)]


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


def _unpack_qkv(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    batch, tokens, columns = tensors[0].shape
    packed = tensors[0].reshape(batch, tokens, -1, 3, integer(values, "head_size", 1))
    return [packed[:, :, :, i].reshape(batch, tokens, columns // 3) for i in range(3)]


def _pack_qkv(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    batch, tokens, columns = tensors[0].shape
    parts = [each.reshape(batch, tokens, -1, integer(values, "head_size", 1)) for each in tensors]
    return [torch.stack(parts, dim=3).reshape(batch, tokens, 3 * columns)]


ATTENTION: dict[str, Meaning] = {
    "attention": _attention,
    "attention_grad": gradient_of(_attention),
    "attention_bias": _attention_bias,
    "attention_bias_grad": gradient_of(_attention_bias),
    "attention_scores": _attention_scores,
    "attention_scores_grad": gradient_of(_attention_scores),
    "masked_softmax": _masked_softmax,
    "masked_softmax_grad": _masked_softmax_grad,
    "attention_context": _attention_context,
    "attention_context_grad": gradient_of(_attention_context),
    "dropout": _dropout,
    "dropout_grad": _dropout_grad,
    "unpack_qkv": _unpack_qkv,
    "pack_qkv": _pack_qkv,
}
