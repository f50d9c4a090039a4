"""Operators that go element by element, with NumPy's broadcasting where they take several tensors.

Narrow formats are computed in fp32 and rounded once at the end.  A function of one number counts one FLOP, as an
addition does; composed ones count their steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.operator import (
    NUMPY_TYPES,
    Array,
    Arrays,
    Operator,
    ShapeRule,
    Types,
    Values,
    need,
    rounded,
    wide,
)
from tessel_core.ir.operators.rules import broadcast, copying, count, elementwise_work, joined, one
from tessel_core.ir.types import WIDTHS, TensorType

Function = Callable[[Array], Array]


def _power(types: Types, values: Values) -> tuple[TensorType, ...]:
    """The exponent may have another format than the base."""
    count(types, 2)
    return (types[0].shaped(broadcast(types)),)


def _compared(types: Types, values: Values) -> tuple[TensorType, ...]:
    (found,) = joined(types, values)
    return (TensorType("bool", found.shape, found.device),)


def _logical(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(all(each.dtype == "bool" for each in types), f"takes bool tensors, got {', '.join(map(str, types))}")
    return one(types, values) if len(types) == 1 else joined(types, values)


def _chosen(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    condition, x, y = types
    fits = condition.dtype == "bool" and x.dtype == y.dtype
    need(fits, f"takes a bool and two of one dtype, got {condition}, {x}, {y}")
    return (x.shaped(broadcast(types)),)


def _cast(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    dtype = values["dtype"]
    need(isinstance(dtype, str) and dtype in WIDTHS, f"dtype must be one of {', '.join(WIDTHS)}, got {dtype!r}")
    return (TensorType(str(dtype), types[0].shape, types[0].device),)


def _divided(x: Array, y: Array) -> Array:
    """Whole numbers are divided towards zero."""
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, 0))


_erf: Function = np.vectorize(math.erf, otypes=[np.float64])


def _of_each(kind: str, flops: float, function: Function) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        (x,) = arrays
        return [np.asarray(function(wide(x) if x.dtype.kind == "f" else x)).astype(x.dtype)]

    return Operator(kind, one, compute, elementwise_work(flops))


def _with_numbers(kind: str, flops: float, names: tuple[str, ...], function: Callable[..., Array]) -> Operator:
    def infer(types: Types, values: Values) -> tuple[TensorType, ...]:
        for name in names:
            number(values, name)
        return one(types, values)

    def compute(x: Array, values: Values) -> Array:
        return function(x, *(number(values, name) for name in names))

    return Operator(kind, infer, rounded(compute), elementwise_work(flops), names)


def _of_two(kind: str, flops: float, function: Callable[[Array, Array], Array]) -> Operator:
    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        return [np.asarray(function(*arrays)).astype(arrays[0].dtype)]

    return Operator(kind, joined, compute, elementwise_work(flops))


def _bools(kind: str, infer: ShapeRule, function: Callable[[Array, Array], Array]) -> Operator:
    return Operator(kind, infer, lambda arrays, values: [function(*arrays)], elementwise_work())


def _clipped(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,) = arrays
    return [np.clip(x, _bound(values, "low"), _bound(values, "high")).astype(x.dtype)]


def _bound(values: Values, name: str) -> float:
    value = values[name]
    need(isinstance(value, int | float) and not math.isnan(value), f"{name} must be a number, got {value}")
    assert isinstance(value, int | float)
    return value


def _clip(types: Types, values: Values) -> tuple[TensorType, ...]:
    for name in ("low", "high"):
        _bound(values, name)
    return one(types, values)


_FUNCTIONS: dict[str, Function] = {
    "tanh": np.tanh,
    "erf": _erf,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sin": np.sin,
    "cos": np.cos,
    "reciprocal": np.reciprocal,
}


UNARY = (
    *(_of_each(kind, 1.0, function) for kind, function in _FUNCTIONS.items()),
    _of_each("sigmoid", 4.0, lambda x: 1 / (1 + np.exp(-x))),
    _of_each("softplus", 3.0, _softplus),
    _of_each("softsign", 3.0, lambda x: x / (1 + np.abs(x))),
    _of_each("mish", 5.0, lambda x: x * np.tanh(_softplus(x))),
    _of_each("hard_swish", 5.0, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    _of_each("gelu_erf", 5.0, lambda x: x / 2 * (1 + _erf(x / math.sqrt(2)))),
    _with_numbers("leaky_relu", 2.0, ("alpha",), lambda x, alpha: np.where(x < 0, alpha * x, x)),
    _with_numbers("elu", 3.0, ("alpha",), lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)),
    _with_numbers("hard_sigmoid", 4.0, ("alpha", "beta"), lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1)),
    Operator("clip", _clip, _clipped, elementwise_work(2.0), ("high", "low")),
    Operator("not", _logical, lambda arrays, values: [~arrays[0]], elementwise_work()),
)
"""One tensor in, one of its shape and format out."""

BINARY = (
    _of_two("sub", 1.0, np.subtract),
    _of_two("mul", 1.0, np.multiply),
    _of_two("div", 1.0, _divided),
    _of_two("max", 1.0, np.maximum),
    _of_two("min", 1.0, np.minimum),
    _of_two("prelu", 2.0, lambda x, slope: np.where(x < 0, slope * x, x)),
    Operator("pow", _power, lambda arrays, values: [np.power(*arrays).astype(arrays[0].dtype)], elementwise_work()),
    _bools("equal", _compared, np.equal),
    _bools("greater", _compared, np.greater),
    _bools("greater_or_equal", _compared, np.greater_equal),
    _bools("less", _compared, np.less),
    _bools("less_or_equal", _compared, np.less_equal),
    _bools("and", _logical, np.logical_and),
    _bools("or", _logical, np.logical_or),
    _bools("xor", _logical, np.logical_xor),
)
"""Two tensors, broadcast; comparisons make bools."""

ELEMENTWISE = (
    *UNARY,
    *BINARY,
    Operator("where", _chosen, lambda arrays, values: [np.where(*arrays)], elementwise_work()),
    Operator("cast", _cast, lambda a, values: [a[0].astype(NUMPY_TYPES[str(values["dtype"])])], copying, ("dtype",)),
)
"""`gelu_erf` is GELU by its definition, `gelu` its tanh approximation; `where` takes from its second input where the
first is true, else from its third."""
