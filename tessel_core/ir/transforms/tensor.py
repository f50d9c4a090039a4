"""Tensor parallelism: weights cut by columns or rows over devices that compute each layer together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, check_degree, divided
from tessel_core.ir.operators.attributes import axes_of, axis_of, integer, integers
from tessel_core.ir.operators.elementwise import BINARY, BINARY_GRADIENTS
from tessel_core.ir.operators.functions import FUNCTION_GRADIENTS, FUNCTIONS
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.operators.shaping import reshaped
from tessel_core.ir.program import Attributes, Op, Program, Tag


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
        attributes = self._of_one_device(op, made)
        each = [self._build.append(op.kind, mine, attributes, op.tag) for mine in inputs]
        for i, (value, state) in enumerate(zip(op.outputs, made, strict=True)):
            self._values[value], self._state[value] = tuple(outputs[i] for outputs in each), state
        for value in op.outputs:
            if self._state[value] == SUM:
                self._values[value] = self._build.add("allreduce", self._values[value], op.tag)
                self._state[value] = WHOLE

    def _of_one_device(self, op: Op, made: States) -> Attributes:
        """The attributes of what one device does: a reshape names the size of its part."""
        if op.kind != "reshape" or made[0].how != "part":
            return op.attributes
        shape, axis = list(integers(dict(op.attributes), "shape")), made[0].axis
        if shape[axis] > 0:
            shape[axis] = divided(self._source.types[op.outputs[0]], axis, self._degree, "reshape").shape[axis]
        return (("shape", tuple(shape)),)

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
    """All inputs cut as the first one that is cut."""
    return next((each for each in states if each != WHOLE), WHOLE)


def _elementwise(states: States, types: Types, values: Values) -> State:
    """Element by element: cut as the first input that is cut, unless one is broadcast."""
    return _first_cut(states, types, values) if len({each.shape for each in types}) == 1 else WHOLE


def _sum(states: States, types: Types, values: Values) -> State:
    """Cut where all inputs are cut alike; a residual stream that is whole stays whole, as what is broadcast does."""
    return states[0] if len(set(states)) == len({each.shape for each in types}) == 1 else WHOLE


def _whole(states: States, types: Types, values: Values) -> State:
    return WHOLE


def _along(states: States, types: Types, values: Values) -> State:
    """Along one axis: cut along another axis, or whole."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis == axis_of(values, len(types[0].shape)) else state


def _off_axes(states: States, types: Types, values: Values) -> State:
    """Along some axes: cut along another axis, or whole."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis in axes_of(values, len(types[0].shape)) else state


def _channels(states: States, types: Types, values: Values) -> State:
    """Samples and channels, or heads, of [n, channels, ..] are independent of each other."""
    state = _first_cut(states, types, values)
    return state if state.axis < 2 else WHOLE


def _rows_alike(states: States, types: Types, values: Values) -> State:
    """Cut along any axis but the last, along which dropout draws."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis == len(types[0].shape) - 1 else state


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


def _matmul_transposed(states: States, types: Types, values: Values) -> Spread:
    """A table cut by rows makes columns, one cut by columns a sum."""
    last = State("part", len(types[0].shape) - 1)
    if states[1] == _ROWS:
        return [WHOLE, _ROWS], [last]
    return ([last, states[1]], [SUM]) if states[1] == State("part", 1) else ([WHOLE, WHOLE], [WHOLE])


def _matmul_transposed_grad(states: States, types: Types, values: Values) -> Spread:
    (x, w), made = _matmul_transposed(states[:2], types[:2], values)
    return [x, w, WHOLE if made[0] == SUM else made[0]], [SUM if x == WHOLE != w else x, w]


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


