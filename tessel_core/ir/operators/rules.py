"""Rules that operators share: for the shapes that they take and make, and for their work."""

from __future__ import annotations

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.attributes import axis_of
from tessel_core.ir.operators.operator import Reverse, Types, Values, Work, WorkRule, need
from tessel_core.ir.types import TensorType


def count(types: Types, wanted: int) -> None:
    """Raise InputError for another number of inputs."""
    need(len(types) == wanted, f"takes {wanted} inputs, got {len(types)}")


def same_device(types: Types) -> int:
    """The one device of all inputs."""
    devices = sorted({each.device for each in types})
    need(len(devices) == 1, f"takes inputs from one device, got those of {', '.join(map(str, devices))}")
    return devices[0]


def together(types: Types, wanted: int) -> Types:
    """The inputs, so many and all on one device."""
    count(types, wanted)
    same_device(types)
    return types


def part_of(whole: TensorType, parts: int, values: Values) -> TensorType:
    """One of equal parts along the attribute `axis`."""
    axis = axis_of(values, len(whole.shape))
    size = whole.shape[axis]
    need(size % parts == 0, f"axis {axis} of {whole} does not divide into {parts} equal parts")
    return whole.resized(axis, size // parts)


def same(types: Types) -> TensorType:
    """The one type of all inputs."""
    same_device(types)
    need(len(set(types)) == 1, f"takes inputs of one type, got {', '.join(map(str, dict.fromkeys(types)))}")
    return types[0]


def one(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: an output like the only input."""
    count(types, 1)
    return (types[0],)


def alike(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: an output like both inputs."""
    count(types, 2)
    return (same(types),)


def broadcast(types: Types) -> tuple[int, ...]:
    """The shape that several tensors of one device have together, as NumPy broadcasts them."""
    same_device(types)
    try:
        return tuple(np.broadcast_shapes(*(each.shape for each in types)))
    except ValueError:
        why = f"takes sizes that are equal or 1 along each axis, got {', '.join(map(str, types))}"
        raise InputError("", why) from None


def joined(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: two tensors of one format, broadcast."""
    count(types, 2)
    need(types[0].dtype == types[1].dtype, f"takes tensors of one dtype, got {types[0]} and {types[1]}")
    return (types[0].shaped(broadcast(types)),)


def passed_on(back: Reverse) -> list[int | None]:
    """Gradient rule: the gradient of the only input is that of the output."""
    return [back.gradient]


def summed_to(back: Reverse, gradient: int, place: int) -> int | None:
    """The gradient of an input that was broadcast, from that of its broadcast form: summed over what was repeated."""
    if not back.wanted[place]:
        return None
    (made,) = back.made
    shape, whole = back.types[place].shape, made.shape
    padded = (1,) * (len(whole) - len(shape)) + shape
    axes = tuple(axis for axis, (size, full) in enumerate(zip(padded, whole, strict=True)) if size != full)
    if axes:
        gradient = back.one("reduce_sum", gradient, axes=axes, keep=1)
    return gradient if shape == whole else back.one("reshape", gradient, shape=shape)


def moved(types: Types, outputs: Types) -> float:
    """Every input and output, once."""
    return float(sum(each.bytes for each in (*types, *outputs)))


def elementwise_work(flops: float = 1.0) -> WorkRule:
    """So many FLOPs per element of the first output; every tensor moved once."""
    return lambda types, outputs, values: Work(flops * outputs[0].elements, moved(types, outputs))


def read_work(flops: float) -> WorkRule:
    """So many FLOPs per element of the first input; every tensor moved once."""
    return lambda types, outputs, values: Work(flops * types[0].elements, moved(types, outputs))


def no_work(types: Types, outputs: Types, values: Values) -> Work:
    """Nothing on the device itself."""
    return Work()


def copying_part(types: Types, outputs: Types, values: Values) -> Work:
    """No arithmetic; no more is read than is written."""
    return Work(0.0, moved(outputs, outputs))


def copying(types: Types, outputs: Types, values: Values) -> Work:
    """No arithmetic, every tensor moved once."""
    return Work(0.0, moved(types, outputs))
