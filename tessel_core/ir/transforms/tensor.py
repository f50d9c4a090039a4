"""Tensor parallelism: several devices compute each layer together. Weights are divided by columns or rows.

For each operator there is a rule. It tells how the outputs are divided among devices if the inputs are divided in a
given way (`sharding.State`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import eq

from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.operators.attributes import axes_of, axis_of, integer, integers
from tessel_core.ir.operators.elementwise import BINARY, BINARY_GRADIENTS
from tessel_core.ir.operators.functions import FUNCTION_GRADIENTS, FUNCTIONS
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.operators.shaping import reshaped
from tessel_core.ir.program import AttributeValue, Op
from tessel_core.ir.transforms.data import UPDATE
from tessel_core.ir.transforms.expansion import EXPERT, TENSOR, Degrees, collective, expanded
from tessel_core.ir.transforms.sharding import OWN, SUM, WHOLE, Sharding, Spread, State, States, one_device


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """Tensor parallelism over `degree` devices. Each weight is divided along the axis in its role.

    Sums are all-reduced at once, as in Megatron-LM [Shoeybi 2019, section 3]. In the forward pass, this happens after a
    product with a weight that is divided by rows. In the backward pass, it happens after a product with a weight that
    is divided by columns.

    With sequence parallelism, sums are scattered along the tokens instead, and tokens are gathered before the next
    product. Norms, dropouts and sums in between are divided along the tokens, too [Korthikanti 2022, arXiv 2205.05198,
    section 4.2.2]. The embedding, the projection and the loss are then divided along the vocabulary.

    Raises InputError if a weight, or the heads of an attention, do not divide.
    """

    degree: int
    sequence: bool = False

    def __call__(self, model: Distributed) -> Distributed:
        """Return the one-device model on `degree` devices."""
        return expanded(finished_sums(self.of_one(model), TENSOR, self.degree), Degrees(tensor=self.degree))

    def of_one(self, model: Distributed) -> Distributed:
        """Convert the model of one device to the program that each of the `degree` devices runs."""
        check_degree("tensor parallelism", self.degree)
        if self.degree == 1:
            return _with_scores(model) if self.sequence else model
        one_device(model, "tensor parallelism")
        return (_WithSequence if self.sequence else _Tensor)(model, self.degree).sharded()


def _with_scores(model: Distributed) -> Distributed:
    """Return the model with its loss computed in two steps, as in Megatron-LM.

    The first step computes scores of the vocabulary (see `operators/vocabulary.py`), and the second the loss.
    """
    source, build = model.program, ProgramBuilder(model.program.name)
    value_of = {value: build.input(source.value_name(value), source.types[value]) for value in source.inputs}
    scores: dict[tuple[int, int], int] = {}
    for op in source.ops:
        taken = [value_of[value] for value in op.inputs]
        if op.kind not in ("cross_entropy", "cross_entropy_grad"):
            value_of |= zip(op.outputs, build.append(op.kind, taken, op.attributes, op.tag), strict=True)
            continue
        logits, targets, number = taken
        if (logits, targets) not in scores:
            scores[logits, targets] = build.one("vocabulary_scores", [logits, targets], op.tag, index=0, parts=1)
        known = scores[logits, targets]
        if op.kind == "cross_entropy":
            dtype = source.types[op.inputs[0]].dtype
            made = build.one("vocabulary_loss", [known, number], op.tag, dtype=dtype)
        else:
            made = build.one("vocabulary_loss_grad", [logits, targets, known, number], op.tag, index=0, parts=1)
        value_of[op.outputs[0]] = made
    return replace(model, program=build.finish([value_of[value] for value in source.outputs]))


def finished_sums(model: Distributed, over: str, degree: int) -> Distributed:
    """Return the program of one device, extended by all-reduces.

    Each output that is still a sum over the devices of the dimension `over` is all-reduced.
    """
    if not any(over in piece.sums for piece in model.outputs):
        return model
    build, outputs = ProgramBuilder.resumed(model.program), list[int]()
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        summed = build.one("allreduce", [value], UPDATE, **collective(over, degree)) if over in piece.sums else value
        outputs.append(summed)
    pieces = (replace(each, sums=tuple(name for name in each.sums if name != over)) for each in model.outputs)
    return replace(model, program=build.finish(outputs), outputs=tuple(pieces))


class _Tensor(Sharding):
    over = TENSOR

    def axis_of(self, value: int, role: Role) -> int | None:
        return role.shard_axis

    def grain_of(self, role: Role) -> int:
        return role.shard_grain

    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        return spread(op.kind, states, types, values, len(op.outputs))


class _WithSequence(_Tensor):
    """Tensor parallelism with activations [batch, tokens, channels] divided along their tokens, except in products."""

    gathers_again = True

    def __init__(self, model: Distributed, degree: int) -> None:
        super().__init__(model, degree)
        self._scores: dict[tuple[int, int], int] = {}
        """For each pair of logits and targets, the gathered scores of all parts of the vocabulary."""
        self._experts_apart = any(cut.over == EXPERT for piece in model.inputs for cut in piece.cuts)

    def axis_of(self, value: int, role: Role) -> int | None:
        axis = role.vocabulary_axis
        if axis is not None and self.source.types[value].shape[axis] % self.degree == 0:
            return axis
        return role.shard_axis

    def grain_of(self, role: Role) -> int:
        return 1 if role.vocabulary_axis is not None else role.shard_grain

    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        """Return how an operator's inputs and outputs are divided with sequence parallelism.

        Operators without a rule for sequence parallelism follow the rules of tensor parallelism.
        """
        if op.kind in _EXPERT_RULES and self._experts_apart:
            return _EXPERT_RULES[op.kind](op, states, types)
        if op.kind in _WITH_SEQUENCE:
            return _WITH_SEQUENCE[op.kind](states, types, values)
        return super().spread(op, states, types, values)

    def landing(self, value: int) -> State:
        shape = self.build.type_of(self.values[value]).shape
        return TOKENS if len(shape) == 3 and shape[1] % self.degree == 0 else WHOLE

    def placed(self, op: Op, needed: States, made: States) -> dict[str, AttributeValue]:
        """Return the attributes that tell an embedding which part of its table the device has."""
        if op.kind in ("embedding", "embedding_grad") and needed[0] == _ROWS:
            return {"over": self.over, "index": 0, "parts": self.degree}
        return {}

    def rewritten(self, op: Op) -> bool:
        """Replace the loss of logits that are divided along the vocabulary, and its gradient.

        Return whether `op` was replaced.
        """
        if op.kind not in ("cross_entropy", "cross_entropy_grad"):
            return False
        logits, targets, number = op.inputs
        self.land(logits)
        last = State("part", len(self.source.types[logits].shape) - 1)
        if self.state[logits] != last:
            return False
        local, at = self.values[logits], self.converted(targets, WHOLE, op.tag)
        place: dict[str, AttributeValue] = {"over": self.over, "index": 0, "parts": self.degree}
        if (logits, targets) not in self._scores:
            scores = self.build.one("vocabulary_scores", [local, at], op.tag, **place)
            along = State("part", last.axis)
            self._scores[logits, targets] = self._together("allgather", scores, op.tag, along)
        scores, count = self._scores[logits, targets], self.converted(number, WHOLE, op.tag)
        if op.kind == "cross_entropy":
            dtype = self.source.types[logits].dtype
            made, state = self.build.one("vocabulary_loss", [scores, count], op.tag, dtype=dtype), WHOLE
        else:
            taken = [local, at, scores, count]
            made, state = self.build.one("vocabulary_loss_grad", taken, op.tag, **place), last
        (value,) = op.outputs
        self.values[value], self.state[value] = made, state
        return True


def spread(kind: str, states: States, types: Types, values: Values, outputs: int) -> Spread:
    """Return how an operator needs its inputs to be divided, and how its outputs are divided.

    Raises InputError if there is no rule for the operator.
    """
    if kind in _ALL_ALIKE:
        state = _ALL_ALIKE[kind](states, types, values)
        return [state] * len(states), [state] * outputs
    if kind in _RULES:
        return _RULES[kind](states, types, values)
    raise InputError(f"operator {kind}", "has no rule for tensor parallelism")


def _first_cut(states: States, types: Types, values: Values) -> State:
    """Rule: the operator is divided like its first divided input, or whole if all inputs are whole."""
    return next((each for each in states if each != WHOLE), WHOLE)


def _elementwise(states: States, types: Types, values: Values) -> State:
    """Rule of elementwise operators: divided like the first divided input, unless an input is broadcast."""
    return _first_cut(states, types, values) if len({each.shape for each in types}) == 1 else WHOLE


def _sum(states: States, types: Types, values: Values) -> State:
    """Rule of sums: divided like the inputs if all are divided alike.

    A sum with a whole input, such as a residual stream, is whole.
    """
    return states[0] if len(set(states)) == len({each.shape for each in types}) == 1 else WHOLE


def _whole(states: States, types: Types, values: Values) -> State:
    return WHOLE


def _along(states: States, types: Types, values: Values) -> State:
    """Rule of an operator that works along one axis: it may be divided along any other axis."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis == axis_of(values, len(types[0].shape)) else state