def _by_heads(*cut: State) -> Callable[[States, Types, Values], Spread]:
    """The rule of an operator and its gradient that are cut by heads: so are the inputs, and last the output."""
    inputs = len(cut) - 1

    def rule(states: States, types: Types, values: Values) -> Spread:
        wanted = cut if any(map(eq, states, cut)) else [WHOLE] * len(cut)
        return (list(wanted[: len(states)]), list(wanted[inputs:] if len(states) == inputs else wanted[:inputs]))

    return rule


def _permuted(states: States, types: Types, values: Values) -> Spread:
    (state,) = states
    axes = axes_of(values, len(types[0].shape))
    return [state], [State("part", axes.index(state.axis)) if state.how == "part" else state]


def _reshaped(states: States, types: Types, values: Values) -> Spread:
    """Cut along the axis of the result that has as many numbers before it, where there is one."""
    (state,), shape = states, types[0].shape
    if state.how == "part":
        made, before = reshaped(shape, integers(values, "shape")), math.prod(shape[: state.axis])
        alike = (axis for axis, size in enumerate(made) if size > 1 and math.prod(made[:axis]) == before)
        axis = next(alike, None)
        if axis is not None:
            return [state], [State("part", axis)]
    return [WHOLE], [WHOLE]


def _expand(states: States, types: Types, values: Values) -> Spread:
    """Cut along an axis that is not repeated."""
    (state,), shape = states, integers(values, "shape")
    stays = state.how == "part" and len(shape) == len(types[0].shape) and shape[state.axis] == 1
    return ([state], [state]) if stays else ([WHOLE], [WHOLE])


_ROWS = State("part", 0)
"""Of weights: the channels that a convolution makes."""
_MADE = State("part", 1)
"""Of [n, channels, ..]: channels; of scores [batch, heads, ..]: heads."""
_COLUMNS = State("part", 2)
"""Of [batch, tokens, columns]: those of whole heads."""


def _conv(states: States, types: Types, values: Values) -> Spread:
    """Each device makes some of the channels from all of those before [Dryden 2019, filter parallelism]."""
    if states[1] != _ROWS or values["groups"] != 1:
        return [WHOLE] * len(states), [WHOLE]
    return [WHOLE, *[_ROWS] * (len(states) - 1)], [_MADE]


def _conv_grad(states: States, types: Types, values: Values) -> Spread:
    _, weight, _ = states
    if weight != _ROWS or values["groups"] != 1:
        return [WHOLE] * 3, [WHOLE] * 2
    return [WHOLE, _ROWS, _MADE], [SUM, _ROWS]


def _conv_input_grad(states: States, types: Types, values: Values) -> Spread:
    (_, *needed), made = _conv_grad([WHOLE, *states], types, values)
    return needed, made[:1]


def _conv_weight_grad(states: States, types: Types, values: Values) -> Spread:
    """The gradient says how the weight is cut."""
    rows = _ROWS if states[1] == _MADE else WHOLE
    (x, _, dz), made = _conv_grad([WHOLE, rows, states[1]], types, values)
    return [x, dz], made[1:]


def _grouped_matmul(states: States, types: Types, values: Values) -> Spread:
    """Weights [experts, k, m] of each expert cut by columns or rows, as those of a product."""
    w, rows = states[2], State("part", 1)
    if w == State("part", 2):
        return [WHOLE, WHOLE, w], [rows]
    return ([rows, WHOLE, w], [SUM]) if w == State("part", 1) else ([WHOLE] * 3, [WHOLE])


def _grouped_matmul_grad(states: States, types: Types, values: Values) -> Spread:
    (rows, _, w), (made,) = _grouped_matmul(states[:3], types[:3], values)
    return [rows, WHOLE, w, WHOLE if made == SUM else made], [SUM if rows == WHOLE != w else rows, w]


def _grouped_matmul_input_grad(states: States, types: Types, values: Values) -> Spread:
    w, columns = states[0], State("part", 1)
    if w == State("part", 2):
        return [w, WHOLE, columns], [SUM]
    return ([w, WHOLE, WHOLE], [columns]) if w == State("part", 1) else ([WHOLE] * 3, [WHOLE])


