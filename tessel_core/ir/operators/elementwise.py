"""Elementwise operators of several tensors. The module `functions` has most operators of one tensor.

Inputs broadcast as in NumPy. Gradients of broadcast inputs are summed over the repeated axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessel_core.ir.operators.arrays import NUMPY_TYPES, in_format, namespace, rounded, wide
from tessel_core.ir.operators.functions import FUNCTION_GRADIENTS, FUNCTIONS, sigmoid
from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    GradientRule,
    Operator,
    Reverse,
    ShapeRule,
    Types,
    Values,
    need,
)
from tessel_core.ir.operators.rules import alike, broadcast, count, joined, one, summed_to, with_gradient
from tessel_core.ir.operators.work import copying, elementwise_work
from tessel_core.ir.types import REAL, WIDTHS, TensorType


def _power(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule of a power. The exponent may have another number format than the base."""
    count(types, 2)
    return (types[0].shaped(broadcast(types)),)


def _compared(types: Types, values: Values) -> tuple[TensorType, ...]:
    (found,) = joined(types, values)
    return (TensorType("bool", found.shape, found.device),)


def _logical(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(all(each.dtype == "bool" for each in types), f"needs bool tensors, got {', '.join(map(str, types))}")
    return one(types, values) if len(types) == 1 else joined(types, values)


def _chosen(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    condition, x, y = types
    fits = condition.dtype == "bool" and x.dtype == y.dtype
    need(fits, f"needs a bool tensor and two tensors of one dtype, got {condition}, {x}, {y}")
    return (x.shaped(broadcast(types)),)


def _cast(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    dtype = values["dtype"]
    need(isinstance(dtype, str) and dtype in WIDTHS, f"dtype must be one of {', '.join(WIDTHS)}, got {dtype!r}")
    return (TensorType(str(dtype), types[0].shape, types[0].device),)


def _divided(xp: Any, x: Array, y: Array) -> Array:
    """Return x / y. For integers, round the quotient towards zero."""
    if xp.isdtype(x.dtype, "real floating"):
        return x / y
    return xp.sign(x) * xp.sign(y) * (xp.abs(x) // xp.abs(y))


def _binary(
    kind: str,
    flops: float,
    function: Callable[[Any, Array, Array], Array],
    gradient: GradientRule,
    infer: ShapeRule = joined,
) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        return [in_format(function(namespace(arrays[0]), *arrays), arrays[0])]

    return Operator(kind, infer, compute, elementwise_work(flops), gradient=gradient)


def _bools(kind: str, infer: ShapeRule, function: Callable[[Any, Array, Array], Array]) -> Operator:
    return Operator(kind, infer, lambda arrays, values: [function(namespace(arrays[0]), *arrays)], elementwise_work())


def _summed(back: Reverse, place: int, kind: str, *inputs: int) -> int | None:
    """Write the gradient of input `place` with operator `kind` and return it, or None if it is not needed.

    The gradient is summed over the axes along which the input was broadcast.
    """
    return summed_to(back, back.one_for(place, kind, *inputs), place) if back.wanted[place] else None


def _negated(back: Reverse, gradient: int | None, place: int) -> int | None:
    return None if gradient is None else back.one_for(place, "neg", gradient)


def _sub_gradients(back: Reverse) -> list[int | None]:
    by_x, by_y = (summed_to(back, back.gradient, place) for place in range(2))
    return [by_x, _negated(back, by_y, 1)]


def _mul_gradients(back: Reverse) -> list[int | None]:
    return [_summed(back, place, "mul", back.gradient, back.inputs[1 - place]) for place in range(2)]


def _div_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule of a division: dz / y for the dividend, and -dz / y times the quotient for the divisor."""
    divided = back.one("div", back.gradient, back.inputs[1])
    by_y = _summed(back, 1, "mul", divided, back.outputs[0])
    return [summed_to(back, divided, 0), _negated(back, by_y, 1)]


def _where_true(back: Reverse, place: int, condition: int) -> int | None:
    """Return the gradient of input `place`: dz where the condition holds, 0 elsewhere. None if it is not needed."""
    mask = back.one_for(place, "cast", condition, dtype=back.types[place].dtype)
    return _summed(back, place, "mul", back.gradient, mask)


def _choice(*comparisons: str) -> GradientRule:
    """Return a rule that gives dz to an input where its comparison holds, such as `greater` for a maximum."""

    def rule(back: Reverse) -> list[int | None]:
        asked = zip(range(2), comparisons, back.wanted, strict=True)
        return [
            _where_true(back, place, back.one_for(place, kind, *back.inputs)) if wanted else None
            for place, kind, wanted in asked
        ]

    return rule


def _where_gradients(back: Reverse) -> list[int | None]:
    condition = back.inputs[0]
    by_x = _where_true(back, 1, condition) if back.wanted[1] else None
    by_y = _where_true(back, 2, back.one_for(2, "not", condition)) if back.wanted[2] else None
    return [None, by_x, by_y]


def _prelu_gradients(back: Reverse) -> list[int | None]:
    made = back.add("prelu_grad", (*back.inputs, back.gradient))
    return [summed_to(back, each, place) for place, each in enumerate(made)]


def _pow_gradients(back: Reverse) -> list[int | None]:
    """Gradient rule of a power: for the base, and for the exponent unless it is an integer."""
    taken = *back.inputs, back.gradient
    by_exponent = _summed(back, 1, "pow_exponent_grad", *taken) if back.types[1].dtype in REAL else None
    return [_summed(back, 0, "pow_grad", *taken), by_exponent]


def _cast_gradient(back: Reverse) -> list[int | None]:
    """Gradient rule of `cast`: cast the gradient to the input's format. Integers have no gradient."""
    real = back.types[0].dtype in REAL and back.made[0].dtype in REAL
    return [back.one("cast", back.gradient, dtype=back.types[0].dtype) if real else None]


def _checked_output(types: Types, infer: ShapeRule) -> TensorType:
    """Return the type of the output.

    Raises InputError if the third input, the gradient of the output, has another type.
    """
    count(types, 3)
    (made,) = infer(types[:2], {})
    need(types[2] == made, f"needs the gradient of the output, {made}, got {types[2]}")
    return made


def _pow_exponent_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    made = _checked_output(types, _power)
    return (types[1].shaped(made.shape),)


@rounded
def _prelu_grad_compute(x: Array, slope: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    where = namespace(x).where
    return where(x < 0, slope * dz, dz), where(x < 0, x * dz, 0 * slope)


@rounded
def _pow_grad_compute(x: Array, y: Array, dz: Array, values: Values) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return namespace(x).where(y == 0, 0, dz * y * x ** (y - 1))


def _pow_exponent_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, y, dz = map(wide, arrays)
    xp = namespace(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        return [in_format(xp.where((x == 0) & (y >= 0), 0, dz * x**y * xp.log(x)), arrays[1])]


@rounded
def _gate_grad(x: Array, by: Array, dz: Array, values: Values) -> tuple[Array, ...]:
    share = sigmoid(namespace(x), by)
    return dz * share, dz * x * share * (1 - share)


UNARY = (*FUNCTIONS, Operator("not", _logical, lambda arrays, values: [~arrays[0]], elementwise_work()))
"""Operators of one tensor. The output has its shape and number format."""

BINARY = (
    _binary("sub", 1.0, lambda xp, x, y: x - y, _sub_gradients),
    _binary("mul", 1.0, lambda xp, x, y: x * y, _mul_gradients),
    _binary("div", 1.0, _divided, _div_gradients),
    _binary("max", 1.0, lambda xp, x, y: xp.maximum(x, y), _choice("greater_or_equal", "less")),
    _binary("min", 1.0, lambda xp, x, y: xp.minimum(x, y), _choice("less_or_equal", "greater")),
    _binary("prelu", 2.0, lambda xp, x, slope: xp.where(x < 0, slope * x, x), _prelu_gradients),
    _binary("pow", 1.0, lambda xp, x, y: x**y, _pow_gradients, _power),
    _bools("equal", _compared, lambda xp, x, y: x == y),
    _bools("greater", _compared, lambda xp, x, y: x > y),
    _bools("greater_or_equal", _compared, lambda xp, x, y: x >= y),
    _bools("less", _compared, lambda xp, x, y: x < y),
    _bools("less_or_equal", _compared, lambda xp, x, y: x <= y),
    _bools("and", _logical, lambda xp, x, y: x & y),
    _bools("or", _logical, lambda xp, x, y: x | y),
    _bools("xor", _logical, lambda xp, x, y: x ^ y),
)
"""Operators of two tensors, which broadcast. Comparisons return bools."""

BINARY_GRADIENTS = (
    Operator(
        "prelu_grad", lambda t, values: (_checked_output(t, joined),) * 2, _prelu_grad_compute, elementwise_work(4.0)
    ),
    Operator("pow_grad", lambda t, values: (_checked_output(t, _power),), _pow_grad_compute, elementwise_work(4.0)),
    Operator("pow_exponent_grad", _pow_exponent_grad, _pow_exponent_grad_compute, elementwise_work(4.0)),
)
"""Gradients of elementwise operators. They have the output's shape and are not yet summed over repeated axes."""

_GATE = Operator("gate", alike, rounded(lambda x, by, values: x * sigmoid(namespace(x), by)), elementwise_work(5.0))

ELEMENTWISE = (
    *UNARY,
    *BINARY,
    *FUNCTION_GRADIENTS,
    *BINARY_GRADIENTS,
    *with_gradient(_GATE, range(2), _gate_grad, elementwise_work(10.0)),
    Operator(
        "where",
        _chosen,
        lambda arrays, values: [namespace(arrays[0]).where(*arrays)],
        elementwise_work(),
        gradient=_where_gradients,
    ),
    Operator(
        "cast",
        _cast,
        lambda a, values: [a[0].astype(NUMPY_TYPES[str(values["dtype"])])],
        copying,
        ("dtype",),
        gradient=_cast_gradient,
    ),
)
"""`gate` is the first input times the sigmoid of the second.

`where` selects elements of the second input where the first input is true, and elements of the third elsewhere.
"""
