"""Operators that move numbers without arithmetic: reshape, transpose, slice, gather. Only gradients of `take` add."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.arrays import copied, in_format, namespace, parts_of, summed_rows, wide
from tessel_core.ir.operators.attributes import axes_of, axis_of, integer, integers, number
from tessel_core.ir.operators.operator import Array, Arrays, GradientRule, Operator, Reverse, Types, Values, Work, need
from tessel_core.ir.operators.rules import count, free_batch, joined_parts, summed_to, together
from tessel_core.ir.operators.work import copying, copying_part, no_work
from tessel_core.ir.types import TensorType


def reshaped(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `wanted` describes.

    A 0 copies the input's size along this axis, and a -1 stands for the size that makes the element counts equal.
    """
    need(wanted.count(-1) <= 1 and min(wanted, default=0) >= -1, f"shape must have at most one -1, got {wanted}")
    need(
        all(size or axis < len(shape) for axis, size in enumerate(wanted)),
        f"shape {wanted} has a 0 for an axis that the input lacks",
    )
    found = [size or shape[axis] for axis, size in enumerate(wanted)]
    elements, known = math.prod(shape), math.prod(size for size in found if size != -1)
    if -1 in found:
        need(known > 0 and elements % known == 0, f"shape {wanted} does not fit the {elements} numbers of {shape}")
        found[found.index(-1)] = elements // known
    need(math.prod(found) == elements, f"shape {wanted} does not fit the {elements} numbers of {shape}")
    return tuple(found)


def reshaping(shape: tuple[int, ...], made: tuple[int, ...]) -> tuple[int, ...]:
    """Return the attribute `shape` of a reshape from sizes `shape` to `made`, valid for every batch size.

    Leading sizes that do not change become 0. The first size that changes becomes -1.

    >>> reshaping((8, 5, 12), (8, 5, 3, 4)), reshaping((8, 5, 12), (40, 12))
    ((0, 0, -1, 4), (-1, 12))
    """
    same = 0
    while same < min(len(shape), len(made)) and shape[same] == made[same]:
        same += 1
    if same == len(made) or not math.prod(made):
        return (0,) * same if same == len(made) else made
    return (*(0,) * same, -1, *made[same + 1 :])


def _reshape(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return (types[0].shaped(reshaped(types[0].shape, integers(values, "shape"))),)


def _reshape_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [arrays[0].reshape(reshaped(arrays[0].shape, integers(values, "shape")))]


def _transpose(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = types[0].shape
    axes = axes_of(values, len(shape))
    need(len(axes) == len(shape), f"axes must name all {len(shape)} axes, got {values['axes']}")
    return (types[0].shaped(tuple(shape[axis] for axis in axes)),)


def _transpose_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [copied(each) for each in _permute_compute(arrays, values)]


def _permute_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [namespace(arrays[0]).permute_dims(arrays[0], integers(values, "axes"))]


def _expand(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = integers(values, "shape", 0)
    try:
        return (types[0].shaped(tuple(np.broadcast_shapes(types[0].shape, shape))),)
    except ValueError:
        raise InputError("", f"cannot broadcast {types[0]} and shape {shape}") from None


def _expand_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    shape = np.broadcast_shapes(tuple(arrays[0].shape), integers(values, "shape"))
    return [copied(namespace(arrays[0]).broadcast_to(arrays[0], shape))]


def _take(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, places = together(types, 2)
    need(places.dtype in ("int32", "int64"), f"needs indices as int32 or int64, got {places}")
    axis = axis_of(values, len(x.shape))
    return (x.shaped((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])),)


def check_places(places: Array, axis: int, size: int) -> None:
    """Raise InputError if an index is outside of an axis of length `size`."""
    outside = places[(places < -size) | (places >= size)]
    if len(outside):
        raise InputError("take", f"index {int(outside[0])} is not on axis {axis}, which has size {size}")


def _take_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, places = arrays
    axis = axis_of(values, x.ndim)
    check_places(places, axis, x.shape[axis])
    taken = namespace(x).take(x, places.reshape(-1), axis=axis)
    return [taken.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])]


def _take_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: reading indices and as many input bytes as the output has, and writing the output.

    If the input is smaller than the output, it is read only once.
    """
    return Work(0.0, float(types[1].bytes + outputs[0].bytes + min(types[0].bytes, outputs[0].bytes)))


def _strided(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape = list(types[0].shape)
    axes, counts = axes_of(values, len(shape)), integers(values, "counts", 0)
    starts, steps = integers(values, "starts", 0), integers(values, "steps")
    need(
        len(axes) == len(counts) == len(starts) == len(steps), "axes, counts, starts and steps must have equal lengths"
    )
    for axis, many, start, step in zip(axes, counts, starts, steps, strict=True):
        last = start + step * (many - 1)
        inside = not many or (start < shape[axis] and 0 <= last < shape[axis])
        need(inside, f"selects {many} numbers from {start} by {step} along axis {axis}, which has size {shape[axis]}")
        shape[axis] = many
    return (types[0].shaped(tuple(shape)),)


def _places(start: int, step: int, many: int, x: Array) -> Array:
    """Return `many` indices from `start` by `step`, as an array on the tensor's device."""
    return start + step * namespace(x).arange(many, device=x.device)


def _strided_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,) = arrays
    each = (integers(values, name) for name in ("axes", "counts", "starts", "steps"))
    for axis, many, start, step in zip(*each, strict=True):
        x = namespace(x).take(x, _places(start, step, many, x), axis=axis)
    return [x]