def _grouped_matmul_weight_grad(states: States, types: Types, values: Values) -> Spread:
    needed, (made,) = _grouped_matmul(states[:3], types[:3], values)
    return [*needed, WHOLE if made == SUM else made], [needed[2]]


def _rms_norm(states: States, types: Types, values: Values) -> Spread:
    """Rows are independent of each other; the gradient of the scale is a sum over them."""
    state, last = _first_cut(states, types, values), len(types[0].shape) - 1
    state = state if state.how == "part" and state.axis < last else WHOLE
    if len(types) == 2:
        return [state, WHOLE], [state]
    return [state, WHOLE, state], [state, WHOLE if state == WHOLE else SUM]


def _batch_norm(states: States, types: Types, values: Values) -> Spread:
    """Channel by channel; the gradient takes the scale alone and makes that of the shift too."""
    is_gradient = len(types[2].shape) > 1
    cut = _MADE in (states[0], states[2]) or states[1] == _ROWS
    x, scale = (_MADE, _ROWS) if cut else (WHOLE, WHOLE)
    return ([x, scale, x], [x, scale, scale]) if is_gradient else ([x, scale, scale], [x])


_ALL_ALIKE: dict[str, Callable[[States, Types, Values], State]] = {
    **{each.kind: _elementwise for each in (*FUNCTIONS, *FUNCTION_GRADIENTS, *BINARY, *BINARY_GRADIENTS)},
    **dict.fromkeys(("identity", "relu", "relu_grad", "gelu", "gelu_grad", "gate", "gate_grad"), _elementwise),
    **dict.fromkeys(("concat", "split", "chunk", "slice", "split_at", "write"), _along),
    "roll": _off_axes,
    **dict.fromkeys(("max_pool", "max_pool_grad", "global_average_pool"), _channels),
    **dict.fromkeys(("masked_softmax", "masked_softmax_grad"), _channels),
    **dict.fromkeys(("dropout", "dropout_grad"), _rows_alike),
    **dict.fromkeys(("attention", "attention_grad", "rotary", "unpack_qkv", "pack_qkv"), _heads),
    **dict.fromkeys(("layer_norm", "layer_norm_grad", "loss", "loss_grad"), _whole),
    **dict.fromkeys(("cross_entropy", "cross_entropy_grad", "pad", "reduce_sum"), _whole),
    **dict.fromkeys(("route", "route_grad", "dispatch", "dispatch_grad", "combine", "combine_grad"), _whole),
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
    **dict.fromkeys(("attention_bias", "attention_bias_grad"), _by_heads(*(_COLUMNS,) * 3, _MADE, _COLUMNS)),
    **dict.fromkeys(("attention_scores", "attention_scores_grad"), _by_heads(_COLUMNS, _COLUMNS, _MADE)),
    **dict.fromkeys(("attention_context", "attention_context_grad"), _by_heads(_MADE, _COLUMNS, _COLUMNS)),
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_grad": _grouped_matmul_grad,
    "grouped_matmul_input_grad": _grouped_matmul_input_grad,
    "grouped_matmul_weight_grad": _grouped_matmul_weight_grad,
    **dict.fromkeys(("rms_norm", "rms_norm_grad"), _rms_norm),
    **dict.fromkeys(("permute", "transpose"), _permuted),
    "reshape": _reshaped,
    "expand": _expand,
    "conv": _conv,
    "conv_grad": _conv_grad,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    **dict.fromkeys(("batch_norm_training", "batch_norm_training_grad"), _batch_norm),
    "matmul": _matmul,
    "matmul_transposed": _matmul_transposed,
    "matmul_transposed_grad": _matmul_transposed_grad,
    "matmul_grad": _matmul_grad,
    "matmul_input_grad": _matmul_input_grad,
    "matmul_weight_grad": _matmul_weight_grad,
}
