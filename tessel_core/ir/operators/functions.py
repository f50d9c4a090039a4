"""Functions of one tensor, element by element, each with the operator of its gradient.

Narrow formats are computed in fp32 and rounded once at the end.  A function of one number counts one FLOP, as an
addition does; composed ones count their steps, and gradients twice as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, need, rounded, wide
from tessel_core.ir.operators.rules import alike, elementwise_work, one
from tessel_core.ir.types import TensorType

Function = Callable[..., Array]
"""Of the tensor and the attributes."""


def bound(values: Values, name: str) -> float:
    """An attribute that is a number or infinite."""
    value = values[name]
    need(isinstance(value, int | float) and not math.isnan(value), f"{name} must be a number, got {value}")
    assert isinstance(value, int | float)
    return value


@dataclass(frozen=True, slots=True)
class _Row:
    """A function, and its derivative where it has one almost everywhere."""

    kind: str
    flops: float
    function: Function
    slope: Function | None = None
    names: tuple[str, ...] = ()
    """Attributes that are numbers."""
    read: Callable[[Values, str], float] = number

    def _numbers(self, values: Values) -> list[float]:
        return [self.read(values, name) for name in self.names]

    def _infer(self, types: Types, values: Values) -> tuple[TensorType, ...]:
        self._numbers(values)
        return one(types, values)

    def _infer_gradient(self, types: Types, values: Values) -> tuple[TensorType, ...]:
        self._numbers(values)
        return alike(types, values)

    def _compute(self, arrays: Arrays, values: Values) -> Sequence[Array]:
        (x,) = arrays
        given = wide(x) if x.dtype.kind == "f" else x
        return [np.asarray(self.function(given, *self._numbers(values))).astype(x.dtype)]

    def _compute_gradient(self, x: Array, dz: Array, values: Values) -> Array:
        assert self.slope is not None
        return np.asarray(self.slope(x, *self._numbers(values)) * dz)

    def _gradient(self, back: Reverse) -> list[int | None]:
        return [back.one(f"{self.kind}_grad", *back.inputs, back.gradient, **back.values)]

    def forward(self) -> Operator:
        """The function."""
        rule = self._gradient if self.slope else None
        return Operator(self.kind, self._infer, self._compute, elementwise_work(self.flops), self.names, gradient=rule)

    def backward(self) -> Operator:
        """Its gradient, from the tensor and the gradient of what the function made."""
        compute, work = rounded(self._compute_gradient), elementwise_work(2 * self.flops)
        return Operator(f"{self.kind}_grad", self._infer_gradient, compute, work, self.names)


_erf: Function = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, 0))


def _sigmoid_slope(x: Array) -> Array:
    return np.asarray(_sigmoid(x) * (1 - _sigmoid(x)))


def _silu_slope(x: Array) -> Array:
    return np.asarray(_sigmoid(x) * (1 + x * (1 - _sigmoid(x))))


def _mish_slope(x: Array) -> Array:
    tanh = np.tanh(_softplus(x))
    return np.asarray(tanh + x * (1 - tanh**2) * _sigmoid(x))


def _gelu_erf_slope(x: Array) -> Array:
    return np.asarray(0.5 * (1 + _erf(x / math.sqrt(2))) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def _hard_swish_slope(x: Array) -> Array:
    return np.where(np.abs(x) < 3, x / 3 + 0.5, x > 0)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _hard_sigmoid_slope(x: Array, alpha: float, beta: float) -> Array:
    return np.where((alpha * x + beta > 0) & (alpha * x + beta < 1), alpha, 0)


_ROWS = (
    _Row("tanh", 1.0, np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    _Row("erf", 1.0, _erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-(x**2))),
    _Row("sqrt", 1.0, np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    _Row("exp", 1.0, np.exp, np.exp),
    _Row("log", 1.0, np.log, lambda x: 1 / x),
    _Row("abs", 1.0, np.abs, np.sign),
    _Row("sign", 1.0, np.sign),
    _Row("floor", 1.0, np.floor),
    _Row("ceil", 1.0, np.ceil),
    _Row("round", 1.0, np.rint),
    _Row("sin", 1.0, np.sin, np.cos),
    _Row("cos", 1.0, np.cos, lambda x: -np.sin(x)),
    _Row("reciprocal", 1.0, np.reciprocal, lambda x: -1 / x**2),
    _Row("sigmoid", 4.0, _sigmoid, _sigmoid_slope),
    _Row("silu", 5.0, lambda x: x * _sigmoid(x), _silu_slope),
    _Row("softplus", 3.0, _softplus, _sigmoid),
    _Row("softsign", 3.0, lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
    _Row("mish", 5.0, lambda x: x * np.tanh(_softplus(x)), _mish_slope),
    _Row("hard_swish", 5.0, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), _hard_swish_slope),
    _Row("gelu_erf", 5.0, lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))), _gelu_erf_slope),
    _Row(
        "leaky_relu",
        2.0,
        lambda x, alpha: np.where(x < 0, alpha * x, x),
        lambda x, alpha: np.where(x < 0, alpha, 1),
        ("alpha",),
    ),
    _Row("elu", 3.0, _elu, lambda x, alpha: np.where(x < 0, alpha * np.exp(np.minimum(x, 0)), 1), ("alpha",)),
    _Row(
        "hard_sigmoid",
        4.0,
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        _hard_sigmoid_slope,
        ("alpha", "beta"),
    ),
    _Row(
        "clip",
        2.0,
        lambda x, high, low: np.clip(x, low, high),
        lambda x, high, low: (x >= low) & (x <= high),
        ("high", "low"),
        bound,
    ),
)
_NEG = _Row("neg", 1.0, np.negative).forward()
_SCALE = _Row("scale", 1.0, lambda x, by: by * x, names=("by",)).forward()

FUNCTIONS = (
    *(each.forward() for each in _ROWS),
    replace(_NEG, gradient=lambda back: [back.one("neg", back.gradient)]),
    replace(_SCALE, gradient=lambda back: [back.one("scale", back.gradient, **back.values)]),
)
"""One tensor in, one of its shape and format out.  `gelu_erf` is GELU by its definition, `gelu` its tanh approximation;
`silu` is x sigmoid(x) [Elfwing 2018]; `scale` multiplies by the number `by`."""

FUNCTION_GRADIENTS = tuple(each.backward() for each in _ROWS if each.slope)
"""The tensor and the gradient of the output in, the gradient of the tensor out."""