def _split_at(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape, sizes = types[0].shape, integers(values, "sizes", 0)
    axis = axis_of(values, len(shape))
    need(sum(sizes) == shape[axis], f"sizes {sizes} must add up to {shape[axis]}, the size of axis {axis}")
    return tuple(types[0].resized(axis, size) for size in sizes)


def _split_at_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    parts = parts_of(arrays[0], integers(values, "sizes"), axis_of(values, arrays[0].ndim))
    return [copied(each) for each in parts]


def _pad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    shape, pads = types[0].shape, integers(values, "pads", 0)
    number(values, "value")
    need(len(pads) == 2 * len(shape), f"pads must have two entries for each of {len(shape)} axes, got {len(pads)}")
    sizes = zip(shape, pads, pads[len(shape) :], strict=False)
    return (types[0].shaped(tuple(before + size + after for size, before, after in sizes)),)


def _pad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,), pads = arrays, integers(values, "pads")
    return [padded(x, pads[: x.ndim], pads[x.ndim :], values["value"])]


def padded(x: Array, before: Sequence[int], after: Sequence[int], value: Any) -> Array:
    """Return the tensor with `before` and `after` copies of `value` added at the two ends of each axis."""
    sizes = [first + size + last for size, first, last in zip(x.shape, before, after, strict=True)]
    made = namespace(x).full(sizes, value, dtype=x.dtype, device=x.device)
    made[tuple(slice(start, start + size) for start, size in zip(before, x.shape, strict=True))] = x
    return made


