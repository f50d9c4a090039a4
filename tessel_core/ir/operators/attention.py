"""Attention over heads with a causal mask or a bias, and packing of queries, keys and values into one tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tessel_core.ir.operators.arrays import in_format, namespace, wide
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.dropout import check_dropout, kept_columns
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, Work, WorkRule, need
from tessel_core.ir.operators.rules import count, same, together, with_gradient
from tessel_core.ir.operators.work import copying, moved, no_work
from tessel_core.ir.types import TensorType


def visible_pairs(queries: int, keys: int, causal: bool, window: int = 0) -> int:
    """Return the number of pairs of query and key per head that the mask leaves visible.

    With a causal mask, the last query sees all keys, and each earlier query sees one key less. With a window, each
    query sees at most the latest `window` keys.
    """
    pairs = queries * keys - causal * queries * (queries - 1) // 2
    if not window:
        return pairs
    hidden_last, hidden_first = (
        max(0, keys - window),
        max(0, keys - queries + 1 - window),
    )  # Number of keys that the window hides from the last and from the first query.
    return pairs - (hidden_last * (hidden_last + 1) - hidden_first * (hidden_first - 1)) // 2 if hidden_last else pairs


def _whole_heads(columns: TensorType, packed: int, values: Values) -> None:
    size = integer(values, "head_size", 1)
    fits = len(columns.shape) == 3 and columns.shape[-1] % (packed * size) == 0
    need(fits, f"needs [batch, tokens, columns] with {packed * size} columns per head, got {columns}")


def check_mask(queries: int, keys: int, values: Values) -> None:
    """Raise InputError if `causal` and `window` are no valid mask for these numbers of queries and keys."""
    causal = integer(values, "causal")
    need(causal in (0, 1), f"causal must be 0 or 1, got {causal}")
    need(
        not causal or keys >= queries, f"needs at least as many keys as queries, got {queries} queries and {keys} keys"
    )
    if "window" in values:
        need(integer(values, "window", 1) > 0 and causal == 1, "can have a window only with a causal mask")


def attention_types(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: return the type of the output from queries, keys and values, each [batch, tokens, columns]."""
    q, k, v = together(types, 3)
    _whole_heads(q, 1, values)
    _whole_heads(k, 1, values)
    fits = k.dtype == v.dtype == q.dtype and k.shape[:2] == v.shape[:2] and k.shape[0] == q.shape[0]
    need(fits and len(v.shape) == 3, f"needs one value per key, and as many samples as the queries {q}, got {k}, {v}")
    heads, groups = (each.shape[2] // integer(values, "head_size", 1) for each in (q, k))
    need(
        groups > 0 and heads % groups == 0,
        f"needs a number of key heads that divides the {heads} query heads, got {groups}",
    )
    need(v.shape[2] % groups == 0, f"needs values of {groups} heads, like the keys, got {v}")
    check_mask(q.shape[1], k.shape[1], values)
    if "cap" in values:
        need(number(values, "cap") > 0, f"cap must be above 0, got {values['cap']}")
    if "rate" in values or "seed" in values:
        need("rate" in values and "seed" in values, "needs both a rate and a seed for dropout, got only one of them")
        check_dropout(values)
    return (q.resized(2, heads * (v.shape[2] // groups)),)


def _heads(array: Array, values: Values) -> Array:
    """Reshape [batch, tokens, columns] to [batch, head, tokens, head size], in at least fp32."""
    batch, tokens, _ = array.shape
    return wide(array).reshape(batch, tokens, -1, integer(values, "head_size", 1)).swapaxes(1, 2)


def in_groups(arrays: Arrays, values: Values, of_queries: Sequence[int] = (0, 3)) -> list[Array]:
    """Reshape each array to [batch, group, head of the group, tokens, size].

    The query heads of a group share one key head and one value head. `of_queries` lists the arrays, by index, that have
    one head per query head.
    """
    groups = arrays[1].shape[2] // integer(values, "head_size", 1)
    heads = arrays[0].shape[2] // integer(values, "head_size", 1)

    def parted(array: Array, each: int) -> Array:
        heads = wide(array).reshape(*array.shape[:2], groups, each, -1)
        return namespace(array).permute_dims(heads, (0, 2, 3, 1, 4))

    return [parted(array, heads // groups if place in of_queries else 1) for place, array in enumerate(arrays)]


def columns_of(heads: Array, like: Array) -> Array:
    """Reshape [batch, .., tokens, size] to [batch, tokens, columns], in the number format of `like`."""
    batch, tokens, last = len(heads), heads.shape[-2], heads.ndim - 2
    return in_format(namespace(heads).moveaxis(heads, last, 1).reshape(batch, tokens, -1), like)


def _scores(q: Array, k: Array) -> Array:
    """Return the scores: products of queries and keys per head, divided by the root of the head size."""
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


def _capped(scores: Array, values: Values) -> Array:
    """Return the scores. If there is a cap, bound them to ± cap by a tanh."""
    cap = values.get("cap")
    return cap * namespace(scores).tanh(scores / cap) if isinstance(cap, int | float) else scores


def capped_scores(q: Array, k: Array, values: Values) -> Array:
    """Return the scores, products of queries and keys. If there is a cap, they are bounded to ± cap by a tanh."""
    return _capped(_scores(q, k), values)


def slope_of_cap(capped: Array, values: Values) -> Array | float:
    """Return the derivative of the cap's tanh, computed from capped scores. It is 1 without a cap."""
    return 1 - (capped / number(values, "cap")) ** 2 if "cap" in values else 1.0


def _weights(q: Array, k: Array, values: Values) -> Array:
    """Return the softmax of the visible scores."""
    return softmax_of(seen_scores(capped_scores(q, k, values), values))


def seen_scores(scores: Array, values: Values) -> Array:
    """Return the scores, with minus infinity where a mask hides the key."""
    if not values["causal"]:
        return scores
    queries, keys = scores.shape[-2:]
    xp = namespace(scores)
    seen = xp.tril(xp.ones((queries, keys), dtype=xp.bool, device=scores.device), k=keys - queries)
    if "window" in values:
        seen = xp.triu(seen, k=keys - queries - integer(values, "window", 1) + 1)
    return xp.where(seen, scores, -math.inf)


def softmax_of(scores: Array) -> Array:
    """Return the softmax over keys."""
    xp = namespace(scores)
    powers = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _dropped(v: Array, values: Values) -> Array | float:
    """Return the factor by which dropout multiplies each attention weight: 0 or 1 / (1 - rate). It is 1 without
    dropout.

    One draw per key holds for all queries.
    """
    if "rate" not in values:
        return 1.0
    return in_format(kept_columns(v.shape[-2], values, v), v) / (1 - number(values, "rate"))


def _attention_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v = in_groups(arrays, values)
    return [columns_of((_weights(q, k, values) * _dropped(v, values)) @ v, arrays[0])]


def _attention_work(products: int) -> WorkRule:
    """Return the rule for an attention that computes `products` matrix products.

    Scores count no memory traffic, because the kernel never writes them to memory [Dao 2022, FlashAttention].
    """

    def work(types: Types, outputs: Types, values: Values) -> Work:
        q, k, v = types[:3]
        pairs = visible_pairs(q.shape[1], k.shape[1], bool(values["causal"]), int(values.get("window", 0)))  # type: ignore[arg-type]
        made = q.shape[2] * v.shape[2] // k.shape[2]  # Columns of the output.
        columns = (products - products // 2) * q.shape[2] + products // 2 * made
        return Work(2.0 * q.shape[0] * pairs * columns, moved(types, outputs))

    return work


def _attention_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v, dz = in_groups(arrays, values)
    bend = slope_of_cap(capped_scores(q, k, values), values)
    dropped = _dropped(v, values)
    by_query, *shared = _slopes(_weights(q, k, values), q, k, v, dz, bend, dropped)[:3]
    found = by_query, *(each.sum(axis=2) for each in shared)
    return [columns_of(each, like) for each, like in zip(found, arrays, strict=False)]


def _slopes(
    weights: Array, q: Array, k: Array, v: Array, dz: Array, bend: Array | float = 1.0, dropped: Array | float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Return the gradients of queries, keys, values and scores.

    `bend` is the derivative of the cap. `dropped` is the factor by which dropout multiplies each attention weight.
    """
    by_weight = dropped * (dz @ v.swapaxes(-1, -2))
    by_score = bend * weights * (by_weight - (by_weight * weights).sum(axis=-1, keepdims=True))
    scaled = by_score / math.sqrt(q.shape[-1])
    return scaled @ k, scaled.swapaxes(-1, -2) @ q, (dropped * weights).swapaxes(-1, -2) @ dz, by_score


def _masked(values: Values) -> Values:
    """Return the attributes. If `causal` is missing, it is added as 0."""
    return {"causal": 0, **values}


def _attention_bias(types: Types, values: Values) -> tuple[TensorType, ...]:
    q, k, _, bias = together(types, 4)
    (made,) = attention_types(types[:3], _masked(values))
    need(k.shape[2] == q.shape[2], f"needs keys as wide as the queries {q}, got {k}")
    flag = values.get("consecutive", 0)
    need(flag in (0, 1), f"consecutive must be 0 or 1, got {flag}")
    heads = q.shape[2] // integer(values, "head_size", 1)
    fits = bias.dtype == q.dtype and len(bias.shape) == 4 and bias.shape[1:] == (heads, q.shape[1], k.shape[1])
    need(fits, f"needs a bias [g, {heads}, {q.shape[1]}, {k.shape[1]}] like the queries {q}, got {bias}")
    need(
        bias.shape[0] > 0 and q.shape[0] % bias.shape[0] == 0,
        f"needs a number of biases that divides the batch of {q}, got {bias}",
    )
    return (made,)


def _biased_weights(q: Array, k: Array, bias: Array, values: Values) -> Array:
    """Return the attention weights.

    There are g biases. Sample b uses bias b mod g, or bias b // (batch / g) if `consecutive` is set.
    """
    scores = _scores(q, k)
    repeats = len(scores) // len(bias)
    xp = namespace(bias)
    each = xp.repeat(bias, repeats, axis=0) if values.get("consecutive") else xp.tile(bias, (repeats, 1, 1, 1))
    return softmax_of(seen_scores(scores + each, _masked(values)))


def _attention_bias_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v = (_heads(each, values) for each in arrays[:3])
    return [columns_of(_biased_weights(q, k, wide(arrays[3]), values) @ v, arrays[0])]


def _attention_bias_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    bias = arrays[3]
    q, k, v, dz = (_heads(each, values) for each in (*arrays[:3], arrays[4]))
    *found, by_score = _slopes(_biased_weights(q, k, wide(bias), values), q, k, v, dz)
    groups = (len(bias), -1, *bias.shape[1:]) if values.get("consecutive") else (-1, *bias.shape)
    by_bias = in_format(by_score.reshape(groups).sum(axis=1 if values.get("consecutive") else 0), bias)
    return [*(columns_of(each, like) for each, like in zip(found, arrays, strict=False)), by_bias]


def _attention_bias_work(products: int) -> WorkRule:
    """Return the rule of attention with a bias: the work of attention, and one addition per visible score."""
    plain = _attention_work(products)

    def work(types: Types, outputs: Types, values: Values) -> Work:
        found = plain(types, outputs, _masked(values))
        _, heads, queries, keys = types[3].shape
        pairs = visible_pairs(queries, keys, bool(values.get("causal")))
        return replace(found, flops=found.flops + types[0].shape[0] * heads * pairs)

    return work


def _unpack(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    _whole_heads(types[0], 3, values)
    return (types[0].resized(2, types[0].shape[2] // 3),) * 3


def _unpack_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    batch, tokens, columns = arrays[0].shape
    packed = arrays[0].reshape(batch, tokens, -1, 3, integer(values, "head_size", 1))
    return [packed[:, :, :, i].reshape(batch, tokens, columns // 3) for i in range(3)]


def _pack(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    each = same(types)
    _whole_heads(each, 1, values)
    return (each.resized(2, 3 * each.shape[2]),)


def _pack_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    batch, tokens, columns = arrays[0].shape
    parts = [each.reshape(batch, tokens, -1, integer(values, "head_size", 1)) for each in arrays]
    return [namespace(parts[0]).stack(parts, axis=3).reshape(batch, tokens, 3 * columns)]


def _row_sums(types: Types, values: Values) -> float:
    """Return the size in bytes of the log-sum-exp of each row of scores, which is kept in fp32."""
    return 4 * types[0].elements / integer(values, "head_size", 1)


_ATTENTION = Operator(
    "attention",
    attention_types,
    _attention_compute,
    _attention_work(2),
    ("causal", "head_size"),
    optional=("cap", "rate", "seed", "window"),
    statistics=_row_sums,
)
_ATTENTION_BIAS = Operator(
    "attention_bias",
    _attention_bias,
    _attention_bias_compute,
    _attention_bias_work(2),
    ("head_size",),
    optional=("causal", "consecutive"),
    statistics=_row_sums,
)
ATTENTION = (
    # The gradient kernels compute the scores again [Dao 2022, appendix B].
    *with_gradient(_ATTENTION, range(3), _attention_grad_compute, _attention_work(5)),
    *with_gradient(_ATTENTION_BIAS, range(4), _attention_bias_grad_compute, _attention_bias_work(5)),
    Operator(
        "unpack_qkv",
        _unpack,
        _unpack_compute,
        no_work,
        ("head_size",),
        view=True,
        gradient=lambda back: back.add("pack_qkv", back.each_gradient(), **back.values),
    ),
    Operator(
        "pack_qkv",
        _pack,
        _pack_compute,
        copying,
        ("head_size",),
        gradient=lambda back: back.add("unpack_qkv", (back.gradient,), **back.values),
    ),
)
"""The number of heads follows from the columns and the attribute `head_size`.

- `attention` takes queries, keys and values, each [batch, tokens, heads x head size]. Several heads of queries may
  share one head of keys and values [Ainslie 2023, grouped-query attention]. Values may have another head size
  [DeepSeek-AI 2024, section 2.1]. `window` is the largest number of keys that a query sees. `cap` bounds the scores by
  a tanh. With `rate` and `seed` the kernel drops weights as `dropout` does, but keeps no mask.
- `attention_bias` adds a bias [g, heads, queries, keys] to the scores. Sample b takes bias b mod g. With `consecutive`,
  each bias serves as many consecutive samples.
- Both have a causal mask if `causal` is 1.
- `unpack_qkv` splits columns that hold the queries, keys and values of each head side by side [Shoeybi 2019,
  Megatron-LM]. `pack_qkv` is its inverse.
"""