def _off_axes(states: States, types: Types, values: Values) -> State:
    """Rule of an operator that works along several axes: it may be divided along any other axis."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis in axes_of(values, len(types[0].shape)) else state


def _channels(states: States, types: Types, values: Values) -> State:
    """Rule of [n, channels, ..]: divided by sample or by channel (or head), which are independent of each other."""
    state = _first_cut(states, types, values)
    return state if state.axis < 2 else WHOLE


def _rows_alike(states: States, types: Types, values: Values) -> State:
    """Rule of dropout: divided along any axis but the last, because dropout draws once per index of the last axis."""
    state = _first_cut(states, types, values)
    return WHOLE if state.axis == len(types[0].shape) - 1 else state


def _heads(states: States, types: Types, values: Values) -> State:
    """Rule of heads: divided by sample or head, which are independent of each other, but not by token."""
    return next((each for each in states if each.how == "part" and each.axis != 1), WHOLE)


def _matmul(states: States, types: Types, values: Values) -> Spread:
    x, w = types
    last, rows, columns = len(x.shape) - 1, len(w.shape) - 2, len(w.shape) - 1
    if states[1] == State("part", columns):
        return [WHOLE, states[1]], [State("part", last)]
    if states[1] == State("part", rows):
        return [State("part", last), states[1]], [SUM]
    # An input that is divided by rows stays divided. An input that is divided along the contracted axis is gathered.
    state = states[0] if states[0].how == "part" and states[0].axis < last and len(w.shape) == 2 else WHOLE
    return [state, WHOLE], [state]


def _matmul_transposed(states: States, types: Types, values: Values) -> Spread:
    """Rule of a product with a transposed table.

    If the table is divided by rows, the output is divided by columns. If the table is divided by columns, the output is
    a sum.
    """
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
    """Rule of a product with a bias. The bias must not be added to each term of a sum."""
    needed, made = _matmul(states[:2], types[:2], values)
    if made == [SUM]:
        raise InputError("operator linear", "cannot be divided by rows, because each device would add the bias")
    last = len(types[0].shape) - 1
    return [*needed, State("part", 0) if made == [State("part", last)] else WHOLE], made


def _residual(states: States, types: Types, values: Values) -> Spread:
    state = _sum(states[:2], types[:2], values)
    return [state, state, _bias([state, WHOLE], types[1:], values)[0][1]], [state]


def _bias(states: States, types: Types, values: Values) -> Spread:
    """Rule of a bias: it is divided like the tensor if it has the divided axis."""
    before = len(types[0].shape) - len(types[1].shape)
    x, b = states
    if x == WHOLE and b.how == "part":
        x = State("part", b.axis + before)
    b = State("part", x.axis - before) if x.how == "part" and x.axis >= before else WHOLE
    return [x, b], [x]


def _bias_grad(states: States, types: Types, values: Values) -> Spread:
    """Rule of a bias's gradient: a part if the divided axis stays, a sum if the gradient sums over it."""
    (state,), before = states, len(types[0].shape) - integer(values, "axes")
    if state.how == "part":
        return [state], [State("part", state.axis - before) if state.axis >= before else SUM]
    return [state], [state]


