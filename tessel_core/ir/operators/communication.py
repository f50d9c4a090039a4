"""Operators that communicate between any number of devices."""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.ir.operators.arrays import equal_parts, namespace
from tessel_core.ir.operators.attributes import axis_of, device_list, integer
from tessel_core.ir.operators.operator import Array, Arrays, Compute, Operator, Types, Values, need
from tessel_core.ir.operators.rules import count, part_of
from tessel_core.ir.operators.work import no_work
from tessel_core.ir.types import TensorType


def _send(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    to = integer(values, "to")
    need(to != types[0].device, f"must send to another device than {to}, which has the tensor")
    return (types[0].on(to),)


def tensors_of(values: Values) -> int:
    """Return the number of tensors per device in one operation: the attribute `tensors`, or 1."""
    return integer(values, "tensors", least=1) if "tensors" in values else 1


def more_devices(values: Values) -> int:
    """Return the attribute `degree`, or 1.

    This is the number of participating devices for each device that the operation names.
    """
    return integer(values, "degree", least=1) if "degree" in values else 1


def axes_of_tensors(values: Values, ranks: Sequence[int]) -> list[int]:
    """Return the axis of each of a device's tensors, as indices of at least 0.

    The attribute `axis` is one number for all tensors, or a list with one number per tensor.
    """
    axis = values["axis"]
    each = axis if isinstance(axis, tuple) else (axis,) * len(ranks)
    need(len(each) == len(ranks), f"axis must have {len(ranks)} entries, one per tensor of a device, got {len(each)}")
    return [axis_of({"axis": one}, rank) for one, rank in zip(each, ranks, strict=True)]


def _from_each(types: Types, values: Values) -> list[Types]:
    """Return the types of the tensors of each device.

    Inputs must be ordered by device, and all devices must have the same types.
    """
    count, wanted = tensors_of(values), "one input" if tensors_of(values) == 1 else f"{tensors_of(values)} inputs"
    found = [types[i : i + count] for i in range(0, len(types), count)]
    devices = [each.device for each in types]
    need(len(types) >= 1, "needs at least one input")
    apart = all({each.device for each in tensors} == {tensors[0].device} for tensors in found)
    single = len(types) % count == 0 and len(set(devices)) == len(found)
    need(apart and single, f"needs {wanted} from each device, got inputs from devices {devices}")
    alike = len({tuple(each.on(0) for each in tensors) for tensors in found}) == 1
    need(alike, f"needs inputs of one type, got {', '.join(map(str, types))}")
    return found


def _allreduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types, values)
    return tuple(types)


def added_up(arrays: Arrays) -> Array:
    """Return the sum of the arrays. They are added in order, in their own number format."""
    total = arrays[0]
    for each in arrays[1:]:
        total = total + each
    return total


def _allgather(types: Types, values: Values) -> tuple[TensorType, ...]:
    found = _from_each(types, values)
    axes = axes_of_tensors(values, [len(each.shape) for each in found[0]]) * len(found)
    devices = len(found) * more_devices(values)
    return tuple(each.resized(axis, each.shape[axis] * devices) for each, axis in zip(types, axes, strict=True))


def _gather(types: Types, values: Values) -> tuple[TensorType, ...]:
    return (_allgather(types, values)[0].on(integer(values, "to")),)


def _reduce_scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    found = _from_each(types, values)
    axes = axes_of_tensors(values, [len(each.shape) for each in found[0]]) * len(found)
    devices = len(found) * more_devices(values)
    return tuple(part_of(each, devices, {"axis": axis}) for each, axis in zip(types, axes, strict=True))


def _alltoall(types: Types, values: Values) -> tuple[TensorType, ...]:
    devices = len(_from_each(types, {})) * more_devices(values)
    axis = axis_of({"axis": values["joined"]}, len(types[0].shape))
    parts = [part_of(each, devices, values) for each in types]
    return tuple(each.resized(axis, each.shape[axis] * devices) for each in parts)


