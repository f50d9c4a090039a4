"""Operators of transformers: embedding, rotary positions, loss, and the cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.arrays import in_format, namespace, rounded, summed_rows, wide
from tessel_core.ir.operators.attributes import axis_of, integer, number
from tessel_core.ir.operators.formats import FUSED
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, Work, need
from tessel_core.ir.operators.reductions import log_softmax_of
from tessel_core.ir.operators.rules import one, together, with_gradient
from tessel_core.ir.operators.work import elementwise_work, read_work
from tessel_core.ir.types import TensorType, places_here


def _is_integer(each: TensorType) -> bool:
    return each.dtype.startswith("int")


def _embedding(types: Types, values: Values) -> tuple[TensorType, ...]:
    table, rows = together(types, 2)
    fits = len(table.shape) == 2 and _is_integer(rows)
    need(fits, f"needs a table [rows, n] and row numbers, got {table} and {rows}")
    if "parts" in values or "index" in values:
        need({"parts", "index"} <= values.keys(), "needs both index and parts, or neither")
        need(integer(values, "index") < integer(values, "parts", 1), f"index must be below {values['parts']}")
    return (table.shaped((*rows.shape, table.shape[-1])),)


def check_rows(rows: Array, size: int) -> Array:
    """Return the row numbers. Raises InputError if one is not below `size`, the number of rows of the table."""
    outside = rows[(rows < 0) | (rows >= size)]
    if len(outside):
        raise InputError("embedding", f"row {int(outside[0])} is not in the table, which has {size} rows")
    return rows


def rows_here(rows: Array, size: int, values: Values) -> tuple[Array, Array]:
    """Return the indices into this device's part of the table, and a mask of the rows that the part has.

    The part has `size` rows. It is part `index` of `parts`, or the whole table without these attributes. Rows that it
    lacks get index 0.
    """
    xp = namespace(rows)
    if "parts" not in values:
        return check_rows(rows, size), xp.ones(tuple(rows.shape), dtype=xp.bool, device=rows.device)
    found = check_rows(rows, size * integer(values, "parts")) - integer(values, "index") * size
    here = (found >= 0) & (found < size)
    return xp.where(here, found, 0), here


def _embedding_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    table = arrays[0]
    rows, here = rows_here(arrays[1], len(table), values)
    return [namespace(table).where(here[..., None], table[rows], 0)]


def _embedding_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    table, given, dz = arrays
    rows, here = rows_here(given, len(table), values)
    found = namespace(dz).where(here[..., None], wide(dz), 0).reshape(-1, table.shape[-1])
    return [in_format(summed_rows(found, rows.reshape(-1), len(table)), table)]


def _embedding_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: writing zeros to the whole gradient, then reading and writing the rows that were looked up."""
    _, rows, dz = types
    return Work(float(dz.elements), float(rows.bytes + 3 * dz.bytes + outputs[0].bytes))


def _rotary(types: Types, values: Values) -> tuple[TensorType, ...]:
    (made,) = one(types, values)
    head, size, first = integer(values, "head_size", 1), _rotated(values), integer({"first": 0, **values}, "first")
    number(values, "base")
    integer(values, "at")
    need(values.get("inverse", 0) in (0, 1), f"inverse must be 0 or 1, got {values.get('inverse')}")
    fits = len(made.shape) == 3 and made.shape[-1] % head == 0
    need(fits, f"needs [batch, tokens, columns] with {head} columns per head, got {made}")
    need(
        size % 2 == 0 and first + size <= head,
        f"must rotate an even number of the {head} columns of a head, got {size}",
    )
    return (made,)


def _rotated(values: Values) -> int:
    """Return the number of columns per head that are rotated."""
    return integer({"size": values["head_size"], **values}, "size", 2)


def turns(tokens: int, values: Values) -> Array:
    """Return the rotation angles in radians, [tokens, pairs of columns]. They are negative if `inverse` is set."""
    size, parts = _rotated(values), integer({"parts": 1, **values}, "parts", 1)
    speeds = number(values, "base") ** (-np.arange(0, size, 2) / size)
    here = places_here(tokens, integer({"index": 0, **values}, "index"), parts, bool(values.get("balanced", 0)))
    return np.asarray((integer(values, "at") + here)[:, None] * speeds * (-1 if values.get("inverse", 0) else 1))


@rounded
def _rotary_compute(x: Array, values: Values) -> Array:
    xp, heads = namespace(x), x.reshape(*x.shape[:2], -1, integer(values, "head_size"))
    first, half = integer({"first": 0, **values}, "first"), _rotated(values) // 2
    angles = xp.asarray(turns(x.shape[1], values)[:, None], dtype=x.dtype, device=x.device)
    one, other = heads[..., first : first + half], heads[..., first + half : first + 2 * half]
    turned = one * xp.cos(angles) - other * xp.sin(angles), other * xp.cos(angles) + one * xp.sin(angles)
    return xp.concat([heads[..., :first], *turned, heads[..., first + 2 * half :]], axis=-1).reshape(x.shape)


