"""Operators that go element by element, broadcast where they take several tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Meaning, Tensor, Tensors, of_two, rounded, wide
from tessel_core.ir.operators.attributes import number
from tessel_core.ir.operators.operator import Values


def _of_each(function: Callable[[Tensor], Tensor]) -> Meaning:
    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        (x,) = tensors
        return [function(wide(x) if x.is_floating_point() else x).to(x.dtype)]

    return meaning


def _with_numbers(names: tuple[str, ...], function: Callable[..., Tensor]) -> Meaning:
    return rounded(lambda x, values: function(x, *(number(values, name) for name in names)))


def _bools(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    return lambda tensors, values: [function(*tensors)]


def _divided(x: Tensor, y: Tensor) -> Tensor:
    """Whole numbers are divided towards zero."""
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _elu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0, alpha * torch.expm1(x.clamp(max=0)), x)


def _clip(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    low, high = values["low"], values["high"]
    return [torch.clamp(tensors[0], low, high).to(tensors[0].dtype)]


def _where(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [torch.where(*tensors)]


def _cast(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [tensors[0].to(TORCH_TYPES[str(values["dtype"])], copy=True)]


ELEMENTWISE: dict[str, Meaning] = {
    **{
        kind: _of_each(getattr(torch, kind))
        for kind in ("tanh", "erf", "sqrt", "exp", "log", "neg", "abs", "sign", "floor", "ceil", "round", "sin", "cos")
    },
    "reciprocal": _of_each(torch.reciprocal),
    "sigmoid": _of_each(torch.sigmoid),
    "softplus": _of_each(_softplus),
    "softsign": _of_each(lambda x: x / (1 + x.abs())),
    "mish": _of_each(lambda x: x * torch.tanh(_softplus(x))),
    "hard_swish": _of_each(lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1)),
    "gelu_erf": _of_each(lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2)))),
    "leaky_relu": _with_numbers(("alpha",), lambda x, alpha: torch.where(x < 0, alpha * x, x)),
    "elu": _with_numbers(("alpha",), _elu),
    "hard_sigmoid": _with_numbers(("alpha", "beta"), lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1)),
    "clip": _clip,
    "not": lambda tensors, values: [~tensors[0]],
    "sub": of_two(torch.sub),
    "mul": of_two(torch.mul),
    "div": of_two(_divided),
    "max": of_two(torch.maximum),
    "min": of_two(torch.minimum),
    "prelu": of_two(lambda x, slope: torch.where(x < 0, slope * x, x)),
    "pow": of_two(torch.pow),
    "equal": _bools(torch.eq),
    "greater": _bools(torch.gt),
    "greater_or_equal": _bools(torch.ge),
    "less": _bools(torch.lt),
    "less_or_equal": _bools(torch.le),
    "and": _bools(torch.logical_and),
    "or": _bools(torch.logical_or),
    "xor": _bools(torch.logical_xor),
    "where": _where,
    "cast": _cast,
}