TOKENS = State("part", 1)
"""[batch, tokens, channels] is divided: each device has some of the tokens."""


def _embedding(states: States, types: Types, values: Values) -> Spread:
    """Rule of an embedding: a sum for a table divided by rows, and columns of the output for one divided by columns."""
    if states[0] == _ROWS:
        return [_ROWS, WHOLE], [SUM]
    cut = states[0] == State("part", 1)
    return [states[0] if cut else WHOLE, WHOLE], [State("part", len(types[1].shape)) if cut else WHOLE]


def _embedding_grad(states: States, types: Types, values: Values) -> Spread:
    needed, made = _embedding(states, types, values)
    return [*needed, *(WHOLE if each == SUM else each for each in made)], needed[:1]


def _by_heads(*cut: State) -> Callable[[States, Types, Values], Spread]:
    """Return the rule of an operator, or its gradient, that is divided by heads.

    `cut` lists how the inputs are divided, then how the output is.
    """
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
    """Rule of reshapes: divided along the axis of the result that has as many numbers before it, if there is one."""
    (state,), shape = states, types[0].shape
    if state.how == "part":
        made, before = reshaped(shape, integers(values, "shape")), math.prod(shape[: state.axis])
        alike = (axis for axis, size in enumerate(made) if size > 1 and math.prod(made[:axis]) == before)
        axis = next(alike, None)
        if axis is not None:
            return [state], [State("part", axis)]
    return [WHOLE], [WHOLE]