def _scatter(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    devices = device_list(values)
    part = part_of(types[0], len(devices), values)
    return tuple(part.on(device) for device in devices)


def _broadcast(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 1)
    return tuple(types[0].on(device) for device in device_list(values))


def _reduce(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types, values)
    return (types[0].on(integer(values, "to")),)


def joined(arrays: Arrays, values: Values) -> Array:
    """Concatenate the arrays along the attribute `axis`."""
    return namespace(arrays[0]).concat(list(arrays), axis=axis_of(values, arrays[0].ndim))


def parts_along(array: Array, parts: int, values: Values) -> Sequence[Array]:
    """Return views of `parts` equal parts along the attribute `axis`."""
    return equal_parts(array, parts, axis_of(values, array.ndim))


def _tensor_by_tensor(arrays: Arrays, values: Values, meaning: Compute) -> list[Array]:
    """Return `meaning` of the first tensors of all devices, of the second tensors, and so on, ordered by device."""
    check_complete(values)
    count = tensors_of(values)
    axes: Sequence[int | None] = [None] * count
    if "axis" in values:
        axes = axes_of_tensors(values, [each.ndim for each in arrays[:count]])
    made = [meaning(arrays[i::count], {"axis": axis} if axis is not None else {}) for i, axis in enumerate(axes)]
    return [each[device] for device in range(len(arrays) // count) for each in made]


def check_complete(values: Values) -> None:
    """Raise InputError if the operation stands for several devices but names only one."""
    need(more_devices(values) == 1, f"names only one of {more_devices(values)} devices, so it cannot run alone")


def _shift(types: Types, values: Values) -> tuple[TensorType, ...]:
    _from_each(types, values)
    return tuple(types)


def _to_next(arrays: Arrays, values: Values) -> Sequence[Array]:
    check_complete(values)
    count = tensors_of(values)
    return [each.copy() for each in (*arrays[-count:], *arrays[:-count])]


def _add_up(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _tensor_by_tensor(arrays, values, lambda tensors, _: [added_up(tensors).copy() for _ in tensors])


def _gather_everywhere(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _tensor_by_tensor(arrays, values, lambda tensors, along: [joined(tensors, along) for _ in tensors])


def _sum_parts(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _tensor_by_tensor(arrays, values, lambda tensors, along: parts_along(added_up(tensors), len(tensors), along))


def _exchange(arrays: Arrays, values: Values) -> Sequence[Array]:
    check_complete(values)
    parts = [parts_along(each, len(arrays), values) for each in arrays]
    along = {"axis": values["joined"]}
    return [joined([sent[device] for sent in parts], along) for device in range(len(arrays))]


def _copy_to_each(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [arrays[0].copy() for _ in device_list(values)]


def _part_to_each(arrays: Arrays, values: Values) -> Sequence[Array]:
    return parts_along(arrays[0], len(device_list(values)), values)


OVER = ("degree", "over")
_TENSORS = ("tensors", *OVER)

COMMUNICATION = (
    Operator("send", _send, lambda arrays, values: [arrays[0].copy()], no_work, ("to",), "send"),
    Operator("allreduce", _allreduce, _add_up, no_work, (), "allreduce", optional=_TENSORS),
    Operator("allgather", _allgather, _gather_everywhere, no_work, ("axis",), "allgather", optional=_TENSORS),
    Operator(
        *("allgather_in_place", _allgather, _gather_everywhere, no_work, ("axis",), "allgather"),
        in_place=True,
        optional=_TENSORS,
    ),
    Operator("reduce_scatter", _reduce_scatter, _sum_parts, no_work, ("axis",), "reduce_scatter", optional=_TENSORS),
    Operator("alltoall", _alltoall, _exchange, no_work, ("axis", "joined"), "alltoall", optional=OVER),
    Operator("shift", _shift, _to_next, no_work, (), "shift", optional=_TENSORS),
    Operator("broadcast", _broadcast, _copy_to_each, no_work, ("devices",), "broadcast"),
    Operator("scatter", _scatter, _part_to_each, no_work, ("axis", "devices"), "scatter"),
    Operator("gather", _gather, lambda arrays, values: [joined(arrays, values)], no_work, ("axis", "to"), "gather"),
    Operator("reduce", _reduce, lambda arrays, values: [added_up(arrays)], no_work, ("to",), "reduce"),
)
"""Reductions are sums. Parts along an axis are equal, in the order of the devices.

- `allgather_in_place` takes slices that own memory for the whole tensor, and gathers the other slices into it.
- After an `alltoall`, device j has the j-th part along `axis` of each tensor, joined along `joined`.
- After a `shift`, each device has the tensors of the device before it, and the first has those of the last.
- With the attribute `tensors`, `allreduce`, `reduce_scatter`, `shift` and the all-gathers handle several tensors per
  device together, such as a bucket of gradients.

Some programs are written for one device of several that do the same. There, `over` names the dimension of parallelism
along which devices take part, and `degree` is the number of devices for each one that is named.
"""
