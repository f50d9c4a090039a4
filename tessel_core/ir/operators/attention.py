"""Attention over heads, the layout that keeps heads whole when it is cut, and the cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    Work,
    WorkRule,
    axis_of,
    copying,
    count,
    integer,
    moved,
    need,
    no_work,
    same,
    same_device,
    wide,
)
from tessel_core.ir.types import TensorType


def visible_pairs(queries: int, keys: int, causal: bool) -> int:
    """Scores of one head: all, or those of each query with keys up to its own place; the last query sees all keys."""
    return queries * keys - causal * queries * (queries - 1) // 2


def _whole_heads(columns: TensorType, packed: int, values: Values) -> None:
    size = integer(values, "head_size", 1)
    fits = len(columns.shape) == 3 and columns.shape[-1] % (packed * size) == 0
    what = "three for each head" if packed > 1 else "one for each head"
    need(fits, f"takes [batch, tokens, columns] of {what}, {size} columns each, got {columns}")


def _attention(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    same_device(types)
    q, k, v = types
    _whole_heads(q, 1, values)
    causal = integer(values, "causal")
    fits = k == v and k.dtype == q.dtype and (k.shape[0], k.shape[-1]) == (q.shape[0], q.shape[-1])
    need(fits and len(k.shape) == 3, f"takes keys and values alike, as wide as the queries {q}, got {k} and {v}")
    need(causal in (0, 1), f"causal must be 0 or 1, got {causal}")
    need(not causal or k.shape[1] >= q.shape[1], f"takes a key for each query, got {q} and {k}")
    return (q,)


def _heads(array: Array, values: Values) -> Array:
    """[batch, tokens, columns] as [batch, head, tokens, head size], no narrower than fp32."""
    batch, tokens, _ = array.shape
    return wide(array).reshape(batch, tokens, -1, integer(values, "head_size", 1)).swapaxes(1, 2)


def _columns(heads: Array, like: Array) -> Array:
    return heads.swapaxes(1, 2).reshape(like.shape).astype(like.dtype)


def _weights(q: Array, k: Array, values: Values) -> Array:
    """Softmax of the scaled scores, of heads."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if values["causal"]:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _attention_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v = (_heads(each, values) for each in arrays)
    return [_columns(_weights(q, k, values) @ v, arrays[0])]


def _attention_work(products: int) -> WorkRule:
    """So many products; scores never reach memory [Dao 2022, FlashAttention]."""

    def work(types: Types, outputs: Types, values: Values) -> Work:
        q, k = types[0], types[1]
        pairs = visible_pairs(q.shape[1], k.shape[1], bool(values["causal"]))
        return Work(2.0 * products * q.shape[0] * pairs * q.shape[-1], moved(types, outputs))

    return work


def _attention_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 4)
    (out,) = _attention(types[:3], values)
    need(types[3] == out, f"takes the gradient of the output, {out}, got {types[3]}")
    return tuple(types[:3])


def _attention_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    q, k, v, dz = (_heads(each, values) for each in arrays)
    weights = _weights(q, k, values)
    by_weight = dz @ v.swapaxes(-1, -2)
    by_score = weights * (by_weight - (by_weight * weights).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    found = by_score @ k, by_score.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dz
    return [_columns(each, like) for each, like in zip(found, arrays, strict=False)]


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
    return [np.stack(parts, axis=3).reshape(batch, tokens, 3 * columns)]


def _write(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    same_device(types)
    cache, new = types
    axis, at = axis_of(values, len(cache.shape)), integer(values, "at")
    rest = [(each.dtype, each.shape[:axis], each.shape[axis + 1 :]) for each in types]
    need(rest[0] == rest[1], f"takes what differs along axis {axis} only, got {cache} and {new}")
    room = cache.shape[axis]
    need(at + new.shape[axis] <= room, f"has room for {room} along axis {axis}, not for {new.shape[axis]} from {at} on")
    return (cache,)


def _write_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    cache, new = arrays[0].copy(), arrays[1]
    axis, at = axis_of(values, cache.ndim), integer(values, "at")
    cache.swapaxes(0, axis)[at : at + new.shape[axis]] = new.swapaxes(0, axis)
    return [cache]


def _write_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(0.0, 2.0 * types[1].bytes)


_OF_HEADS = ("causal", "head_size")

ATTENTION = (
    Operator("attention", _attention, _attention_compute, _attention_work(2), _OF_HEADS),
    # The gradient makes the scores again [Dao 2022, appendix B].
    Operator("attention_grad", _attention_grad, _attention_grad_compute, _attention_work(5), _OF_HEADS),
    Operator("unpack_qkv", _unpack, _unpack_compute, no_work, ("head_size",), view=True),
    Operator("pack_qkv", _pack, _pack_compute, copying, ("head_size",)),
    Operator("write", _write, _write_compute, _write_work, ("at", "axis"), in_place=True),
)
"""`attention` of queries, keys and values, each [batch, tokens, heads x head size]; `unpack_qkv` of columns that hold,
head by head, its queries, keys and values [Shoeybi 2019, Megatron-LM], and `pack_qkv` the way back; `write` puts a
tensor into a larger one, from place `at` on.  How many heads there are follows from the columns."""
