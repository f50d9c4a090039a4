"""Operators that go element by element over several tensors, which are broadcast; those of one are in `functions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tessel_core.execution.torch_operators.formats import (
    TORCH_TYPES,
    Meaning,
    Tensor,
    Tensors,
    gradient_of,
    of_two,
    rounded,
    wide,
)
from tessel_core.execution.torch_operators.functions import FUNCTIONS
from tessel_core.ir.operators.operator import Values


def _bools(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    return lambda tensors, values: [function(*tensors)]


def _divided(x: Tensor, y: Tensor) -> Tensor:
    """Whole numbers are divided towards zero."""
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _where(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [torch.where(*tensors)]


def _cast(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [tensors[0].to(TORCH_TYPES[str(values["dtype"])], copy=True)]


@rounded
def _prelu_grad(x: Tensor, slope: Tensor, dz: Tensor, values: Values) -> tuple[Tensor, ...]:
    return torch.where(x < 0, slope * dz, dz), torch.where(x < 0, x * dz, 0 * slope)


@rounded
def _pow_grad(x: Tensor, y: Tensor, dz: Tensor, values: Values) -> Tensor:
    return torch.where(y == 0, 0, dz * y * torch.pow(x, y - 1))


def _pow_exponent_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, y, dz = map(wide, tensors)
    return [torch.where((x == 0) & (y >= 0), 0, dz * torch.pow(x, y) * torch.log(x)).to(tensors[1].dtype)]


@rounded
def _gate(x: Tensor, by: Tensor, values: Values) -> Tensor:
    return x * torch.sigmoid(by)


ELEMENTWISE: dict[str, Meaning] = {
    **FUNCTIONS,
    "not": lambda tensors, values: [~tensors[0]],
    "sub": of_two(torch.sub),
    "mul": of_two(torch.mul),
    "div": of_two(_divided),
    "max": of_two(torch.maximum),
    "min": of_two(torch.minimum),
    "prelu": of_two(lambda x, slope: torch.where(x < 0, slope * x, x)),
    "prelu_grad": _prelu_grad,
    "pow": of_two(torch.pow),
    "pow_grad": _pow_grad,
    "pow_exponent_grad": _pow_exponent_grad,
    "gate": _gate,
    "gate_grad": gradient_of(_gate),
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
