"""Elementwise functions of one tensor, and the operators of their gradients.

A simple function such as `exp` counts one FLOP per element, like an addition. A composed function counts each of its
steps. Gradients count twice as many FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tessel_core.ir.operators.arrays import in_format, namespace, rounded, wide
from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, need
from tessel_core.ir.operators.rules import alike, one
from tessel_core.ir.operators.work import elementwise_work
from tessel_core.ir.types import TensorType

Function = Callable[..., Array]
"""Elementwise function. Its arguments are the array library (`namespace`), the tensor and the attributes."""


def bound(values: Values, name: str) -> float:
    """Return an attribute that is a number and may be infinite."""
    value = values[name]
    need(isinstance(value, int | float) and not math.isnan(value), f"{name} must be a number, got {value}")
    assert isinstance(value, int | float)
    return value


@dataclass(frozen=True, slots=True)
class _Row:
    """Table row: a function, and its derivative unless it is zero almost everywhere."""

    kind: str
    flops: float
    function: Function
    slope: Function | None = None
    names: tuple[str, ...] = ()
    """Names of the function's attributes, which are numbers."""
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
        xp = namespace(x)
        given = wide(x) if xp.isdtype(x.dtype, "real floating") else x
        return [in_format(self.function(xp, given, *self._numbers(values)), x)]

    def _compute_gradient(self, x: Array, dz: Array, values: Values) -> Array:
        assert self.slope is not None
        return self.slope(namespace(x), x, *self._numbers(values)) * dz

    def _gradient(self, back: Reverse) -> list[int | None]:
        return [back.one(f"{self.kind}_grad", *back.inputs, back.gradient, **back.values)]

    def forward(self) -> Operator:
        """Return the operator that computes the function."""
        rule = self._gradient if self.slope else None
        return Operator(self.kind, self._infer, self._compute, elementwise_work(self.flops), self.names, gradient=rule)

    def backward(self) -> Operator:
        """Return the operator of its gradient. Its inputs are the function's input and the gradient of the output."""
        compute, work = rounded(self._compute_gradient), elementwise_work(2 * self.flops)
        return Operator(f"{self.kind}_grad", self._infer_gradient, compute, work, self.names)


_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715

_erf_of_each = np.vectorize(math.erf, otypes=[np.float64])


def _erf(xp: Any, x: Array) -> Array:
    """Return the error function. PyTorch has it, but NumPy and the Array API standard do not."""
    return _erf_of_each(x) if xp is np else xp.erf(x)


def sigmoid(xp: Any, x: Array) -> Array:
    """Return 1 / (1 + exp(-x)). PyTorch tensors use PyTorch's own kernel."""
    return 1 / (1 + xp.exp(-x)) if xp is np else xp.sigmoid(x)


def _softplus(xp: Any, x: Array) -> Array:
    return xp.logaddexp(x, 0)


def _sigmoid_slope(xp: Any, x: Array) -> Array:
    share = sigmoid(xp, x)
    return share * (1 - share)


def _silu_slope(xp: Any, x: Array) -> Array:
    share = sigmoid(xp, x)
    return share * (1 + x * (1 - share))


def _mish_slope(xp: Any, x: Array) -> Array:
    tanh = xp.tanh(_softplus(xp, x))
    return tanh + x * (1 - tanh**2) * sigmoid(xp, x)


def _tanh_of_gelu(xp: Any, x: Array) -> Array:
    return xp.tanh(_GELU_SCALE * (x + _GELU_CUBE * x**3))


def _gelu_slope(xp: Any, x: Array) -> Array:
    tanh, inner = _tanh_of_gelu(xp, x), _GELU_SCALE * (1 + 3 * _GELU_CUBE * x**2)
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * inner


def _gelu_erf_slope(xp: Any, x: Array) -> Array:
    return 0.5 * (1 + _erf(xp, x / math.sqrt(2))) + x * xp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _hard_swish_slope(xp: Any, x: Array) -> Array:
    return xp.where(xp.abs(x) < 3, x / 3 + 0.5, x > 0)


def _leaky_slope(xp: Any, x: Array, alpha: float) -> Array:
    return xp.where(x < 0, xp.full_like(x, alpha), 1)


def _hard_sigmoid_slope(xp: Any, x: Array, alpha: float, beta: float) -> Array:
    return xp.where((alpha * x + beta > 0) & (alpha * x + beta < 1), xp.full_like(x, alpha), 0)


