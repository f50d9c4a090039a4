"""Operators in which devices communicate, for any number of devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators.attributes import axis_of, device_list, integer
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, need
from tessel_core.ir.operators.rules import count, no_work, part_of
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
    """The sum in the inputs' order, in their own format."""
    total = arrays[0]
    for each in arrays[1:]:
        total = total + each
    return total


def _allgather(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    axis = axis_of(values, len(types[0].shape))
    return tuple(each.resized(axis, each.shape[axis] * len(types)) for each in types)


def _gather(types: Types, values: Values) -> tuple[TensorType, ...]:
    return (_allgather(types, values)[0].on(integer(values, "to")),)


def _reduce_scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    part = part_of(types[0], len(types), values)
    return tuple(part.on(each.device) for each in types)


def _scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    devices = device_list(values)
    part = part_of(types[0], len(devices), values)
    return tuple(part.on(device) for device in devices)


def _broadcast(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return tuple(types[0].on(device) for device in device_list(values))


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types)
    return (types[0].on(integer(values, "to")),)


def _joined(arrays: Arrays, values: Values) -> Array:
    return np.concatenate(arrays, axis=axis_of(values, arrays[0].ndim))


def _split(array: Array, parts: int, values: Values) -> Sequence[Array]:
    return np.split(array, parts, axis=axis_of(values, array.ndim))


def _gather_everywhere(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [_joined(arrays, values) for _ in arrays]


def _sum_parts(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _split(_sum(arrays), len(arrays), values)


def _copy_to_each(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [arrays[0].copy() for _ in device_list(values)]


def _part_to_each(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _split(arrays[0], len(device_list(values)), values)


COMMUNICATION = (
    Operator("send", _send, lambda arrays, values: [arrays[0].copy()], no_work, ("to",), "send"),
    Operator("allreduce", _allreduce, lambda a, values: [_sum(a).copy() for _ in a], no_work, (), "allreduce"),
    Operator("allgather", _allgather, _gather_everywhere, no_work, ("axis",), "allgather"),
    Operator("allgather_in_place", _allgather, _gather_everywhere, no_work, ("axis",), "allgather", in_place=True),
    Operator("reduce_scatter", _reduce_scatter, _sum_parts, no_work, ("axis",), "reduce_scatter"),
    Operator("broadcast", _broadcast, _copy_to_each, no_work, ("devices",), "broadcast"),
    Operator("scatter", _scatter, _part_to_each, no_work, ("axis", "devices"), "scatter"),
    Operator("gather", _gather, lambda arrays, values: [_joined(arrays, values)], no_work, ("axis", "to"), "gather"),
    Operator("reduce", _reduce, lambda arrays, values: [_sum(arrays)], no_work, ("to",), "reduce"),
)
"""Reductions are sums; parts along an axis are equal, in the devices' order.  `allgather_in_place` takes slices
of tensors as large as the whole, into which it gathers the others."""
