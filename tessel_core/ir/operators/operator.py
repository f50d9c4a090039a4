"""An operator: one entry that says its shapes, its work, its meaning and its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.types import TensorType
from tessel_core.torch_extra import TORCH_NAMES

Types = Sequence[TensorType]
Values = Mapping[str, AttributeValue]
Array: TypeAlias = Any
"""An array of NumPy, or a tensor of PyTorch."""
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
"""The meaning, of arrays of NumPy or tensors of PyTorch; devices do not matter to it."""
WorkRule = Callable[[Types, Types, Values], Work]
"""The work from input and output types."""


class WriteOperation(Protocol):
    """Writes an operation; its outputs."""

    def __call__(self, kind: str, inputs: Sequence[int], **attributes: AttributeValue) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Reverse:
    """One operation of the forward pass, for the rule that writes its gradients."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: Types
    """Of its inputs."""
    made: Types
    """Of its outputs."""
    values: Values
    """Its attributes."""
    gradients: tuple[int | None, ...]
    """Per output, its gradient; None where the loss does not depend on it, and for a loss itself."""
    wanted: tuple[bool, ...]
    """Per input, whether anybody asks for its gradient."""
    split: bool
    """Whether gradients of weights are written apart from those of activations."""
    weights: tuple[bool, ...]
    """Per input, whether it is a weight."""
    add: WriteOperation
    """For gradients of activations, or of both."""
    add_for_weight: WriteOperation
    """For gradients of weights alone."""

    @property
    def gradient(self) -> int:
        """Of the only output that has one."""
        (found,) = (each for each in self.gradients if each is not None)
        return found

    def each_gradient(self) -> tuple[int, ...]:
        """Of every output."""
        assert None not in self.gradients, "outputs of one operation are trained together"
        return tuple(each for each in self.gradients if each is not None)

    def one(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Write an operation of one output."""
        return self.add(kind, inputs, **attributes)[0]

    def one_for(self, place: int, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Write an operation of one output that only the gradient of input `place` needs: apart for a weight."""
        write = self.add_for_weight if self.weights[place] else self.add
        return write(kind, inputs, **attributes)[0]


StatisticsRule = Callable[[Types, Values], float]
"""From input types and attributes."""
GradientRule = Callable[[Reverse], Sequence[int | None]]
"""Writes the gradients of an operation's inputs; None for those that nobody wants or that have none."""


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
    """How devices communicate in it: send, allreduce, … ; empty for what runs on one device."""
    in_place: bool = False
    """Whether output i is input i changed in place, and takes no memory of its own."""
    view: bool = False
    """Whether outputs are views of the first input."""
    stated: bool = False
    """Whether its attribute `seconds` says how long it takes, whatever the devices."""
    optional: tuple[str, ...] = ()
    """Names of attributes that it may have besides."""
    occupies: bool = True
    """Whether its devices are busy for as long as it takes."""
    gradient: GradientRule | None = None
    """The gradients of its inputs; None where it cannot be trained through."""
    statistics: StatisticsRule | None = None
    """Bytes that frameworks keep for its gradient beside its inputs and outputs; programs compute them again."""
    workspace: StatisticsRule | None = None
    """Bytes that it holds while it runs, beside its inputs and outputs."""
    loss: bool = False
    """Whether its output is the loss, per sample: its gradient rule takes the loss's own gradient as 1."""


def need(condition: bool, why: str) -> None:
    """Raise InputError with the reason unless the condition holds; the verifier adds the place."""
    if not condition:
        raise InputError("", why)


def _in_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray | np.generic)


def namespace(array: Array) -> Any:
    """The library of an array, with the functions of the Array API standard."""
    if _in_numpy(array):
        return np
    from array_api_compat import array_namespace  # comes with the extra `torch`

    return array_namespace(array)


def in_format(array: Array, like: Array) -> Array:
    """The array in the number format of another one."""
    return np.asarray(array).astype(like.dtype) if _in_numpy(like) else array.to(like.dtype)


def in_dtype(array: Array, dtype: str) -> Array:
    """The array in the number format of that name."""
    if _in_numpy(array):
        return np.asarray(array).astype(NUMPY_TYPES[dtype])
    return array.to(getattr(namespace(array), TORCH_NAMES[dtype]))


def wide(array: Array) -> Array:
    """The array in at least fp32, in which narrow formats are summed."""
    if _in_numpy(array):
        return array.astype(np.result_type(array.dtype, np.float32), copy=False)
    if not array.is_floating_point():
        return array.double()
    return array.float() if array.itemsize < 4 else array


def copied(array: Array) -> Array:
    """The same numbers in memory of their own, the last axis closest together."""
    return namespace(array).reshape(array, array.shape, copy=True)


def parts_of(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Views of the parts of these sizes along an axis."""
    ends = list(accumulate(sizes))
    before = (slice(None),) * axis
    return [array[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def equal_parts(array: Array, parts: int, axis: int) -> list[Array]:
    """Views of so many parts along an axis, which they divide."""
    return parts_of(array, (array.shape[axis] // parts,) * parts, axis)


def summed_rows(rows: Array, places: Array, size: int) -> Array:
    """Rows [n, ..] added up by their places, as [size, ..]; each of the n places is below `size`."""
    if not _in_numpy(rows):
        return rows.new_zeros((size, *rows.shape[1:])).index_add_(0, places, rows)
    found = np.zeros((size, *rows.shape[1:]), rows.dtype)
    np.add.at(found, places, rows)
    return found


def rounded(function: Callable[..., Array | tuple[Array, ...]]) -> Compute:
    """A meaning that is computed in at least fp32 and rounded once, to the format of the first input.

    `function` takes each array, widened, and the attributes; several results are a tuple.
    """

    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        found = function(*map(wide, arrays), values)
        return [in_format(each, arrays[0]) for each in (found if isinstance(found, tuple) else (found,))]

    return compute