def _reduce_sum(states: States, types: Types, values: Values) -> Spread:
    """Rule of `reduce_sum`: a part if the divided axis stays, a sum if it is summed over."""
    (state,), axes = states, axes_of(values, len(types[0].shape))
    if state.how != "part":
        return [state], [state]
    if state.axis in axes:
        return [state], [SUM]
    gone = 0 if values["keep"] else sum(axis < state.axis for axis in axes)
    return [state], [State("part", state.axis - gone)]


def _expand(states: States, types: Types, values: Values) -> Spread:
    """Rule of `expand`: divided along an axis that is not repeated."""
    (state,), shape = states, integers(values, "shape")
    stays = state.how == "part" and len(shape) == len(types[0].shape) and shape[state.axis] == 1
    return ([state], [state]) if stays else ([WHOLE], [WHOLE])


_ROWS = State("part", 0)
"""The weights of a convolution are divided by output channels."""
_MADE = State("part", 1)
"""[n, channels, ..] is divided by channels, or scores [batch, heads, ..] by heads."""
_COLUMNS = State("part", 2)
"""[batch, tokens, columns] is divided by whole heads."""


def _conv(states: States, types: Types, values: Values) -> Spread:
    """Rule of convolutions [Dryden 2019, filter parallelism].

    Each device computes some output channels from all input channels.
    """
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
    """Rule of a convolution's weight gradient: the weight is divided as the output's gradient is."""
    rows = _ROWS if states[1] == _MADE else WHOLE
    (x, _, dz), made = _conv_grad([WHOLE, rows, states[1]], types, values)
    return [x, dz], made[1:]


def _grouped_matmul(states: States, types: Types, values: Values) -> Spread:
    """Rule of products of experts.

    The weights [experts, k, m] are divided by columns or rows, like the weight of a product.
    """
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
    """Rule of `rms_norm`: divided by rows, which are independent. The gradient of the scale is a sum over rows."""
    state, last = _first_cut(states, types, values), len(types[0].shape) - 1
    state = state if state.how == "part" and state.axis < last else WHOLE
    if len(types) == 2:
        return [state, WHOLE], [state]
    return [state, WHOLE, state], [state, WHOLE if state == WHOLE else SUM]


def _batch_norm(states: States, types: Types, values: Values) -> Spread:
    """Rule of batch norms: divided by channel.

    The gradient has only the scale as input, but returns the shift's gradient, too.
    """
    is_gradient = len(types[2].shape) > 1
    cut = _MADE in (states[0], states[2]) or states[1] == _ROWS
    x, scale = (_MADE, _ROWS) if cut else (WHOLE, WHOLE)
    return ([x, scale, x], [x, scale, scale]) if is_gradient else ([x, scale, scale], [x])


