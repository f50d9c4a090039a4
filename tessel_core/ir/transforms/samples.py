"""Find the axis of the samples in each value of a forward program.

Axes are followed from the inputs through every operation. A program can be divided into replicas only if no operation
mixes samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import inferred
from tessel_core.ir.operators.attributes import axes_of, axis_of, integers
from tessel_core.ir.operators.elementwise import BINARY, UNARY
from tessel_core.ir.operators.operator import Types, Values, need
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import TensorType

Axis = int | None
"""Axis of the samples, or None if the value has no samples."""
Axes = Sequence[Axis]
Rule = Callable[[Axes, Types, Types, Values], Axis]
"""Computes the sample axis of an operation's outputs from those of its inputs. At least one input has a sample axis.

Raises InputError if the operation mixes samples.
"""


class _HoldsSamplesError(Exception):
    """Raised when an input turns out to have samples along an axis.

    It was first assumed to be the same for all samples.
    """

    def __init__(self, position: int, axis: int) -> None:
        super().__init__(position, axis)
        self.position, self.axis = position, axis


def with_samples(model: Distributed, batch: Mapping[str, int]) -> Distributed:
    """Return the model with sample axes in its roles. `batch` gives the sample axis of some inputs.

    Another input also has a sample axis if it meets the samples of other tensors and is as long as the batch there,
    such as a mask of that size.

    Raises InputError with the name of the first operation that mixes samples or has no rule. Raises InputError for an
    output without a sample axis.
    """
    found = dict(batch)
    axes = _followed(model, found)
    roles = dict(model.roles)
    for name, axis in found.items():
        roles[name] = replace(roles[name], batch_axis=axis)
    for value, piece in zip(model.program.outputs, model.outputs, strict=True):
        if axes[value] is None:
            raise InputError(f"output {piece.name}", "has no sample axis, so it cannot be divided among replicas")
        roles[piece.name] = replace(roles[piece.name], batch_axis=axes[value])
    return replace(model, roles=roles)


def _followed(model: Distributed, batch: dict[str, int]) -> list[Axis]:
    """Return the sample axis of each value. Add inputs that turn out to have samples to `batch`."""
    while True:
        axes: list[Axis] = [None] * len(model.program.types)
        for value, piece in model.piece_of.items():
            axes[value] = batch.get(piece.name)
        for i, op in enumerate(model.program.ops):
            called = dict(op.attributes).get("operator", op.kind)
            try:
                _follow(model.program, op, axes)
            except InputError as error:
                raise InputError(f"operation {i} ({called})", error.why) from None
            except _HoldsSamplesError as found:
                given = model.piece_of.get(op.inputs[found.position])
                if given is None:
                    raise InputError(f"operation {i} ({called})", _MIXED) from None
                batch[given.name] = found.axis
                break
        else:
            return axes


def _follow(program: Program, op: Op, axes: list[Axis]) -> None:
    """Set the sample axis of an operation's outputs in `axes`."""
    taken = [axes[value] for value in op.inputs]
    if all(axis is None for axis in taken):
        return
    need(op.kind in _RULES, "has no rule for its sample axis")
    values = dict(op.attributes)
    made = _RULES[op.kind](taken, program.types_of(op.inputs), program.types_of(op.outputs), values)
    for value in op.outputs:
        axes[value] = made


_MIXED = "mixes the samples of a batch"


def _apart(condition: bool) -> None:
    need(condition, _MIXED)


def _only(axes: Axes) -> int:
    """Return the sample axis of the first input. Raises InputError if another input has samples."""
    first, *rest = axes
    _apart(first is not None and all(axis is None for axis in rest))
    assert first is not None
    return first