def _rotary_gradient(back: Reverse) -> list[int | None]:
    """Rotate the gradient back."""
    inverse = 1 - integer({"inverse": 0, **back.values}, "inverse")
    return [back.one("rotary", back.gradient, **{**back.values, "inverse": inverse})]


def _predictions(types: Types) -> tuple[TensorType, TensorType]:
    logits, targets, number = together(types, 3)
    fits = len(logits.shape) > 0 and targets.shape == logits.shape[:-1] and _is_integer(targets)
    need(fits, f"needs logits [.., n] and one class per row, got {logits} and {targets}")
    need(number.shape == () and _is_integer(number), f"needs the number of predictions as int32[], got {number}")
    return logits, targets


def _cross_entropy(types: Types, values: Values) -> tuple[TensorType, ...]:
    logits, targets = _predictions(types)
    return (logits.shaped(targets.shape),)


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


def _copies_of_logits(types: Types, values: Values) -> float:
    """Return the extra bytes of PyTorch's loss. For 16-bit logits, PyTorch holds three fp32 copies of them.

    These are the log-probabilities and two gradients, 12 bytes per logit. At that moment the logits are already freed
    and their 16-bit gradient does not exist yet. These two account for 4 of the 12 bytes, so 8 bytes are extra. A
    compiled loss makes no copies. For fp32 logits, the gradient reuses the memory of the log-probabilities. All this
    was measured on an H100.
    """
    logits = types[0]
    copied = logits.dtype in ("bf16", "fp16") and FUSED not in values
    return 8 * logits.elements if copied else 0


def _write(types: Types, values: Values) -> tuple[TensorType, ...]:
    cache, new = together(types, 2)
    axis, at = axis_of(values, len(cache.shape)), integer(values, "at")
    rest = [(each.dtype, each.shape[:axis], each.shape[axis + 1 :]) for each in types]
    need(rest[0] == rest[1], f"needs tensors that differ along axis {axis} only, got {cache} and {new}")
    room = cache.shape[axis]
    need(
        at + new.shape[axis] <= room,
        f"cannot write {new.shape[axis]} from index {at} along axis {axis}, which has size {room}",
    )
    return (cache,)


def _write_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    cache, new = arrays[0].copy(), arrays[1]
    axis, at = axis_of(values, cache.ndim), integer(values, "at")
    cache.swapaxes(0, axis)[at : at + new.shape[axis]] = new.swapaxes(0, axis)
    return [cache]


def _write_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(0.0, 2.0 * types[1].bytes)


_EMBEDDING = Operator(
    "embedding",
    _embedding,
    _embedding_compute,
    lambda types, outputs, values: Work(0.0, float(types[1].bytes + 2 * outputs[0].bytes)),
    optional=("index", "over", "parts"),
    gradient=lambda back: [back.add_for_weight("embedding_grad", (*back.inputs, back.gradient))[0], None],
)

TRANSFORMERS = (
    *with_gradient(_EMBEDDING, range(2), _embedding_grad_compute, _embedding_grad_work, made=(0,)),
    Operator(
        "rotary",
        _rotary,
        _rotary_compute,
        elementwise_work(3.0),
        ("at", "base", "head_size"),
        optional=("balanced", "first", "index", "inverse", "over", "parts", "size"),
        gradient=_rotary_gradient,
    ),
    Operator(
        "cross_entropy",
        _cross_entropy,
        _cross_entropy_compute,
        read_work(5.0),
        statistics=lambda types, values: 4 * types[0].elements,  # Log-probabilities, in fp32.
        gradient=lambda back: [back.one("cross_entropy_grad", *back.inputs), None, None],
        loss=True,
    ),
    Operator(
        "cross_entropy_grad",
        lambda types, values: (_predictions(types)[0],),
        _cross_entropy_grad_compute,
        read_work(6.0),
        workspace=_copies_of_logits,
    ),
    Operator("write", _write, _write_compute, _write_work, ("at", "axis"), in_place=True),
)
"""Operators that their names do not explain fully:

- `rotary` rotates pairs of columns of each head by an angle that grows with the position [Su 2021]. The two columns of
  a pair are half a head apart. Positions count from `at`. With `index` and `parts`, the tokens are that part of a
  sequence. `first` and `size` select the columns of a head that are rotated.
- `embedding` looks up rows of a table. If the table is part `index` of `parts`, rows of other parts give zeros.
- `cross_entropy` divides the loss of each prediction by the number of predictions in the whole batch. So the sum over
  micro-batches and replicas is the loss of the batch.
- `write` copies a tensor into a larger tensor, starting at index `at`.
"""
