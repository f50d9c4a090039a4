"""Functions of one tensor, element by element, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, rounded, wide
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


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * (1 - torch.sigmoid(x))


def _silu_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))


def _mish_slope(x: Tensor) -> Tensor:
    tanh = torch.tanh(_softplus(x))
    return tanh + x * (1 - tanh**2) * torch.sigmoid(x)


def _gelu_erf_slope(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _hard_swish_slope(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, x / 3 + 0.5, (x > 0).to(x.dtype))


def _leaky_relu_slope(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha, torch.ones_like(x))


def _elu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * torch.expm1(x.clamp(max=0)), x)


def _elu_slope(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * torch.exp(x.clamp(max=0)), 1)


def _hard_sigmoid_slope(x: Tensor, alpha: float, beta: float) -> Tensor:
    inner = alpha * x + beta
    return alpha * ((inner > 0) & (inner < 1)).to(x.dtype)


def _clip(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    low, high = values["low"], values["high"]
    return [torch.clamp(tensors[0], low, high).to(tensors[0].dtype)]


def _clip_slope(x: Tensor, high: float, low: float) -> Tensor:
    return ((x >= low) & (x <= high)).to(x.dtype)


_NAMED = "tanh erf sqrt exp log neg abs sign floor ceil round sin cos reciprocal sigmoid"

FUNCTIONS: dict[str, Meaning] = {
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
    "tanh_grad": _slope(lambda x: 1 - torch.tanh(x) ** 2),
    "erf_grad": _slope(lambda x: 2 / math.sqrt(math.pi) * torch.exp(-(x**2))),
    "sqrt_grad": _slope(lambda x: 0.5 / x.sqrt()),
    "exp_grad": _slope(torch.exp),
    "log_grad": _slope(torch.reciprocal),
    "abs_grad": _slope(torch.sign),
    "sin_grad": _slope(torch.cos),
    "cos_grad": _slope(lambda x: -torch.sin(x)),
    "reciprocal_grad": _slope(lambda x: -1 / x**2),
    "sigmoid_grad": _slope(_sigmoid_slope),
    "silu_grad": _slope(_silu_slope),
    "softplus_grad": _slope(torch.sigmoid),
    "softsign_grad": _slope(lambda x: 1 / (1 + x.abs()) ** 2),
    "mish_grad": _slope(_mish_slope),
    "hard_swish_grad": _slope(_hard_swish_slope),
    "gelu_erf_grad": _slope(_gelu_erf_slope),
    "leaky_relu_grad": _slope(_leaky_relu_slope, "alpha"),
    "elu_grad": _slope(_elu_slope, "alpha"),
    "hard_sigmoid_grad": _slope(_hard_sigmoid_slope, "alpha", "beta"),
    "clip_grad": _slope(_clip_slope, "high", "low"),
}