_ROWS = (
    _Row("tanh", 1.0, lambda xp, x: xp.tanh(x), lambda xp, x: 1 - xp.tanh(x) ** 2),
    _Row("erf", 1.0, _erf, lambda xp, x: 2 / math.sqrt(math.pi) * xp.exp(-(x**2))),
    _Row("sqrt", 1.0, lambda xp, x: xp.sqrt(x), lambda xp, x: 0.5 / xp.sqrt(x)),
    _Row("exp", 1.0, lambda xp, x: xp.exp(x), lambda xp, x: xp.exp(x)),
    _Row("log", 1.0, lambda xp, x: xp.log(x), lambda xp, x: 1 / x),
    _Row("abs", 1.0, lambda xp, x: xp.abs(x), lambda xp, x: xp.sign(x)),
    _Row("sign", 1.0, lambda xp, x: xp.sign(x)),
    _Row("floor", 1.0, lambda xp, x: xp.floor(x)),
    _Row("ceil", 1.0, lambda xp, x: xp.ceil(x)),
    _Row("round", 1.0, lambda xp, x: xp.round(x)),
    _Row("sin", 1.0, lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x)),
    _Row("cos", 1.0, lambda xp, x: xp.cos(x), lambda xp, x: -xp.sin(x)),
    _Row("reciprocal", 1.0, lambda xp, x: xp.reciprocal(x), lambda xp, x: -1 / x**2),
    _Row("sigmoid", 4.0, sigmoid, _sigmoid_slope),
    _Row("silu", 5.0, lambda xp, x: x * sigmoid(xp, x), _silu_slope),
    _Row("softplus", 3.0, _softplus, sigmoid),
    _Row("softsign", 3.0, lambda xp, x: x / (1 + xp.abs(x)), lambda xp, x: 1 / (1 + xp.abs(x)) ** 2),
    _Row("mish", 5.0, lambda xp, x: x * xp.tanh(_softplus(xp, x)), _mish_slope),
    _Row("hard_swish", 5.0, lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1), _hard_swish_slope),
    _Row("gelu", 9.0, lambda xp, x: 0.5 * x * (1 + _tanh_of_gelu(xp, x)), _gelu_slope),
    _Row("gelu_erf", 5.0, lambda xp, x: x / 2 * (1 + _erf(xp, x / math.sqrt(2))), _gelu_erf_slope),
    _Row("leaky_relu", 2.0, lambda xp, x, alpha: xp.where(x < 0, alpha * x, x), _leaky_slope, ("alpha",)),
    _Row(
        "elu",
        3.0,
        lambda xp, x, alpha: xp.where(x < 0, alpha * xp.expm1(xp.minimum(x, 0)), x),
        lambda xp, x, alpha: xp.where(x < 0, alpha * xp.exp(xp.minimum(x, 0)), 1),
        ("alpha",),
    ),
    _Row(
        "hard_sigmoid",
        4.0,
        lambda xp, x, alpha, beta: xp.clip(alpha * x + beta, 0, 1),
        _hard_sigmoid_slope,
        ("alpha", "beta"),
    ),
    _Row(
        "clip",
        2.0,
        lambda xp, x, high, low: xp.clip(x, low, high),
        lambda xp, x, high, low: (x >= low) & (x <= high),
        ("high", "low"),
        bound,
    ),
)
_NEG = _Row("neg", 1.0, lambda xp, x: -x).forward()
_SCALE = _Row("scale", 1.0, lambda xp, x, by: by * x, names=("by",)).forward()

FUNCTIONS = (
    *(each.forward() for each in _ROWS),
    replace(_NEG, gradient=lambda back: [back.one("neg", back.gradient)]),
    replace(_SCALE, gradient=lambda back: [back.one("scale", back.gradient, **back.values)]),
)
"""The input and output of each function have the same shape and number format.

`gelu_erf` is GELU by its definition, and `gelu` is its tanh approximation [Hendrycks 2016]. `silu` is x sigmoid(x)
[Elfwing 2018]. `scale` multiplies by the number `by`.
"""

FUNCTION_GRADIENTS = tuple(each.backward() for each in _ROWS if each.slope)
"""Gradients of the functions. Inputs are the function's input and the output's gradient."""
