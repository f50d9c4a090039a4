"""Operators that change their inputs in place."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors
from tessel_core.ir.operators.attributes import axis_of, integer, number
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.operators.optimizers import check_step


def _write(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    cache, new = tensors
    axis = axis_of(values, cache.ndim)
    cache.narrow(axis, integer(values, "at"), new.shape[axis]).copy_(new)
    return [cache]


def _sgd(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    half, rate = len(tensors) // 2, number(values, "rate")
    for weight, gradient in zip(tensors[:half], tensors[half:], strict=True):
        weight.sub_(gradient, alpha=rate)
    return tensors[:half]


def _adam(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    *each, step = tensors
    groups = 4 + integer(values, "masters")
    count = len(each) // groups
    for i in range(count):
        _adam_of_one(each[i::count], check_step(int(step)), values)
    return each[: (groups - 1) * count]


def _adam_of_one(tensors: Tensors, step: int, values: Values) -> None:
    """Update weight, master weight and moments by one step [Kingma 2015, algorithm 1]."""
    weight, *master, mean, square, gradient = tensors
    first, second = number(values, "beta1"), number(values, "beta2")
    slope = gradient.to(mean.dtype)
    mean.mul_(first).add_(slope, alpha=1 - first)
    square.mul_(second).addcmul_(slope, slope, value=1 - second)
    scale = (square / (1 - second**step)).sqrt_().add_(number(values, "epsilon"))
    moved_by = (number(values, "rate") * mean / (1 - first**step)).div_(scale)
    for each in master:
        weight.copy_(each.sub_(moved_by))
    if not master:
        weight.sub_(moved_by)


IN_PLACE: dict[str, Meaning] = {
    **dict.fromkeys(("accumulate", "add_in_place"), lambda tensors, values: [tensors[0].add_(tensors[1])]),
    "write": _write,
    "sgd": _sgd,
    "adam": _adam,
}
