"""Operators of unfused attention, which keeps its scores in memory."""

from __future__ import annotations

import numpy as np

from tessel_core.ir.operators.arrays import namespace, rounded
from tessel_core.ir.operators.attention import check_mask, seen_scores, softmax_of
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.operator import Array, Operator, Types, Values, Work, WorkRule, need
from tessel_core.ir.operators.rules import alike, one, together, with_gradient
from tessel_core.ir.operators.work import elementwise_work, moved
from tessel_core.ir.types import TensorType

SCORES, SUM_OF_KEYS, SUM_OF_QUERIES = "btghd,bkgd->bghtk", "bghtk,bkgd->btghd", "bghtk,btghd->bkgd"
"""The products of attention as subscripts for `einsum`.

Letters are axes. b: batch, g: group, h: head of the group, t: tokens of queries, k: keys, d: head size.
"""


def _grouped(q: TensorType, k: TensorType, values: Values) -> int:
    """Return the larger number of heads of both tensors. The smaller number must divide it."""
    size = integer(values, "head_size", 1)
    fits = len(q.shape) == len(k.shape) == 3 and q.dtype == k.dtype and q.shape[0] == k.shape[0]
    fits = fits and k.shape[2] > 0 and k.shape[2] % size == 0 and q.shape[2] % k.shape[2] == 0
    need(
        fits,
        f"needs [batch, tokens, columns] of heads of {size}, and a number of heads that divides it, got {q} and {k}",
    )
    return q.shape[2] // size


def _attention_scores(types: Types, values: Values) -> tuple[TensorType, ...]:
    q, k = together(types, 2)
    return (q.shaped((q.shape[0], _grouped(q, k, values), q.shape[1], k.shape[1])),)


def _attention_context(types: Types, values: Values) -> tuple[TensorType, ...]:
    weights, v = together(types, 2)
    need(len(weights.shape) == 4, f"needs weights [batch, heads, queries, keys], got {weights}")
    batch, heads, queries, keys = weights.shape
    made = weights.shaped((batch, queries, heads * integer(values, "head_size", 1)))
    _grouped(made, v, values)
    need(v.shape[1] == keys, f"needs one value per key of {weights}, got {v}")
    return (made,)


def _by_head(q: Array, k: Array, values: Values) -> tuple[Array, Array]:
    """Reshape queries and keys to one axis for groups and one for heads.

    The tensor with fewer heads has one head per group.
    """
    size = integer(values, "head_size")
    groups = k.shape[2] // size
    return q.reshape(*q.shape[:2], groups, -1, size), k.reshape(*k.shape[:2], groups, size)


def _by_group(scores: Array, like: Array) -> Array:
    """Split the head axis of scores [batch, heads, queries, keys] into the groups that share keys and values."""
    return scores.reshape(len(scores), like.shape[2], -1, *scores.shape[2:])


def _product(rule: str, one: Array, other: Array) -> Array:
    """Call `einsum`. NumPy and PyTorch have it, but the Array API standard does not."""
    if namespace(one) is np:
        return np.einsum(rule, one, other, optimize=True)
    return namespace(one).einsum(rule, one, other)


@rounded
def _attention_scores_compute(q: Array, k: Array, values: Values) -> Array:
    scores = _product(SCORES, *_by_head(q, k, values))
    return scores.reshape(len(q), -1, *scores.shape[3:])


@rounded
def _attention_scores_grad_compute(q: Array, k: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    queries, keys = _by_head(q, k, values)
    slope = _by_group(dz, keys)
    return (
        _product(SUM_OF_KEYS, slope, keys).reshape(q.shape),
        _product(SUM_OF_QUERIES, slope, queries).reshape(k.shape),
    )


@rounded
def _attention_context_compute(weights: Array, v: Array, values: Values) -> Array:
    by_group = v.reshape(*v.shape[:2], -1, integer(values, "head_size"))
    found = _product(SUM_OF_KEYS, _by_group(weights, by_group), by_group)
    return found.reshape(*found.shape[:2], -1)


@rounded
def _attention_context_grad_compute(weights: Array, v: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    slope, by_group = _by_head(dz, v, values)
    by_weight = _product(SCORES, slope, by_group)
    by_value = _product(SUM_OF_QUERIES, _by_group(weights, by_group), slope)
    return by_weight.reshape(weights.shape), by_value.reshape(v.shape)


def _products_work(products: int) -> WorkRule:
    """Return the rule for `products` matrix products over all pairs of query and key, including masked pairs.

    Each product reads the last input once.
    """

    def work(types: Types, outputs: Types, values: Values) -> Work:
        scores = next(each for each in (*types, *outputs) if len(each.shape) == 4)
        again = (products - 1) * types[-1].bytes
        return Work(2.0 * products * scores.elements * integer(values, "head_size"), moved(types, outputs) + again)

    return work


def _masked_softmax(types: Types, values: Values) -> tuple[TensorType, ...]:
    (scores,) = one(types, values)
    need(len(scores.shape) > 1, f"needs scores [.., queries, keys], got {scores}")
    number(values, "scale")
    check_mask(scores.shape[-2], scores.shape[-1], values)
    return (scores,)


@rounded
def _masked_softmax_compute(scores: Array, values: Values) -> Array:
    return softmax_of(seen_scores(number(values, "scale") * scores, values))


def _masked_softmax_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    (weights,) = alike(types, values)
    return _masked_softmax((weights,), values)


@rounded
def _masked_softmax_grad_compute(weights: Array, dz: Array, values: Values) -> Array:
    return number(values, "scale") * weights * (dz - (weights * dz).sum(axis=-1, keepdims=True))


_SCORES = Operator("attention_scores", _attention_scores, _attention_scores_compute, _products_work(1), ("head_size",))
_CONTEXT = Operator(
    "attention_context", _attention_context, _attention_context_compute, _products_work(1), ("head_size",)
)
_MASK = ("causal", "scale")

ATTENTION_STEPS = (
    *with_gradient(_SCORES, range(2), _attention_scores_grad_compute, _products_work(2), of="scores"),
    Operator(
        "masked_softmax",
        _masked_softmax,
        _masked_softmax_compute,
        elementwise_work(7.0),
        _MASK,
        optional=("window",),
        gradient=lambda back: back.add("masked_softmax_grad", (back.outputs[0], back.gradient), **back.values),
    ),
    Operator(
        "masked_softmax_grad",
        _masked_softmax_grad,
        _masked_softmax_grad_compute,
        elementwise_work(5.0),
        _MASK,
        optional=("window",),
    ),
    *with_gradient(_CONTEXT, range(2), _attention_context_grad_compute, _products_work(2)),
)
"""The operators of the forward pass:

- `attention_scores` multiplies queries and keys [batch, tokens, columns] to scores [batch, heads, queries, keys], which
  are not scaled.
- `masked_softmax` multiplies scores by `scale`, hides keys by the mask of `attention`, and computes the softmax over
  keys [Shoeybi 2019, Megatron-LM's fused kernel]. Its gradient has its output as input.
- `attention_context` sums values with these weights. Its `head_size` is that of the values.
"""
