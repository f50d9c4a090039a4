"""Optimizer steps that update weights in place: stochastic gradient descent and Adam."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, Work, need
from tessel_core.ir.operators.rules import same_device
from tessel_core.ir.operators.work import moved
from tessel_core.ir.types import TensorType

NARROW = ("fp16", "bf16")
"""Formats of weights for which an optimizer keeps a master copy in fp32 [Micikevicius 2018]."""


def _state_type(weight: TensorType) -> TensorType:
    """Return the type of an optimizer's state for a weight: fp32 for fp16 and bf16 weights, else the weight's type.

    A gradient may have this type or the weight's type.
    """
    return weight if weight.dtype not in NARROW else TensorType("fp32", weight.shape, weight.device)


def _sgd(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) % 2 == 0 and len(types) > 0, "needs one gradient per weight")
    half = len(types) // 2
    same_device(types)
    for weight, gradient in zip(types[:half], types[half:], strict=True):
        fits = gradient in (weight, _state_type(weight))
        need(fits, f"needs a gradient like each weight, got {gradient} for {weight}")
    return tuple(types[:half])


def _sgd_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    half, rate = len(arrays) // 2, number(values, "rate")
    pairs = zip(arrays[:half], arrays[half:], strict=True)
    return [(weight - rate * gradient).astype(weight.dtype) for weight, gradient in pairs]


def _sgd_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: one multiplication and one subtraction per weight.

    Weight and gradient are read, and the weight is written.
    """
    return Work(2.0 * sum(each.elements for each in outputs), moved(types, outputs))


def _groups(values: Values) -> int:
    """Return the number of tensors per weight: the weight, its fp32 copy if any, two moments, and the gradient."""
    masters = integer(values, "masters")
    need(masters in (0, 1), f"masters must be 0 or 1, got {masters}")
    return 4 + masters


def _adam(types: Types, values: Values) -> tuple[TensorType, ...]:
    groups = _groups(values)
    need(
        len(types) > 1 and len(types) % groups == 1,
        f"needs {groups} tensors per weight and the step, got {len(types)} inputs",
    )
    same_device(types)
    count, step = len(types) // groups, types[-1]
    need(step.shape == () and step.dtype.startswith("int"), f"needs the step as int32[], got {step}")
    for i in range(count):
        weight, *state, gradient = types[i:-1:count]
        wanted = _state_type(weight)
        need(gradient in (weight, wanted), f"needs a gradient like each weight, got {gradient} for {weight}")
        fits = set(state) == {wanted}
        need(fits, f"needs state like {wanted} for {weight}, got {', '.join(map(str, state))}")
    return tuple(types[: (groups - 1) * count])


def check_step(step: int) -> int:
    """Return the number of the step. Raises InputError if it is below 1."""
    if step < 1:
        raise InputError("adam", f"needs a step of at least 1, got {step}")
    return step


def _adam_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    *tensors, step = arrays
    check_step(int(step))
    count = len(tensors) // _groups(values)
    moved_on = [_adam_of_one(tensors[i::count], int(step), values) for i in range(count)]
    return [each[group] for group in range(len(moved_on[0])) for each in moved_on]


def _adam_of_one(tensors: Arrays, step: int, values: Values) -> list[Array]:
    """Return a weight, its fp32 copy if any, and its moments after one step [Kingma 2015, algorithm 1]."""
    weight, *master, mean, square, gradient = tensors
    first, second = number(values, "beta1"), number(values, "beta2")
    slope = gradient.astype(mean.dtype)
    mean = first * mean + (1 - first) * slope
    square = second * square + (1 - second) * slope**2
    scale = np.sqrt(square / (1 - second**step)) + number(values, "epsilon")
    moved_on = (master or [weight])[0] - number(values, "rate") * mean / (1 - first**step) / scale
    after = [moved_on] * (1 + len(master)) + [mean, square]
    return [each.astype(before.dtype) for each, before in zip(after, tensors, strict=False)]


def _adam_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: about 14 FLOPs per parameter. All inputs are read, and weights and state are written."""
    parameters = sum(each.elements for each in outputs) / (_groups(values) - 1)
    return Work(14.0 * parameters, moved(types, outputs))


_SETTINGS = ("beta1", "beta2", "epsilon", "masters", "rate")

OPTIMIZERS = (
    Operator("sgd", _sgd, _sgd_compute, _sgd_work, ("rate",), in_place=True),
    Operator("adam", _adam, _adam_compute, _adam_work, _SETTINGS, in_place=True),
)
"""`sgd` subtracts rate times gradient from each weight.

`adam` has these inputs: all weights, their fp32 copies if `masters` is 1 [Micikevicius 2018], all first moments, all
second moments, all gradients, and the number of the step, counted from 1. State has the format of the weights, or fp32
for fp16 and bf16 weights.
"""
