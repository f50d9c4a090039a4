"""Tensor parallelism: weights cut by columns or rows over devices that compute each layer together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided
from tessel_core.ir.operators.operator import Values, axis_of
from tessel_core.ir.program import Op, Program, Tag
from tessel_core.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """`degree` devices that share every layer; weights are cut along the axis that their role says.

    Where each value lies is propagated operation by operation [Xu 2021, GSPMD]: whole on every device, cut along an
    axis, or a sum that is still spread.  Sums are all-reduced at once, as in Megatron-LM [Shoeybi 2019, section 3]:
    after a product with a weight cut by rows forward, and with one cut by columns backward.

    Raises
    ------
    InputError
        Where a weight, or the heads of an attention, do not divide.
    """

    degree: int

    def __call__(self, model: Distributed) -> Distributed:
        """The model, of one device, on `degree` devices: device d of the group is the model's plus d."""
        check_degree("tensor parallelism", self.degree)
        if self.degree == 1:
            return model
        if len(model.program.devices) != 1:
            raise InputError("tensor parallelism", f"takes a program of one device, got {len(model.program.devices)}")
        return _Sharding(model, self.degree).distributed()


class _Sharding:
    def __init__(self, model: Distributed, degree: int) -> None:
        self._model, self._degree = model, degree
        self._source: Program = model.program
        self._build = ProgramBuilder(self._source.name)
        self._values: dict[int, tuple[int, ...]] = {}
        """Per value of the source, its copy or part on each device."""
        self._state: dict[int, State] = {}
        self._converted: dict[tuple[int, State], tuple[int, ...]] = {}

    def distributed(self) -> Distributed:
        inputs = [piece for value, piece in self._model.piece_of.items() for piece in self._input(value, piece)]
        for op in self._source.ops:
            self._add(op)
        outputs, pieces = list[int](), list[Piece]()
        for value, piece in zip(self._source.outputs, self._model.outputs, strict=True):
            outputs += self._values[value]
            pieces += self._pieces(piece, self._state[value])
        program = self._build.finish(outputs)
        return Distributed(program, tuple(inputs), tuple(pieces), self._model.roles)

    def _input(self, value: int, piece: Piece) -> list[Piece]:
        role, of_type = self._model.role_of(piece), self._source.types[value]
        axis = role.shard_axis
        state = WHOLE if axis is None else State("part", axis)
        if axis is not None:
            of_type = of_type.shaped(divided(of_type.shape, axis, self._degree, piece.name, role.shard_grain))
        name = self._source.value_name(value)
        self._values[value] = tuple(
            self._build.input(f"{name}.h{h}", of_type.on(of_type.device + h)) for h in range(self._degree)
        )
        self._state[value] = state
        return self._pieces(piece, state)

    def _pieces(self, piece: Piece, state: State) -> list[Piece]:
        if state == WHOLE:
            return [piece] * self._degree
        return [piece.cut(state.axis, self._degree, h) for h in range(self._degree)]

    def _add(self, op: Op) -> None:
        types = self._source.types_of(op.inputs)
        wanted, made = shard_rule(op.kind)([self._state[value] for value in op.inputs], types, dict(op.attributes))
        taken = [self._as(value, state, op.tag) for value, state in zip(op.inputs, wanted, strict=True)]
        each = [
            self._build.append(op.kind, [copies[h] for copies in taken], op.attributes, op.tag)
            for h in range(self._degree)
        ]
        for i, (value, state) in enumerate(zip(op.outputs, made, strict=True)):
            self._values[value], self._state[value] = tuple(outputs[i] for outputs in each), state
        for value in op.outputs:
            if self._state[value] == SUM:
                self._values[value] = self._build.add("allreduce", self._values[value], op.tag)
                self._state[value] = WHOLE

    def _as(self, value: int, wanted: State, tag: Tag) -> tuple[int, ...]:
        """The value in the wanted state: gathered, or each device's own part taken from the whole."""
        state = self._state[value]
        if state == wanted:
            return self._values[value]
        known = self._converted.get((value, wanted))
        if known is None:
            whole = self._values[value]
            if state != WHOLE:
                whole = self._build.add("allgather", whole, tag, axis=state.axis)
            known = whole if wanted == WHOLE else self._cut(whole, wanted, tag)
            self._converted[value, wanted] = known
        return known

    def _cut(self, whole: Sequence[int], wanted: State, tag: Tag) -> tuple[int, ...]:
        return tuple(
            self._build.one("part", [value], tag, axis=wanted.axis, parts=self._degree, index=h)
            for h, value in enumerate(whole)
        )


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