def _broadcast(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of broadcasting: all inputs with samples must have the same sample axis, counted from the last axis."""
    behind = {len(each.shape) - axis for axis, each in zip(axes, types, strict=True) if axis is not None}
    _apart(len(behind) == 1)
    last = behind.pop()
    for i, (axis, each) in enumerate(zip(axes, types, strict=True)):
        if axis is None and len(each.shape) >= last and each.shape[-last] != 1:
            raise _HoldsSamplesError(i, len(each.shape) - last)
    return len(outputs[0].shape) - last


def _matmul(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of products: samples are rows of the left factor, columns of the right factor, or a batch of products."""
    (x, y), rank = axes, len(outputs[0].shape)
    if y is None and x == len(types[0].shape) - 2:
        return rank - 2
    if x is None and y == len(types[1].shape) - 1:
        return rank - 1
    behind = [None if axis is None else len(each.shape) - axis for axis, each in zip(axes, types, strict=True)]
    _apart(all(each is None or each > 2 for each in behind))
    return _broadcast(axes, types, outputs, values)


def _gemm(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of `gemm`: samples are the rows of the product."""
    _apart(axes[0] == values["trans_a"] and axes[1] is None)
    for axis, each in zip(axes[2:], types[2:], strict=True):
        _apart(axis == 0 if len(each.shape) == 2 and each.shape[0] > 1 else axis is None)
    return 0


def _not_along_axes(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    axis = _only(axes)
    _apart(axis not in axes_of(values, len(types[0].shape)))
    return axis


def _normalized(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of norms: samples are an axis of the tensor, and scale and shift have no samples."""
    _not_along_axes(axes, types, outputs, values)
    return _broadcast(axes, types, outputs, values)


def _reduced(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    axis = _not_along_axes(axes, types, outputs, values)
    assert axis is not None
    gone = () if values["keep"] else axes_of(values, len(types[0].shape))
    return axis - sum(each < axis for each in gone)


def _first(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    _apart(_only(axes) == 0)
    return 0


def _along(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of an operator that works along an axis: the samples must be along another axis."""
    found = {axis for axis in axes if axis is not None}
    _apart(len(found) == 1)
    made = found.pop()
    _apart(made != axis_of(values, len(types[0].shape)))
    if None in axes:
        raise _HoldsSamplesError(list(axes).index(None), made)
    return made


def _reshaped(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of reshapes: return the axis that grows with the samples.

    As many numbers come before this axis as before the input's sample axis.
    """
    axis, shape, made = _only(axes), types[0].shape, outputs[0].shape
    before = math.prod(shape[:axis])
    more = types[0].shaped((*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]))
    for place, size in enumerate(made):
        if math.prod(made[:place]) == before:
            longer = outputs[0].shaped((*made[:place], 2 * size, *made[place + 1 :]))
            if _makes(more, values) == longer:
                return place
    raise InputError("", _MIXED)


def _makes(given: TensorType, values: Values) -> TensorType | None:
    try:
        return inferred("reshape", [given], tuple(values.items()))[0]
    except InputError:
        return None


def _expanded(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    last = len(types[0].shape) - _only(axes)
    shape = integers(values, "shape")
    need(len(shape) < last or shape[-last] == 1, "fixes the number of samples in its shape")
    return len(outputs[0].shape) - last


def _taken(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    """Rule of `take`: either the tensor or the indices may have samples."""
    (x, places), along = axes, axis_of(values, len(types[0].shape))
    if x is None:
        assert places is not None
        return along + places
    _apart(places is None and x != along)
    return x if x < along else x + len(types[1].shape) - 1


def _padded(axes: Axes, types: Types, outputs: Types, values: Values) -> Axis:
    axis = _only(axes)
    _apart(types[0].shape[axis] == outputs[0].shape[axis])
    return axis


_RULES: dict[str, Rule] = {
    **dict.fromkeys((each.kind for each in (*UNARY, *BINARY)), _broadcast),
    **dict.fromkeys(("add", "relu", "where", "cast"), _broadcast),
    "matmul": _matmul,
    "gemm": _gemm,
    **dict.fromkeys(("softmax", "log_softmax", "strided_slice", "roll"), _not_along_axes),
    "layer_normalization": _normalized,
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"), _reduced),
    **dict.fromkeys(("reduce_l2", "reduce_sum_square"), _reduced),
    **dict.fromkeys(("batch_norm", "conv", "max_pool", "average_pool"), _first),
    **dict.fromkeys(("global_average_pool", "global_max_pool"), _first),
    **dict.fromkeys(("concat", "split", "split_at"), _along),
    "transpose": lambda axes, types, outputs, values: axes_of(values, len(types[0].shape)).index(_only(axes)),
    "reshape": _reshaped,
    "expand": _expanded,
    "take": _taken,
    "pad": _padded,
}
