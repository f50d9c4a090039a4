"""Tensor parallelism: weights cut by columns or rows over devices that compute each layer together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided
from tessel_core.ir.operators.attributes import axis_of, integer
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import Op, Program, Tag


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """`degree` devices that share every layer; weights are cut along the axis that their role says.

    Where each value lies is propagated operation by operation [Xu 2021, GSPMD]: whole on every device, cut along an
    axis, or a sum that is still spread.  Sums are all-reduced at once, as in Megatron-LM [Shoeybi 2019, section 3]:
    after a product with a weight cut by rows forward, and with one cut by columns backward.

    Raises InputError where a weight, or the heads of an attention, do not divide.
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
            of_type = divided(of_type, axis, self._degree, piece.name, role.shard_grain)
        name = self._source.value_name(value)
        types = (of_type.on(of_type.device + h) for h in range(self._degree))
        self._values[value] = tuple(self._build.input(f"{name}.h{h}", each) for h, each in enumerate(types))
        self._state[value] = state
        return self._pieces(piece, state)

    def _pieces(self, piece: Piece, state: State) -> list[Piece]:
        if state == WHOLE:
            return [piece] * self._degree
        return [piece.cut(state.axis, self._degree, h) for h in range(self._degree)]

    def _add(self, op: Op) -> None:
        types = self._source.types_of(op.inputs)
        states = [self._state[value] for value in op.inputs]
        wanted, made = spread(op.kind, states, types, dict(op.attributes), len(op.outputs))
        taken = [self._as(value, state, op.tag) for value, state in zip(op.inputs, wanted, strict=True)]
        inputs = ([copies[h] for copies in taken] for h in range(self._degree))
        each = [self._build.append(op.kind, mine, op.attributes, op.tag) for mine in inputs]
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
    """The state of a value: "whole" on every device, a "part" along an axis on each, or a "sum" of what each has."""

    how: str
    axis: int = 0


WHOLE = State("whole")
SUM = State("sum")

States = Sequence[State]
Spread = tuple[list[State], list[State]]
"""States that the inputs need, and those of the outputs."""


def spread(kind: str, states: States, types: Types, values: Values, outputs: int) -> Spread:
    """How an operator works on inputs in these states; raises InputError where it has no rule."""
    if kind in _ALL_ALIKE:
        state = _ALL_ALIKE[kind](states, types, values)
        return [state] * len(states), [state] * outputs
    if kind in _RULES:
        return _RULES[kind](states, types, values)
    raise InputError(f"operator {kind}", "cannot be spread over a tensor-parallel group")


def _first_cut(states: States, types: Types, values: Values) -> State:
    """Element by element: all inputs cut as the first one that is cut."""
    return next((each for each in states if each != WHOLE), WHOLE)


def _sum(states: States, types: Types, values: Values) -> State:
    """Cut where all inputs are cut alike; a residual stream that is whole stays whole, as what is broadcast does."""
    return states[0] if len(set(states)) == len({each.shape for each in types}) == 1 else WHOLE


def _whole(states: States, types: Types, values: Values) -> State:
    return WHOLE