def _sum(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Cut where all inputs are cut alike; a residual stream that is whole stays whole, as what is broadcast does."""
    state = states[0] if len(set(states)) == len({each.shape for each in types}) == 1 else WHOLE
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


def _linear(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """As a product; a bias beside a sum that is spread would count on each device."""
    needed, made = _matmul(states[:2], types[:2], values)
    if made == [SUM]:
        raise InputError("operator linear", "cannot be cut by rows, because each device would add the bias")
    last = len(types[0].shape) - 1
    return [*needed, State("part", 0) if made == [State("part", last)] else WHOLE], made


def _residual(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    needed, made = _sum(states[:2], types[:2], values)
    return [*needed, _bias([*made, WHOLE], types[1:], values)[0][1]], made


def _bias(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """What is added is cut as the tensor is, where it has the axis."""
    before = len(types[0].shape) - len(types[1].shape)
    x, b = states
    if x == WHOLE and b.how == "part":
        x = State("part", b.axis + before)
    b = State("part", x.axis - before) if x.how == "part" and x.axis >= before else WHOLE
    return [x, b], [x]


def _bias_grad(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Cut along an axis that stays; along one that is summed over, a sum."""
    axes = values["axes"]
    assert isinstance(axes, int)
    (state,), before = states, len(types[0].shape) - axes
    if state.how == "part":
        return [state], [State("part", state.axis - before) if state.axis >= before else SUM]
    return [state], [state]


def _embedding(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Columns of the table are columns of the rows looked up."""
    cut = states[0] == State("part", 1)
    return [states[0] if cut else WHOLE, WHOLE], [State("part", len(types[1].shape)) if cut else WHOLE]


def _embedding_grad(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    needed, made = _embedding(states, types, values)
    return [*needed, *made], needed[:1]


def _heads(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
    """Samples and heads are independent of each other; tokens are not."""
    state = next((each for each in states if each.how == "part" and each.axis != 1), WHOLE)
    return [state] * len(states), [state]


def _several(rule: Rule, outputs: int) -> Rule:
    """So many outputs, all alike."""

    def spread(states: States, types: Sequence[TensorType], values: Values) -> tuple[list[State], list[State]]:
        needed, made = rule(states, types, values)
        return needed, made * outputs

    return spread


_RULES: dict[str, Rule] = {
    "identity": _alike,
    "add": _sum,
    "relu": _alike,
    "relu_grad": _alike,
    "linear": _linear,
    "residual": _residual,
    "bias": _bias,
    "bias_grad": _bias_grad,
    "gelu": _alike,
    "gelu_grad": _alike,
    "layer_norm": _whole,
    "layer_norm_grad": _several(_whole, 3),
    "embedding": _embedding,
    "embedding_grad": _embedding_grad,
    "cross_entropy": _whole,
    "cross_entropy_grad": _whole,
    "attention": _heads,
    "attention_grad": _several(_heads, 3),
    "unpack_qkv": _several(_heads, 3),
    "pack_qkv": _heads,
    "write": _along,
    "loss": _whole,
    "loss_grad": _whole,
    "concat": _along,
    "split": _split,
    "matmul": _matmul,
    "matmul_grad": _matmul_grad,
}
