"""The class of table entries, which give the shape rule, work, meaning and memory of an operator."""

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
"""NumPy array or PyTorch tensor."""
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
"""NumPy type in which each format is computed. NumPy has no bf16, so bf16 is computed in fp32."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of an operator on each of its devices."""

    flops: float = 0.0
    bytes: float = 0.0
    """Bytes moved between the device's memory and its processors."""


ShapeRule = Callable[[Types, Values], tuple[TensorType, ...]]
"""Return output types from input types. Raises InputError, without a place, for types that do not fit."""
Compute = Callable[[Arrays, Values], Sequence[Array]]
"""Compute the outputs, on NumPy arrays or PyTorch tensors, whatever the devices."""
WorkRule = Callable[[Types, Types, Values], Work]
"""Return the work, given input types, output types and attributes."""


class WriteOperation(Protocol):
    """Write an operation and return its outputs."""

    def __call__(self, kind: str, inputs: Sequence[int], **attributes: AttributeValue) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Reverse:
    """One operation of the forward pass, as input of the rule that writes its gradients."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: Types
    """Types of the inputs."""
    made: Types
    """Types of the outputs."""
    values: Values
    """Attributes of the operation."""
    gradients: tuple[int | None, ...]
    """Gradient of each output. None if the loss does not depend on the output, and for a loss itself."""
    wanted: tuple[bool, ...]
    """Whether each input's gradient is needed."""
    split: bool
    """Whether gradients of weights are separate operations from gradients of activations."""
    weights: tuple[bool, ...]
    """Whether each input is a weight."""
    add: WriteOperation
    """Writes an operation for gradients of activations, or of activations and weights together."""
    add_for_weight: WriteOperation
    """Writes an operation for gradients of weights only."""

    @property
    def gradient(self) -> int:
        """Gradient of the only output that has one."""
        (found,) = (each for each in self.gradients if each is not None)
        return found

    def each_gradient(self) -> tuple[int, ...]:
        """Return the gradients of all outputs."""
        assert None not in self.gradients, "outputs of one operation are trained together"
        return tuple(each for each in self.gradients if each is not None)

    def one(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Write an operation with one output and return that output."""
        return self.add(kind, inputs, **attributes)[0]

    def one_for(self, place: int, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Write an operation with one output that only the gradient of input `place` needs.

        If that input is a weight, the operation may be in the separate pass of weight gradients.
        """
        write = self.add_for_weight if self.weights[place] else self.add
        return write(kind, inputs, **attributes)[0]


StatisticsRule = Callable[[Types, Values], float]
"""Return a number of bytes, given input types and attributes."""
GradientRule = Callable[[Reverse], Sequence[int | None]]
"""Write the gradients of an operation's inputs. None for inputs that need no gradient or have none."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Table entry. Its functions take types (or arrays) of any number of inputs, and the attributes."""

    kind: str
    infer: ShapeRule
    compute: Compute
    work: WorkRule
    attributes: tuple[str, ...] = ()
    """Names of required attributes."""
    pattern: str = ""
    """How devices communicate: send, allreduce, … Empty for operators that run on one device."""
    in_place: bool = False
    """Whether output i overwrites input i, and takes no memory of its own."""
    view: bool = False
    """Whether outputs are views of the first input."""
    stated: bool = False
    """Whether the attribute `seconds` gives the duration, whatever the devices."""
    optional: tuple[str, ...] = ()
    """Names of optional attributes."""
    occupies: bool = True
    """Whether the devices are busy while the operation runs."""
    gradient: GradientRule | None = None
    """Rule for the gradients of its inputs. None if gradients cannot pass through it."""
    statistics: StatisticsRule | None = None
    """Bytes that frameworks keep for its gradient besides its inputs and outputs. Programs recompute these values."""
    workspace: StatisticsRule | None = None
    """Bytes that it holds while it runs, besides its inputs and outputs."""
    loss: bool = False
    """Whether its output is the loss per sample. Then its gradient rule takes 1 as the gradient of the loss."""


def need(condition: bool, why: str) -> None:
    """Raise InputError with `why` unless the condition holds. The verifier adds the place."""
    if not condition:
        raise InputError("", why)


def _in_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray | np.generic)


def namespace(array: Array) -> Any:
    """Return the library of an array, with the functions of the Array API standard."""
    if _in_numpy(array):
        return np
    from array_api_compat import array_namespace  # comes with the extra `torch`

    return array_namespace(array)


def in_format(array: Array, like: Array) -> Array:
    """Return the array in the number format of `like`."""
    return np.asarray(array).astype(like.dtype) if _in_numpy(like) else array.to(like.dtype)


def in_dtype(array: Array, dtype: str) -> Array:
    """Return the array in the number format called `dtype`."""
    if _in_numpy(array):
        return np.asarray(array).astype(NUMPY_TYPES[dtype])
    return array.to(getattr(namespace(array), TORCH_NAMES[dtype]))


def wide(array: Array) -> Array:
    """Return the array in at least fp32, the format in which narrow formats are summed."""
    if _in_numpy(array):
        return array.astype(np.result_type(array.dtype, np.float32), copy=False)
    if not array.is_floating_point():
        return array.double()
    return array.float() if array.itemsize < 4 else array


def copied(array: Array) -> Array:
    """Return a copy of the array in row-major order."""
    return namespace(array).reshape(array, array.shape, copy=True)


def parts_of(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Return views of consecutive parts of these sizes along an axis."""
    ends = list(accumulate(sizes))
    before = (slice(None),) * axis
    return [array[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def equal_parts(array: Array, parts: int, axis: int) -> list[Array]:
    """Return views of `parts` equal parts along an axis whose length they divide."""
    return parts_of(array, (array.shape[axis] // parts,) * parts, axis)


def summed_rows(rows: Array, places: Array, size: int) -> Array:
    """Return [size, ..]: the sums of rows [n, ..] by their places, which are below `size`."""
    if not _in_numpy(rows):
        return rows.new_zeros((size, *rows.shape[1:])).index_add_(0, places, rows)
    found = np.zeros((size, *rows.shape[1:]), rows.dtype)
    np.add.at(found, places, rows)
    return found


def rounded(function: Callable[..., Array | tuple[Array, ...]]) -> Compute:
    """Return a `Compute` that works in at least fp32 and rounds once, to the format of the first input.

    `function` takes each array in at least fp32, then the attributes. It returns several results as a tuple.
    """

    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        found = function(*map(wide, arrays), values)
        return [in_format(each, arrays[0]) for each in (found if isinstance(found, tuple) else (found,))]

    return compute
