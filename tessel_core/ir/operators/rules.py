"""Rules that operators share for shapes and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import axes_of, axis_of
from tessel_core.ir.operators.operator import Compute, Operator, Reverse, Types, Values, WorkRule, need
from tessel_core.ir.types import TensorType


def count(types: Types, wanted: int) -> None:
    """Raise InputError unless there are `wanted` inputs."""
    need(len(types) == wanted, f"needs {wanted} inputs, got {len(types)}")


def same_device(types: Types) -> int:
    """Return the device of all inputs."""
    devices = sorted({each.device for each in types})
    need(len(devices) == 1, f"needs inputs from one device, got devices {', '.join(map(str, devices))}")
    return devices[0]


def together(types: Types, wanted: int) -> Types:
    """Return the input types. Raises InputError unless there are `wanted` inputs, all on one device."""
    count(types, wanted)
    same_device(types)
    return types


def part_of(whole: TensorType, parts: int, values: Values) -> TensorType:
    """Return the type of one of `parts` equal parts along the axis in the attribute `axis`."""
    axis = axis_of(values, len(whole.shape))
    size = whole.shape[axis]
    need(size % parts == 0, f"axis {axis} of {whole} does not divide into {parts} equal parts")
    return whole.resized(axis, size // parts)


def same(types: Types) -> TensorType:
    """Return the type that all inputs share."""
    same_device(types)
    need(len(set(types)) == 1, f"needs inputs of one type, got {', '.join(map(str, dict.fromkeys(types)))}")
    return types[0]


def one(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: the output has the type of the only input."""
    count(types, 1)
    return (types[0],)


def alike(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: the output has the type of both inputs."""
    count(types, 2)
    return (same(types),)


def broadcast(types: Types) -> tuple[int, ...]:
    """Return the broadcast shape of the tensors, as NumPy defines it. They must be on one device."""
    same_device(types)
    try:
        return tuple(np.broadcast_shapes(*(each.shape for each in types)))
    except ValueError:
        why = f"needs sizes that are equal or 1 along each axis, got {', '.join(map(str, types))}"
        raise InputError("", why) from None


def joined(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: two tensors of one number format, broadcast as in NumPy."""
    count(types, 2)
    need(types[0].dtype == types[1].dtype, f"needs tensors of one dtype, got {types[0]} and {types[1]}")
    return (types[0].shaped(broadcast(types)),)


def passed_on(back: Reverse) -> list[int | None]:
    """Gradient rule: the gradient of the only input is the gradient of the output."""
    return [back.gradient]


def with_gradient(
    operator: Operator,
    given: Sequence[int],
    compute: Compute,
    work: WorkRule,
    made: Sequence[int] | None = None,
    of: str = "output",
) -> tuple[Operator, Operator]:
    """Return an operator and the operator of its gradient, which has the same attributes.

    The gradient has some first inputs of the operator, then the gradient of the operator's output. `given` lists the
    operator's inputs by their index there. A shift is left out: it has the index of the scale, which has the same type.
    `made` lists the inputs whose types the outputs have, by default `given`. If the operator has no gradient rule yet,
    its rule becomes this gradient. Error messages call the operator's output `of`.
    """
    kind, inputs = f"{operator.kind}_grad", 1 + max(given)

    def infer(types: Types, values: Values) -> tuple[TensorType, ...]:
        count(types, inputs + 1)
        (out,) = operator.infer([types[place] for place in given], values)
        need(types[inputs] == out, f"needs the gradient of the {of}, {out}, got {types[inputs]}")
        return tuple(types[place] for place in (given if made is None else made))

    def rule(back: Reverse) -> Sequence[int | None]:
        return back.add(kind, (*back.inputs[:inputs], back.gradient), **back.values)

    gradient = Operator(kind, infer, compute, work, operator.attributes, optional=operator.optional)
    return replace(operator, gradient=operator.gradient or rule), gradient


def summed_to(back: Reverse, gradient: int, place: int) -> int | None:
    """Return the gradient of an input that was broadcast, or None if it is not needed.

    It is `gradient` summed over the repeated axes.
    """
    if not back.wanted[place]:
        return None
    (made,) = back.made
    shape, whole = back.types[place].shape, made.shape
    lead = len(whole) - len(shape)
    padded = (1,) * lead + shape
    axes = tuple(axis for axis, (size, full) in enumerate(zip(padded, whole, strict=True)) if size != full)
    if axes:
        keep = int(axes != tuple(range(lead)))
        gradient = back.one_for(place, "reduce_sum", gradient, axes=axes, keep=keep)
        lead *= keep
    return back.one_for(place, "reshape", gradient, shape=shape) if lead else gradient


def kept(back: Reverse, gradient: int) -> int:
    """Return a reduction's gradient with axes of size 1 where the reduction dropped axes."""
    shape, axes = back.types[0].shape, axes_of(back.values, len(back.types[0].shape))
    if back.values["keep"] or not axes:
        return gradient
    whole = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return back.one("reshape", gradient, shape=free_batch(whole))


def spread(back: Reverse, gradient: int, axes: tuple[int, ...]) -> int:
    """Expand a gradient, of size 1 along `axes`, to the sizes of the forward pass's first input."""
    shape = back.types[0].shape
    if all(shape[axis] == 1 for axis in axes):
        return gradient
    return back.one("expand", gradient, shape=tuple(size if axis in axes else 1 for axis, size in enumerate(shape)))


def free_batch(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape for `reshape` with -1 for the first axis, so that it fits every batch size."""
    return (-1, *shape[1:]) if shape and 0 not in shape else shape


def padded_part(back: Reverse, gradient: int, whole: TensorType, axis: int, start: int, size: int) -> int:
    """Return the gradient of a tensor when only `size` numbers from index `start` along `axis` were used.

    It is `gradient`, padded with zeros.
    """
    before, after = ([0] * len(whole.shape) for _ in range(2))
    before[axis], after[axis] = start, whole.shape[axis] - start - size
    return back.one("pad", gradient, pads=(*before, *after), value=0.0)


def joined_parts(back: Reverse) -> list[int | None]:
    """Gradient rule: join the gradients of the parts along `axis`. Unused parts have no gradient."""
    axis = axis_of(back.values, len(back.types[0].shape))
    sizes = [each.shape[axis] for each in back.made]
    if None not in back.gradients:
        return [back.add("concat", back.each_gradient(), axis=axis)[0]]
    whole: int | None = None
    for place, gradient in enumerate(back.gradients):
        if gradient is not None:
            padded = padded_part(back, gradient, back.types[0], axis, sum(sizes[:place]), sizes[place])
            whole = padded if whole is None else back.one("add", whole, padded)
    return [whole]