def _along(states: States, types: Types, values: Values) -> State:
    """Along one axis: cut along another axis, or whole."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis == axis_of(values, len(types[0].shape)) else state


def _heads(states: States, types: Types, values: Values) -> State:
    """Samples and heads are independent of each other; tokens are not."""
    return next((each for each in states if each.how == "part" and each.axis != 1), WHOLE)


def _matmul(states: States, types: Types, values: Values) -> Spread:
    x, w = types
    last, rows, columns = len(x.shape) - 1, len(w.shape) - 2, len(w.shape) - 1
    if states[1] == State("part", columns):
        return [WHOLE, states[1]], [State("part", last)]
    if states[1] == State("part", rows):
        return [State("part", last), states[1]], [SUM]
    # An input that is cut along its rows stays so; one that is cut along the sum is gathered.
    state = states[0] if states[0].how == "part" and states[0].axis < last and len(w.shape) == 2 else WHOLE
    return [state, WHOLE], [state]


def _matmul_grad(states: States, types: Types, values: Values) -> Spread:
    x, w, _ = types
    last, rows, columns = len(x.shape) - 1, len(w.shape) - 2, len(w.shape) - 1
    if states[1] == State("part", columns):
        return [WHOLE, states[1], State("part", last)], [SUM, states[1]]
    if states[1] == State("part", rows):
        return [State("part", last), states[1], WHOLE], [State("part", last), states[1]]
    return [WHOLE] * 3, [WHOLE, WHOLE]


def _matmul_input_grad(states: States, types: Types, values: Values) -> Spread:
    w, dz = types
    (_, weight, gradient), made = _matmul_grad([WHOLE, states[0], states[1]], (dz, w, dz), values)
    return [weight, gradient], made[:1]


def _matmul_weight_grad(states: States, types: Types, values: Values) -> Spread:
    needed, made = _matmul_grad(states, types, values)
    return needed, made[1:]


def _linear(states: States, types: Types, values: Values) -> Spread:
    """The rule of a product; a bias beside a sum that is spread would count on each device."""
    needed, made = _matmul(states[:2], types[:2], values)
    if made == [SUM]:
        raise InputError("operator linear", "cannot be cut by rows, because each device would add the bias")
    last = len(types[0].shape) - 1
    return [*needed, State("part", 0) if made == [State("part", last)] else WHOLE], made


def _residual(states: States, types: Types, values: Values) -> Spread:
    state = _sum(states[:2], types[:2], values)
    return [state, state, _bias([state, WHOLE], types[1:], values)[0][1]], [state]


def _bias(states: States, types: Types, values: Values) -> Spread:
    """The bias is cut as the tensor is, where it has the axis."""
    before = len(types[0].shape) - len(types[1].shape)
    x, b = states
    if x == WHOLE and b.how == "part":
        x = State("part", b.axis + before)
    b = State("part", x.axis - before) if x.how == "part" and x.axis >= before else WHOLE
    return [x, b], [x]


def _bias_grad(states: States, types: Types, values: Values) -> Spread:
    """Cut along an axis that stays; along one that is summed over, a sum."""
    (state,), before = states, len(types[0].shape) - integer(values, "axes")
    if state.how == "part":
        return [state], [State("part", state.axis - before) if state.axis >= before else SUM]
    return [state], [state]


def _embedding(states: States, types: Types, values: Values) -> Spread:
    """Columns of the table are columns of the rows looked up."""
    cut = states[0] == State("part", 1)
    return [states[0] if cut else WHOLE, WHOLE], [State("part", len(types[1].shape)) if cut else WHOLE]


def _embedding_grad(states: States, types: Types, values: Values) -> Spread:
    needed, made = _embedding(states, types, values)
    return [*needed, *made], needed[:1]


_ALL_ALIKE: dict[str, Callable[[States, Types, Values], State]] = {
    **dict.fromkeys(("identity", "relu", "relu_grad", "gelu", "gelu_grad"), _first_cut),
    **dict.fromkeys(("concat", "split", "write"), _along),
    **dict.fromkeys(("attention", "attention_grad", "unpack_qkv", "pack_qkv"), _heads),
    **dict.fromkeys(("layer_norm", "layer_norm_grad", "loss", "loss_grad"), _whole),
    **dict.fromkeys(("cross_entropy", "cross_entropy_grad"), _whole),
    "add": _sum,
}
"""Operators whose inputs and outputs are all in one state."""
_RULES: dict[str, Callable[[States, Types, Values], Spread]] = {
    "linear": _linear,
    "residual": _residual,
    "bias": _bias,
    "bias_grad": _bias_grad,
    "embedding": _embedding,
    "embedding_grad": _embedding_grad,
    "matmul": _matmul,
    "matmul_grad": _matmul_grad,
    "matmul_input_grad": _matmul_input_grad,
    "matmul_weight_grad": _matmul_weight_grad,
}
