"""Attention over a sequence that is divided among devices, one block of keys at a time [Liu 2023, Ring Attention].

Device `index` of `parts` holds some of the tokens. With a causal mask these are two chunks, one from each end of the
sequence, so that all devices have equal work [Brandon 2023, Striped Attention; Llama Team 2024, arXiv 2407.21783,
section 3.3.2]. Keys and values circulate in a ring. At step s, a device uses the keys and values of the device s
positions before it. Each step returns its output, and the log-sum-exp per query and head. The log-sum-exp allows the
outputs of two steps to be merged [Dao 2022, FlashAttention].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.arrays import in_format, namespace, wide
from tessel_core.ir.operators.attention import attention_types, capped_scores, columns_of, in_groups, slope_of_cap
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, Work, WorkRule, need
from tessel_core.ir.operators.rules import count, together
from tessel_core.ir.operators.work import elementwise_work, moved
from tessel_core.ir.types import TensorType, places_here, wide_format


def _block(types: Types, values: Values) -> tuple[TensorType, ...]:
    (made,) = attention_types(types, values)
    q = types[0]
    parts = integer(values, "parts", 1)
    need(integer(values, "index") < parts, f"index must be below {parts}, got {values['index']}")
    need(integer(values, "step") < parts, f"step must be below {parts}, got {values['step']}")
    heads = q.shape[2] // integer(values, "head_size", 1)
    return made, TensorType(wide_format(q.dtype), (*q.shape[:2], heads), q.device)


def _seen(q: Array, k: Array, values: Values) -> Array:
    queries, keys = q.shape[-2], k.shape[-2]
    return namespace(q).asarray(_pairs_seen(queries, keys, values), device=q.device)


def _pairs_seen(queries: int, keys: int, values: Values) -> Array:
    """Return a mask [queries, keys] that is true where the query sees the key."""
    parts, index = integer(values, "parts", 1), integer(values, "index")
    balanced = bool(values["causal"])
    q = places_here(queries, index, parts, balanced)[:, None]
    k = places_here(keys, (index - integer(values, "step")) % parts, parts, balanced)[None]
    if not balanced:
        return np.ones((queries, keys), bool)
    return (k <= q) & (k > q - integer(values, "window", 1)) if "window" in values else k <= q


def _block_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v = in_groups(arrays, values)
    xp = namespace(q)
    scores = xp.where(_seen(q, k, values), capped_scores(q, k, values), -math.inf)
    largest = xp.max(scores, axis=-1, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, 0)
    powers = xp.exp(scores - largest)
    total = powers.sum(axis=-1, keepdims=True)
    out = powers @ v / xp.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        logs = largest + xp.log(total)
    return [columns_of(out, arrays[0]), columns_of(logs, logs)]


def _merge(types: Types, values: Values) -> tuple[TensorType, ...]:
    together(types, 4)
    need(types[0] == types[2] and types[1] == types[3], f"needs two outputs and their logarithms, got {types}")
    return types[0], types[1]


def _merge_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    one, log_one, other, log_other = arrays
    xp = namespace(one)
    logs = xp.logaddexp(log_one, log_other)

    def weighed(out: Array, log: Array) -> Array:
        heads = wide(out).reshape(*log.shape, -1)
        return (heads * xp.exp(log - logs)[..., None]).reshape(out.shape)

    return [in_format(weighed(one, log_one) + weighed(other, log_other), one), logs]


def _block_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 6)
    made, logs = _block(types[:3], values)
    need(
        types[3] == types[5] == made and types[4] == logs, f"needs the output, its logarithms and its gradient: {made}"
    )
    return tuple(types[:3])


def _block_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v, out, logs, dz = in_groups(arrays, values, (0, 3, 4, 5))
    scores = capped_scores(q, k, values)
    xp, seen = namespace(q), _seen(q, k, values)
    weights = xp.where(seen, xp.exp(xp.where(seen, scores - logs, 0)), 0)
    by_weight = dz @ v.swapaxes(-1, -2)
    by_score = slope_of_cap(scores, values) * weights * (by_weight - (dz * out).sum(axis=-1, keepdims=True))
    scaled = by_score / math.sqrt(q.shape[-1])
    by_key, by_value = scaled.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dz
    found = scaled @ k, by_key.sum(axis=2), by_value.sum(axis=2)
    return [columns_of(each, like) for each, like in zip(found, arrays, strict=False)]


def _block_work(products: int) -> WorkRule:
    def work(types: Types, outputs: Types, values: Values) -> Work:
        """Return the work for the pairs of query and key that the mask leaves visible in one block.

        A causal mask leaves half of the pairs, and a window leaves at most its own length per query.
        """
        q, k, v = types[:3]
        pairs = float(q.shape[1] * k.shape[1])
        if values["causal"]:
            pairs = (pairs + (q.shape[1] if values["step"] == 0 else 0)) / 2
            pairs = min(pairs, float(q.shape[1] * integer({"window": k.shape[1], **values}, "window", 1)))
        made = q.shape[2] * v.shape[2] // k.shape[2]
        columns = (products - products // 2) * q.shape[2] + products // 2 * made
        return Work(2.0 * q.shape[0] * pairs * columns, moved(types, outputs))

    return work


_BLOCK = ("causal", "head_size", "index", "parts", "step")
_MORE = ("cap", "over", "window")

RING = (
    Operator("attention_block", _block, _block_compute, _block_work(2), _BLOCK, optional=_MORE),
    Operator("attention_merge", _merge, _merge_compute, elementwise_work(3.0)),
    Operator("attention_block_grad", _block_grad, _block_grad_compute, _block_work(5), _BLOCK, optional=_MORE),
)
"""The operators of this module:

- `attention_block` has queries and one block of keys and values as inputs. It returns the block's output and its
  log-sum-exp [batch, tokens, heads].
- `attention_merge` merges the results of two blocks.
- `attention_block_grad` has the merged results and the output's gradient as inputs.
"""
