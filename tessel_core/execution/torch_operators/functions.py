"""Functions of one tensor, element by element, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, gradient_of, rounded, wide
from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.functions import bound
from tessel_core.ir.operators.operator import Values

Function = Callable[..., Tensor]


def _of_each(function: Function) -> Meaning:
    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        (x,) = tensors
        return [function(wide(x) if x.is_floating_point() else x).to(x.dtype)]

    return meaning


def _with_numbers(names: tuple[str, ...], function: Function) -> Meaning:
    return rounded(lambda x, values: function(x, *(number(values, name) for name in names)))


def _slope(function: Function, *names: str) -> Meaning:
    """The gradient, by the derivative."""
    return rounded(lambda x, dz, values: function(x, *(bound(values, name) for name in names)) * dz)


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _hard_swish_slope(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, x / 3 + 0.5, (x > 0).to(x.dtype))


def _elu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * torch.expm1(x.clamp(max=0)), x)


def _hard_sigmoid_slope(x: Tensor, alpha: float, beta: float) -> Tensor:
    inner = alpha * x + beta
    return alpha * ((inner > 0) & (inner < 1)).to(x.dtype)


def _clip(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    low, high = values["low"], values["high"]
    return [torch.clamp(tensors[0], low, high).to(tensors[0].dtype)]


_NAMED = "tanh erf sqrt exp log neg abs sign floor ceil round sin cos reciprocal sigmoid"

_FORWARD: dict[str, Meaning] = {
    **{kind: _of_each(getattr(torch, kind)) for kind in _NAMED.split()},
    "silu": _of_each(lambda x: x * torch.sigmoid(x)),
    "softplus": _of_each(_softplus),
    "softsign": _of_each(lambda x: x / (1 + x.abs())),
    "mish": _of_each(lambda x: x * torch.tanh(_softplus(x))),
    "hard_swish": _of_each(lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1)),
    "gelu_erf": _of_each(lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2)))),
    "leaky_relu": _with_numbers(("alpha",), lambda x, alpha: torch.where(x < 0, alpha * x, x)),
    "elu": _with_numbers(("alpha",), _elu),
    "hard_sigmoid": _with_numbers(("alpha", "beta"), lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1)),
    "clip": _clip,
    "scale": _with_numbers(("by",), lambda x, by: by * x),
}
_DERIVED = (
    "tanh erf sqrt exp log abs sin cos reciprocal sigmoid silu softplus softsign mish gelu_erf leaky_relu elu clip"
)

FUNCTIONS: dict[str, Meaning] = {
    **_FORWARD,
    **{f"{kind}_grad": gradient_of(_FORWARD[kind]) for kind in _DERIVED.split()},
    "hard_swish_grad": _slope(_hard_swish_slope),
    "hard_sigmoid_grad": _slope(_hard_sigmoid_slope, "alpha", "beta"),
}
"""Gradients are those of autograd, but where that decides otherwise than NumPy on the edge between two pieces."""
