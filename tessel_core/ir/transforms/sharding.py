"""How each operator works on values that are spread over a tensor-parallel group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.operators.operator import Values, axis_of
from tessel_core.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class State:
    """Where a value lies: "whole" on every device, a "part" along an axis on each, or a "sum" of what each has."""

    how: str
    axis: int = 0


WHOLE = State("whole")
SUM = State("sum")

States = Sequence[State]
Rule = Callable[[States, Sequence[TensorType], Values], tuple[list[State], list[State]]]
"""From the states of the inputs to those that the operator needs, and those of its outputs."""


def shard_rule(kind: str) -> Rule:
    """The rule of an operator; InputError where it has none."""
    if kind not in _RULES:
        raise InputError(f"operator {kind}", "cannot be spread over a tensor-parallel group")
    return _RULES[kind]


def _alike(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Element by element: all inputs cut as the first one that is cut."""
    state = next((each for each in states if each != WHOLE), WHOLE)
    return [state] * len(states), [state]


def _whole(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    return [WHOLE] * len(states), [WHOLE]


def _along(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Along one axis: cut along another axis, or whole."""
    axis = axis_of(values, len(types[0].shape))
    state = next((each for each in states if each != WHOLE), WHOLE)
    state = WHOLE if state.axis == axis else state
    return [state] * len(states), [state]


def _split(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    needed, made = _along(states, types, values)
    parts = values["parts"]
    assert isinstance(parts, int)
    return needed, made * parts


def _matmul(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    x, w = types
    last, rows, columns = len(x.shape) - 1, len(w.shape) - 2, len(w.shape) - 1
    if states[1] == State("part", columns):
        return [WHOLE, states[1]], [State("part", last)]
    if states[1] == State("part", rows):
        return [State("part", last), states[1]], [SUM]
    # An input that is cut along its rows stays so; one that is cut along the sum is gathered.
    state = states[0] if states[0].how == "part" and states[0].axis < last and len(w.shape) == 2 else WHOLE
    return [state, WHOLE], [state]


def _matmul_grad(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    x, w, _ = types
    last, rows, columns = len(x.shape) - 1, len(w.shape) - 2, len(w.shape) - 1
    if states[1] == State("part", columns):
        return [WHOLE, states[1], State("part", last)], [SUM, states[1]]
    if states[1] == State("part", rows):
        return [State("part", last), states[1], WHOLE], [State("part", last), states[1]]
    return [WHOLE] * 3, [WHOLE, WHOLE]


_RULES: dict[str, Rule] = {
    "identity": _alike,
    "add": _alike,
    "relu": _alike,
    "relu_grad": _alike,
    "loss": _whole,
    "loss_grad": _whole,
    "concat": _along,
    "split": _split,
    "matmul": _matmul,
    "matmul_grad": _matmul_grad,
}
