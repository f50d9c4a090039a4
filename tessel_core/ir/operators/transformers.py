"""Operators of transformers: norm, activation, embedding, loss, attention over heads, and the cache of keys and values.

Narrow formats are computed in fp32 and rounded once at the end, as frameworks do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import axis_of, integer
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    Work,
    WorkRule,
    need,
    rounded,
    wide,
)
from tessel_core.ir.operators.reductions import log_softmax_of
from tessel_core.ir.operators.rules import (
    alike,
    copying,
    count,
    elementwise_work,
    moved,
    no_work,
    one,
    read_work,
    same,
    together,
)
from tessel_core.ir.types import TensorType

NORM_EPSILON = 1e-5
"""Added to the variance [Radford 2019, GPT-2's published code]."""

_GELU_SCALE, _GELU_CUBE = float(np.sqrt(2 / np.pi)), 0.044715


def _is_integer(each: TensorType) -> bool:
    return each.dtype.startswith("int")


def _slope_of_tanh(x: Array) -> tuple[Array, Array]:
    """tanh of the tanh approximation's argument, and the argument's derivative."""
    tanh = np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x**3))
    return tanh, _GELU_SCALE * (1 + 3 * _GELU_CUBE * x**2)


@rounded
def _gelu_compute(x: Array, values: Values) -> Array:
    return np.asarray(0.5 * x * (1 + _slope_of_tanh(x)[0]))


@rounded
def _gelu_grad_compute(x: Array, dz: Array, values: Values) -> Array:
    tanh, inner = _slope_of_tanh(x)
    return np.asarray((0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * inner) * dz)


def _layer_norm(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, scale, shift = together(types, 3)
    fits = len(x.shape) > 0 and scale == shift == x.shaped(x.shape[-1:])
    need(fits, f"takes [.., n] with a scale and a shift of [n], got {', '.join(map(str, types))}")
    return (x,)


def _normal(x: Array) -> tuple[Array, Array]:
    """Mean 0 and variance 1 along the last axis, and what was divided by."""
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + NORM_EPSILON)
    return (x - x.mean(axis=-1, keepdims=True)) / deviation, deviation


@rounded
def _layer_norm_compute(x: Array, scale: Array, shift: Array, values: Values) -> Array:
    return _normal(x)[0] * scale + shift


def _layer_norm_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    _layer_norm((types[0], types[1], types[1]), values)
    need(types[2] == types[0], f"takes the gradient of the output, {types[0]}, got {types[2]}")
    return types[0], types[1], types[1]