_ALL_ALIKE: dict[str, Callable[[States, Types, Values], State]] = {
    **{each.kind: _elementwise for each in (*FUNCTIONS, *FUNCTION_GRADIENTS, *BINARY, *BINARY_GRADIENTS)},
    **dict.fromkeys(("identity", "relu", "relu_grad", "gate", "gate_grad"), _elementwise),
    **dict.fromkeys(("concat", "split", "chunk", "slice", "split_at", "write"), _along),
    **dict.fromkeys(("allgather", "part", "reduce_scatter"), _along),
    "roll": _off_axes,
    **dict.fromkeys(("max_pool", "max_pool_grad", "global_average_pool"), _channels),
    **dict.fromkeys(("masked_softmax", "masked_softmax_grad"), _channels),
    **dict.fromkeys(("dropout", "dropout_grad"), _rows_alike),
    **dict.fromkeys(("attention", "attention_grad", "rotary", "unpack_qkv", "pack_qkv"), _heads),
    **dict.fromkeys(("layer_norm", "layer_norm_grad", "loss", "loss_grad"), _whole),
    **dict.fromkeys(("cross_entropy", "cross_entropy_grad", "pad"), _whole),
    **dict.fromkeys(("route", "route_grad", "dispatch", "dispatch_grad", "combine", "combine_grad"), _whole),
    **dict.fromkeys(("attention_block", "attention_merge", "attention_block_grad"), _heads),
    **dict.fromkeys(("allreduce", "alltoall", "shift"), _first_cut),
    "add": _sum,
}
"""Rules of operators whose inputs and outputs are all divided in the same way."""
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
    "reduce_sum": _reduce_sum,
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


def _cut_by_rows(states: States, types: Types) -> State:
    """Return how the first activation is divided that is divided along an axis other than its last.

    If there is none, return whole.
    """
    pairs = zip(states, types, strict=True)
    found = (state for state, each in pairs if state.how == "part" and 2 < len(each.shape) > state.axis + 1)
    return next(found, WHOLE)


def _layer_norm(states: States, types: Types, values: Values) -> Spread:
    """Rule of `layer_norm`: divided by rows, which are independent of each other."""
    state = _cut_by_rows(states, types)
    return [state, WHOLE, WHOLE], [state]


def _layer_norm_grad(states: States, types: Types, values: Values) -> Spread:
    """Rule of the gradient of `layer_norm`: divided by rows. The gradients of scale and shift are sums over rows."""
    state = _cut_by_rows(states, types)
    return [state, WHOLE, state], [state, *[WHOLE if state == WHOLE else SUM] * 2]


def _prefer_tokens(states: States, types: Types, values: Values) -> State:
    """Rule that divides along the tokens if an input is divided along them."""
    alike = len({each.shape for each in types}) == 1
    return TOKENS if alike and TOKENS in states else _sum(states, types, values)


def _residual_of_tokens(states: States, types: Types, values: Values) -> Spread:
    state = _prefer_tokens(states[:2], types[:2], values)
    return [state, state, WHOLE], [state]


def _by_rows(rule: Callable[[States, Types, Values], Spread], weight: int) -> Callable[[States, Types, Values], Spread]:
    """Return the rule of a product's gradient when activations are divided by rows.

    If the weight is whole, activations stay divided, and the gradient of the weight is a sum. `weight` is the weight's
    index among the inputs.
    """

    def found(states: States, types: Types, values: Values) -> Spread:
        """Keep activations divided by rows if the weight is whole. Otherwise apply `rule`."""
        needed, made = rule(states, types, values)
        state = _cut_by_rows(states, types)
        if states[weight] != WHOLE or state == WHOLE:
            return needed, made
        needed = [WHOLE if place == weight else state for place in range(len(states))]
        return needed, [SUM if of_weight else state for of_weight in _OF_WEIGHT[weight, len(states)]]

    return found


_OF_WEIGHT = {(1, 3): (False, True), (0, 2): (False,)}
"""Whether each output is the weight's gradient. The key is the weight's index and the number of inputs."""


def _weight_grad_by_rows(states: States, types: Types, values: Values) -> Spread:
    needed, made = _by_rows(_matmul_grad, 1)(states, types, values)
    return needed, made[1:]


_WITH_SEQUENCE: dict[str, Callable[[States, Types, Values], Spread]] = {
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "residual": _residual_of_tokens,
    "add": lambda states, types, values: (
        [_prefer_tokens(states, types, values)] * 2,
        [_prefer_tokens(states, types, values)],
    ),
    "matmul_grad": _by_rows(_matmul_grad, 1),
    "matmul_transposed_grad": _by_rows(_matmul_transposed_grad, 1),
    "matmul_input_grad": _by_rows(_matmul_input_grad, 0),
    "matmul_weight_grad": _weight_grad_by_rows,
}
"""Rules of operators that process each token independently."""

