"""Operators in which devices talk to each other, for any number of devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.operator import (
    Array,
    Arrays,
    Operator,
    Types,
    Values,
    axis_of,
    count,
    device_list,
    integer,
    need,
    no_work,
)
from tessel_core.ir.types import TensorType


def _send(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    to = integer(values, "to")
    need(to != types[0].device, f"goes to device {to}, where the tensor is already")
    return (types[0].on(to),)


def _from_each(types: Types) -> None:
    """One input from each of several devices, alike but for the device."""
    devices = [each.device for each in types]
    need(len(types) >= 1, "takes at least one input")
    need(len(set(devices)) == len(devices), f"takes one input from each device, got those of {devices}")
    need(len({each.on(0) for each in types}) == 1, f"takes inputs of one type, got {', '.join(map(str, types))}")


def _allreduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    return tuple(types)


def _sum(arrays: Arrays) -> Array:
    """In the inputs' order, in their own format."""
    total = arrays[0]
    for each in arrays[1:]:
        total = total + each
    return total


def _along(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _allgather(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    axis = axis_of(values, len(types[0].shape))
    shape = _along(types[0].shape, axis, types[0].shape[axis] * len(types))
    return tuple(each.shaped(shape) for each in types)


def _reduce_scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    axis = axis_of(values, len(types[0].shape))
    size = types[0].shape[axis]
    need(size % len(types) == 0, f"axis {axis} of {types[0]} does not divide into {len(types)} equal parts")
    return tuple(each.shaped(_along(each.shape, axis, size // len(types))) for each in types)


def _broadcast(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return tuple(types[0].on(device) for device in device_list(values))


def _scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    devices, axis = device_list(values), axis_of(values, len(types[0].shape))
    size = types[0].shape[axis]
    need(size % len(devices) == 0, f"axis {axis} of {types[0]} does not divide into {len(devices)} equal parts")
    part = types[0].shaped(_along(types[0].shape, axis, size // len(devices)))
    return tuple(part.on(device) for device in devices)


def _gather(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    axis = axis_of(values, len(types[0].shape))
    shape = _along(types[0].shape, axis, types[0].shape[axis] * len(types))
    return (types[0].shaped(shape).on(integer(values, "to")),)


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    return (types[0].on(integer(values, "to")),)


def _split(array: Array, parts: int, values: Values) -> Sequence[Array]:
    return np.split(array, parts, axis=axis_of(values, array.ndim))


def _joined(arrays: Arrays, values: Values) -> Array:
    return np.concatenate(arrays, axis=axis_of(values, arrays[0].ndim))


COMMUNICATION = (
    Operator("send", _send, lambda arrays, values: [arrays[0].copy()], no_work, "send", attributes=("to",)),
    Operator("allreduce", _allreduce, lambda a, values: [_sum(a).copy() for _ in a], no_work, "allreduce"),
    Operator(
        "allgather",
        _allgather,
        lambda arrays, values: [_joined(arrays, values) for _ in arrays],
        no_work,
        "allgather",
        attributes=("axis",),
    ),
    Operator(
        "allgather_in_place",
        _allgather,
        lambda arrays, values: [_joined(arrays, values) for _ in arrays],
        no_work,
        "allgather",
        in_place=True,
        attributes=("axis",),
    ),
    Operator(
        "reduce_scatter",
        _reduce_scatter,
        lambda arrays, values: _split(_sum(arrays), len(arrays), values),
        no_work,
        "reduce_scatter",
        attributes=("axis",),
    ),
    Operator(
        "broadcast",
        _broadcast,
        lambda arrays, values: [arrays[0].copy() for _ in device_list(values)],
        no_work,
        "broadcast",
        attributes=("devices",),
    ),
    Operator(
        "scatter",
        _scatter,
        lambda arrays, values: _split(arrays[0], len(device_list(values)), values),
        no_work,
        "scatter",
        attributes=("axis", "devices"),
    ),
    Operator("gather", _gather, lambda a, values: [_joined(a, values)], no_work, "gather", attributes=("axis", "to")),
    Operator("reduce", _reduce, lambda arrays, values: [_sum(arrays)], no_work, "reduce", attributes=("to",)),
)
"""Reductions are sums; parts along an axis are equal, in the devices' order.  `allgather_in_place` takes slices
of tensors as large as the whole, into which it gathers the others."""
