"""An operator: one entry that says its shapes, its work, its meaning and its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.types import TensorType

Types = Sequence[TensorType]
Values = Mapping[str, AttributeValue]
Array = NDArray[Any]
Arrays = Sequence[Array]

NUMPY_TYPES = {
    "fp64": np.float64,
    "fp32": np.float32,
    "tf32": np.float32,
    "bf16": np.float32,
    "fp16": np.float16,
    "int64": np.int64,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "uint64": np.uint64,
    "uint32": np.uint32,
    "uint16": np.uint16,
    "uint8": np.uint8,
    "bool": np.bool_,
}
"""How each format is computed; NumPy has no bf16, so it is computed in fp32."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of an operator on each of its devices."""

    flops: float = 0.0
    bytes: float = 0.0
    """Moved between the device's memory and its processors."""


ShapeRule = Callable[[Types, Values], tuple[TensorType, ...]]
"""Output types from input types; InputError, without a place, for types that do not go together."""
Compute = Callable[[Arrays, Values], Sequence[Array]]
"""The meaning, in NumPy; devices do not matter to it."""
WorkRule = Callable[[Types, Types, Values], Work]
"""The work from input and output types."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One entry of the table; functions take the types (or arrays) of any number of inputs, and the attributes."""

    kind: str
    infer: ShapeRule
    compute: Compute
    work: WorkRule
    attributes: tuple[str, ...] = ()
    """Names of those that it needs."""
    pattern: str = ""
    """How devices talk to each other in it: send, allreduce, … ; empty for what runs on one device."""
    in_place: bool = False
    """Whether output i is input i changed in place, and takes no memory of its own."""
    view: bool = False
    """Whether outputs are other looks at the memory of the first input."""
    stated: bool = False
    """Whether its attribute `seconds` says how long it takes, whatever the devices."""
    occupies: bool = True
    """Whether its devices are busy for as long as it takes."""


def need(condition: bool, why: str) -> None:
    """Raise InputError with the reason unless the condition holds; the verifier adds the place."""
    if not condition:
        raise InputError("", why)


def count(types: Types, wanted: int) -> None:
    """Raise InputError for another number of inputs."""
    need(len(types) == wanted, f"takes {wanted} inputs, got {len(types)}")


def same_device(types: Types) -> int:
    """The one device of all inputs."""
    devices = sorted({each.device for each in types})
    need(len(devices) == 1, f"takes inputs from one device, got those of {', '.join(map(str, devices))}")
    return devices[0]


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
        raise InputError(
            "", f"takes sizes that are equal or 1 along each axis, got {', '.join(map(str, types))}"
        ) from None


def joined(types: Types, values: Values) -> tuple[TensorType, ...]:
    """Shape rule: two tensors of one format, broadcast."""
    count(types, 2)
    need(types[0].dtype == types[1].dtype, f"takes tensors of one dtype, got {types[0]} and {types[1]}")
    return (types[0].shaped(broadcast(types)),)


def wide(array: Array) -> Array:
    """The array in at least fp32, in which narrow formats are summed."""
    return array.astype(np.result_type(array.dtype, np.float32))


def rounded(function: Callable[..., Array | tuple[Array, ...]]) -> Compute:
    """A meaning that is computed in at least fp32 and rounded once, to the format of the first input.

    `function` takes each array, widened, and the attributes; several results are a tuple.
    """

    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        found = function(*map(wide, arrays), values)
        return [np.asarray(each).astype(arrays[0].dtype) for each in (found if isinstance(found, tuple) else (found,))]

    return compute


def axis_of(values: Values, rank: int) -> int:
    """The attribute `axis`, counted from the front."""
    axis = values["axis"]
    need(isinstance(axis, int) and -rank <= axis < rank, f"has no axis {axis}, the rank is {rank}")
    assert isinstance(axis, int)
    return axis % rank


def integer(values: Values, name: str, least: int = 0) -> int:
    """An attribute that is a whole number."""
    value = values[name]
    need(isinstance(value, int) and value >= least, f"{name} must be a whole number of at least {least}, got {value}")
    assert isinstance(value, int)
    return value


def number(values: Values, name: str) -> float:
    """An attribute that is a number."""
    value = values[name]
    need(isinstance(value, int | float) and bool(np.isfinite(value)), f"{name} must be a finite number, got {value}")
    assert isinstance(value, int | float)
    return float(value)


def integers(values: Values, name: str, least: int | None = None) -> tuple[int, ...]:
    """An attribute that is a list of whole numbers."""
    value = values[name]
    need(isinstance(value, tuple), f"{name} must be a list like (1 2), got {value!r}")
    assert isinstance(value, tuple)
    need(least is None or all(each >= least for each in value), f"{name} must be at least {least}, got {value}")
    return value


def axes_of(values: Values, rank: int, name: str = "axes") -> tuple[int, ...]:
    """An attribute that lists distinct axes, counted from the front."""
    axes = integers(values, name)
    need(all(-rank <= axis < rank for axis in axes), f"{name} {axes} are not all axes of rank {rank}")
    found = tuple(axis % rank for axis in axes)
    need(len(set(found)) == len(found), f"{name} must name each axis once, got {axes}")
    return found


def device_list(values: Values, name: str = "devices") -> tuple[int, ...]:
    """An attribute that lists distinct devices."""
    value = values[name]
    need(isinstance(value, tuple) and len(set(value)) == len(value) > 0, f"{name} must list distinct devices")
    assert isinstance(value, tuple)
    return value


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


def copying(types: Types, outputs: Types, values: Values) -> Work:
    """No arithmetic, every tensor moved once."""
    return Work(0.0, moved(types, outputs))