def _roll(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    axes, shifts = axes_of(values, len(types[0].shape)), integers(values, "shifts")
    need(len(axes) == len(shifts), f"axes and shifts must have equal lengths, got {axes} and {shifts}")
    return (types[0],)


def _roll_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (x,), axes = arrays, integers(values, "axes")
    return [namespace(x).roll(x, integers(values, "shifts"), axis=axes) if axes else copied(x)]


def _take_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    places, dz = together(types, 2)
    need(places.dtype in ("int32", "int64"), f"needs indices as int32 or int64, got {places}")
    axis, size, rank = integer(values, "axis"), integer(values, "size"), len(places.shape)
    fits = dz.shape[axis : axis + rank] == places.shape
    need(fits, f"needs the gradient of numbers taken at {places} along axis {axis}, got {dz}")
    return (dz.shaped((*dz.shape[:axis], size, *dz.shape[axis + rank :])),)


def _take_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    places, dz = arrays
    axis, size = integer(values, "axis"), integer(values, "size")
    check_places(places, axis, size)
    rows = dz.reshape(*dz.shape[:axis], math.prod(places.shape), *dz.shape[axis + places.ndim :])
    return [in_format(_put_back(wide(rows), axis, places.reshape(-1) % size, size), dz)]


def _put_back(taken: Array, axis: int, places: Array, size: int) -> Array:
    """Add each entry of `taken` along `axis` at its index in `places`. Return the result, of length `size` there."""
    move = namespace(taken).moveaxis
    return move(summed_rows(move(taken, axis, 0), places, size), 0, axis)


def _take_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work: writing zeros to the whole gradient, then reading and writing the rows that the indices name."""
    places, dz = types
    return Work(float(dz.elements), float(places.bytes + 3 * dz.bytes + outputs[0].bytes))


def _strided_slice_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    axes, sizes = axes_of(values, len(types[0].shape)), integers(values, "sizes", 0)
    need(len(axes) == len(sizes), f"axes and sizes must have equal lengths, got {axes} and {sizes}")
    whole = types[0]
    for axis, size in zip(axes, sizes, strict=True):
        whole = whole.resized(axis, size)
    need(_strided([whole], values) == tuple(types), f"needs the gradient of a slice of {whole}, got {types[0]}")
    return (whole,)


def _strided_slice_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    (dz,) = arrays
    each = (integers(values, name) for name in ("axes", "counts", "starts", "steps", "sizes"))
    for axis, many, start, step, size in zip(*each, strict=True):
        dz = _put_back(dz, axis, _places(start, step, many, dz), size)
    return [dz]


def _transposed_back(kind: str) -> GradientRule:
    def rule(back: Reverse) -> list[int | None]:
        axes = axes_of(back.values, len(back.types[0].shape))
        return [back.one(kind, back.gradient, axes=tuple(axes.index(axis) for axis in range(len(axes))))]

    return rule


def _take_gradients(back: Reverse) -> list[int | None]:
    shape = back.types[0].shape
    axis = axis_of(back.values, len(shape))
    return [back.one_for(0, "take_grad", back.inputs[1], back.gradient, axis=axis, size=shape[axis]), None]


def _strided_gradient(back: Reverse) -> list[int | None]:
    shape = back.types[0].shape
    sizes = tuple(shape[axis] for axis in axes_of(back.values, len(shape)))
    return [back.one("strided_slice_grad", back.gradient, **back.values, sizes=sizes)]


def _pad_gradient(back: Reverse) -> list[int | None]:
    """Return the gradient without the padding."""
    shape, pads = back.types[0].shape, integers(back.values, "pads")
    axes = tuple(axis for axis, size in enumerate(shape) if back.made[0].shape[axis] != size)
    sizes, starts = tuple(shape[axis] for axis in axes), tuple(pads[axis] for axis in axes)
    steps = (1,) * len(axes)
    return [back.one("strided_slice", back.gradient, axes=axes, counts=sizes, starts=starts, steps=steps)]


_STRIDED = ("axes", "counts", "starts", "steps")

SHAPING = (
    Operator(
        "reshape",
        _reshape,
        _reshape_compute,
        no_work,
        ("shape",),
        view=True,
        gradient=lambda back: [back.one("reshape", back.gradient, shape=free_batch(back.types[0].shape))],
    ),
    Operator("transpose", _transpose, _transpose_compute, copying, ("axes",), gradient=_transposed_back("transpose")),
    Operator(
        "permute", _transpose, _permute_compute, no_work, ("axes",), view=True, gradient=_transposed_back("permute")
    ),
    Operator(
        "expand",
        _expand,
        _expand_compute,
        copying,
        ("shape",),
        gradient=lambda back: [summed_to(back, back.gradient, 0)],
    ),
    Operator("take", _take, _take_compute, _take_work, ("axis",), gradient=_take_gradients),
    Operator("take_grad", _take_grad, _take_grad_compute, _take_grad_work, ("axis", "size")),
    Operator("strided_slice", _strided, _strided_compute, copying_part, _STRIDED, gradient=_strided_gradient),
    Operator("strided_slice_grad", _strided_slice_grad, _strided_slice_grad_compute, copying, (*_STRIDED, "sizes")),
    Operator("split_at", _split_at, _split_at_compute, copying, ("axis", "sizes"), gradient=joined_parts),
    Operator("pad", _pad, _pad_compute, copying, ("pads", "value"), gradient=_pad_gradient),
    Operator(
        "roll",
        _roll,
        _roll_compute,
        copying,
        ("axes", "shifts"),
        gradient=lambda back: [
            back.one(
                "roll",
                back.gradient,
                axes=back.values["axes"],
                shifts=tuple(-each for each in integers(back.values, "shifts")),
            )
        ],
    ),
)
"""Operators that their names do not explain fully:

- `transpose` copies into another order of axes, and `permute` returns a view.
- `take` copies the entries along an axis whose indices are the second input.
- `strided_slice` copies `counts` numbers per axis, from index `starts`, with step `steps`. For its gradient, `sizes`
  are the input's sizes along `axes`.
- `pads` lists the padding before each axis, then the padding after each axis.
- `roll` shifts numbers along axes. Numbers that leave at one end enter at the other.
"""
