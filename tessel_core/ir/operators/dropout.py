"""Dropout with a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.arrays import copied, namespace, rounded
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, need
from tessel_core.ir.operators.rules import one, together
from tessel_core.ir.operators.work import elementwise_work
from tessel_core.ir.types import TensorType


def kept_columns(columns: int, values: Values, like: Array) -> Array:
    """Return a mask of the columns, uint8 [columns]: 1 where dropout keeps the column, 0 where it drops it.

    NumPy draws the columns from the attribute `seed`. The result is an array of the library and on the device of
    `like`.
    """
    draw = np.random.default_rng(integer(values, "seed")).random(columns)
    return namespace(like).asarray((draw >= number(values, "rate")).astype(np.uint8), device=like.device)


def check_dropout(values: Values) -> None:
    """Raise InputError for a rate outside of [0, 1), or a seed that is not an integer of at least 0."""
    need(0 <= number(values, "rate") < 1, f"rate must be at least 0 and below 1, got {values['rate']}")
    integer(values, "seed")


def _dropout(types: Types, values: Values) -> tuple[TensorType, ...]:
    (x,) = one(types, values)
    check_dropout(values)
    need(len(x.shape) > 0, f"needs [.., columns], got {x}")
    return x, TensorType("uint8", x.shape, x.device)


def _dropout_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,) = arrays
    mask = copied(namespace(x).broadcast_to(kept_columns(x.shape[-1], values, x), x.shape))
    return [*_dropout_grad_compute((x, mask), values), mask]


def _dropout_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    dz, mask = together(types, 2)
    check_dropout(values)
    need((mask.dtype, mask.shape) == ("uint8", dz.shape), f"needs a gradient and a uint8 mask of it, got {dz}, {mask}")
    return (dz,)


@rounded
def _dropout_grad_compute(dz: Array, mask: Array, values: Values) -> Array:
    return dz * mask / (1 - number(values, "rate"))


def _dropout_gradient(back: Reverse) -> list[int | None]:
    return [back.one("dropout_grad", back.gradient, back.outputs[1], **back.values)]


_ATTRIBUTES = ("rate", "seed")

DROPOUT = (
    Operator("dropout", _dropout, _dropout_compute, elementwise_work(2.0), _ATTRIBUTES, gradient=_dropout_gradient),
    Operator("dropout_grad", _dropout_grad, _dropout_grad_compute, elementwise_work(2.0), _ATTRIBUTES),
)
"""`dropout` sets numbers to 0 with probability `rate` and divides the others by 1 - rate [Srivastava 2014].

Its second output is the mask, one byte per number, which the gradient uses. One draw per column holds for all rows. So
a part of a tensor drops the same columns as the whole tensor, unless the columns are divided. Time and memory are
counted as for one draw per number.
"""