ROWS = State("part", 0)
"""Rows [n, channels] for experts are divided: each device has the rows of some of the tokens."""


def _of_experts(weights: int | None, gradients: tuple[int, ...] = ()) -> Callable[[Op, States, Types], Spread]:
    """Return the rule of an operator of experts when each device has some of the tokens.

    `weights` is the index of the weights among the inputs, if any. `gradients` are the outputs that are weight
    gradients.
    """

    def found(op: Op, states: States, types: Types) -> Spread:
        """Divide activations by token or row. A weight gradient is a sum, or belongs to the device alone."""

        def cut(rank: int) -> State:
            return TOKENS if rank == 3 else ROWS

        own = weights is not None and states[weights] == OWN
        needed = [
            states[place] if place == weights else WHOLE if len(each.shape) == 1 else cut(len(each.shape))
            for place, each in enumerate(types)
        ]
        rows = [ROWS if op.kind in _MAKING_ROWS and place == 0 else TOKENS for place in range(len(op.outputs))]
        if op.kind == "dispatch_grad" and len(types[0].shape) == 2:
            rows = [ROWS]
        made = [(OWN if own else SUM) if place in gradients else state for place, state in enumerate(rows)]
        return needed, made

    return found


_MAKING_ROWS = frozenset(
    {"dispatch", "grouped_matmul", "grouped_matmul_input_grad", "grouped_matmul_grad", "combine_grad", "exchange_rows"}
    | {"exchange_choice", "return_rows"}
)
_EXPERT_RULES: dict[str, Callable[[Op, States, Types], Spread]] = {
    **dict.fromkeys(("route", "route_grad", "dispatch", "dispatch_grad", "combine", "combine_grad"), _of_experts(None)),
    **dict.fromkeys(("exchange_choice", "exchange_rows", "return_rows"), _of_experts(None)),
    "grouped_matmul": _of_experts(2),
    "grouped_matmul_input_grad": _of_experts(0),
    "grouped_matmul_weight_grad": _of_experts(2, (0,)),
    "grouped_matmul_grad": _of_experts(2, (1,)),
}
"""Rules of operators of experts when each device has some of the tokens."""


def _loss_of_tokens(states: States, types: Types, values: Values) -> Spread:
    """Rule of losses: divided by predictions, which are independent of each other."""
    rows = TOKENS if TOKENS in states[:2] else WHOLE
    return [rows, rows, WHOLE], [rows]


def _embedding_of_tokens(states: States, types: Types, values: Values) -> Spread:
    """Rule of embeddings: divided by tokens, whose rows are looked up independently."""
    return [WHOLE, states[1]], [states[1]]


def _embedding_grad_of_tokens(states: States, types: Types, values: Values) -> Spread:
    return [WHOLE, states[1], states[1]], [WHOLE if states[1] == WHOLE else SUM]


_OF_TOKENS: dict[str, Callable[[States, Types, Values], Spread]] = {
    **dict.fromkeys(("cross_entropy", "cross_entropy_grad"), _loss_of_tokens),
    "embedding": _embedding_of_tokens,
    "embedding_grad": _embedding_grad_of_tokens,
}
"""Rules of operators with whole weights when each device has some of the tokens."""


def spread_of_tokens(op: Op, states: States, types: Types, values: Values) -> Spread:
    """Return how an operator's inputs and outputs are divided if weights are whole and activations divided by
    tokens."""
    if op.kind in _EXPERT_RULES:
        return _EXPERT_RULES[op.kind](op, states, types)
    if op.kind in _OF_TOKENS:
        return _OF_TOKENS[op.kind](states, types, values)
    if op.kind in ("rotary", "unpack_qkv", "pack_qkv"):
        state = _first_cut(states, types, values)
        return [state] * len(states), [state] * len(op.outputs)
    if op.kind in _WITH_SEQUENCE:
        return _WITH_SEQUENCE[op.kind](states, types, values)
    return spread(op.kind, states, types, values, len(op.outputs))