@rounded
def _layer_norm_grad_compute(x: Array, scale: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    normal, deviation = _normal(x)
    rows = tuple(range(x.ndim - 1))
    by_normal = dz * scale
    centred = by_normal - by_normal.mean(axis=-1, keepdims=True)
    by_input = (centred - normal * (by_normal * normal).mean(axis=-1, keepdims=True)) / deviation
    return by_input, (dz * normal).sum(axis=rows), dz.sum(axis=rows)


def _embedding(types: Types, values: Values) -> tuple[TensorType, ...]:
    table, rows = together(types, 2)
    fits = len(table.shape) == 2 and _is_integer(rows)
    need(fits, f"takes a table [rows, n] and row numbers, got {table} and {rows}")
    return (table.shaped((*rows.shape, table.shape[-1])),)


def check_rows(rows: Array, size: int) -> Array:
    """The row numbers; InputError for one that a table of so many rows does not have."""
    outside = rows[(rows < 0) | (rows >= size)]
    if outside.size:
        raise InputError("embedding", f"row {outside.flat[0]} is not in the table, which has {size}")
    return rows


def _embedding_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(0.0, float(types[1].bytes + 2 * outputs[0].bytes))


def _embedding_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    (out,) = _embedding(types[:2], values)
    need(types[2] == out, f"takes the gradient of the output, {out}, got {types[2]}")
    return (types[0],)


def _embedding_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    table, rows, dz = arrays
    found = np.zeros_like(wide(table))
    np.add.at(found, check_rows(rows, len(table)), wide(dz))
    return [found.astype(table.dtype)]


def _embedding_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """The whole gradient is filled with zeros; rows that are hit are read and written."""
    _, rows, dz = types
    return Work(float(dz.elements), float(rows.bytes + 3 * dz.bytes + outputs[0].bytes))


def _predictions(types: Types) -> tuple[TensorType, TensorType]:
    logits, targets, number = together(types, 3)
    fits = len(logits.shape) > 0 and targets.shape == logits.shape[:-1] and _is_integer(targets)
    need(fits, f"takes [.., n] and a class for each of its rows, got {logits} and {targets}")
    need(number.shape == () and _is_integer(number), f"takes the number of predictions as int32[], got {number}")
    return logits, targets


def _cross_entropy(types: Types, values: Values) -> tuple[TensorType, ...]:
    logits, targets = _predictions(types)
    return (logits.shaped(targets.shape),)


def _cross_entropy_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    return (_predictions(types)[0],)


def _cross_entropy_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, targets, number = arrays
    found = np.take_along_axis(log_softmax_of(wide(arrays[0]), (-1,)), targets[..., None], axis=-1)[..., 0]
    return [(-found / number).astype(logits.dtype)]


def _cross_entropy_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, targets, number = arrays
    slope = np.exp(log_softmax_of(wide(arrays[0]), (-1,)))
    hit = np.take_along_axis(slope, targets[..., None], axis=-1)
    np.put_along_axis(slope, targets[..., None], hit - 1, axis=-1)
    return [(slope / number).astype(logits.dtype)]


def visible_pairs(queries: int, keys: int, causal: bool) -> int:
    """Scores of one head: all, or those of each query with keys up to its own place; the last query sees all keys."""
    return queries * keys - causal * queries * (queries - 1) // 2


def _whole_heads(columns: TensorType, packed: int, values: Values) -> None:
    size = integer(values, "head_size", 1)
    fits = len(columns.shape) == 3 and columns.shape[-1] % (packed * size) == 0
    what = "three for each head" if packed > 1 else "one for each head"
    need(fits, f"takes [batch, tokens, columns] of {what}, {size} columns each, got {columns}")


def _attention(types: Types, values: Values) -> tuple[TensorType, ...]:
    q, k, v = together(types, 3)
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
    cache, new = together(types, 2)
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

TRANSFORMERS = (
    Operator(
        "gelu",
        one,
        _gelu_compute,
        elementwise_work(9.0),
        gradient=lambda back: [back.one("gelu_grad", *back.inputs, back.gradient)],
    ),
    Operator("gelu_grad", alike, _gelu_grad_compute, elementwise_work(18.0)),
    Operator(
        "layer_norm",
        _layer_norm,
        _layer_norm_compute,
        elementwise_work(8.0),
        statistics=lambda types, values: 8 * types[0].elements / types[0].shape[-1],  # mean and deviation, fp32
        gradient=lambda back: back.add("layer_norm_grad", (*back.inputs[:2], back.gradient)),
    ),
    Operator("layer_norm_grad", _layer_norm_grad, _layer_norm_grad_compute, elementwise_work(16.0)),
    Operator(
        "embedding",
        _embedding,
        lambda a, values: [a[0][check_rows(a[1], len(a[0]))]],
        _embedding_work,
        gradient=lambda back: [back.add_for_weight("embedding_grad", (*back.inputs, back.gradient))[0], None],
    ),
    Operator("embedding_grad", _embedding_grad, _embedding_grad_compute, _embedding_grad_work),
    Operator(
        "cross_entropy",
        _cross_entropy,
        _cross_entropy_compute,
        read_work(5.0),
        statistics=lambda types, values: 4 * types[0].elements,  # log-probabilities, fp32
        gradient=lambda back: [back.one("cross_entropy_grad", *back.inputs), None, None],
        loss=True,
    ),
    Operator("cross_entropy_grad", _cross_entropy_grad, _cross_entropy_grad_compute, read_work(6.0)),
    Operator(
        "attention",
        _attention,
        _attention_compute,
        _attention_work(2),
        _OF_HEADS,
        statistics=lambda types, values: (
            4 * types[0].elements / integer(values, "head_size", 1)
        ),  # of each row of scores
        gradient=lambda back: back.add("attention_grad", (*back.inputs, back.gradient), **back.values),
    ),
    # The gradient makes the scores again [Dao 2022, appendix B].
    Operator("attention_grad", _attention_grad, _attention_grad_compute, _attention_work(5), _OF_HEADS),
    Operator(
        "unpack_qkv",
        _unpack,
        _unpack_compute,
        no_work,
        ("head_size",),
        view=True,
        gradient=lambda back: back.add("pack_qkv", back.each_gradient(), **back.values),
    ),
    Operator("pack_qkv", _pack, _pack_compute, copying, ("head_size",)),
    Operator("write", _write, _write_compute, _write_work, ("at", "axis"), in_place=True),
)
"""GELU by its tanh approximation [Hendrycks 2016].  `cross_entropy` of each prediction over their number in the whole
batch, so that sums over micro-batches and replicas are the batch's.  `attention` of queries, keys and values, each
[batch, tokens, heads x head size]; `unpack_qkv` of columns that hold, head by head, its queries, keys and values
[Shoeybi 2019, Megatron-LM], and `pack_qkv` the way back; `write` puts a tensor into a larger one, from place `at` on.
How many heads there are follows from the columns."""
