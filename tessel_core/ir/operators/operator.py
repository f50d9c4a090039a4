"""The class `Operator`, an entry of the operator table: the shape rule, work, computation and memory."""

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
    """Work of an operation on each of its devices."""

    flops: float = 0.0
    bytes: float = 0.0
    """Bytes that the operation reads from or writes to the device's memory."""


ShapeRule = Callable[[Types, Values], tuple[TensorType, ...]]
"""Computes output types from input types and attributes. Raises InputError if they do not fit.

The message does not name the operation; `verify` and the builder add its name.
"""
Compute = Callable[[Arrays, Values], Sequence[Array]]
"""Computes the outputs from NumPy arrays or PyTorch tensors. It ignores devices."""
WorkRule = Callable[[Types, Types, Values], Work]
"""Computes the work from input types, output types and attributes."""


class WriteOperation(Protocol):
    """Add an operation to the program and return its outputs."""

    def __call__(self, kind: str, inputs: Sequence[int], **attributes: AttributeValue) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Reverse:
    """One operation of the forward pass, as its gradient rule sees it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: Types
    """Types of the inputs."""
    made: Types
    """Types of the operation's outputs."""
    values: Values
    """Attributes of the operation."""
    gradients: tuple[int | None, ...]
    """Gradient of each output. None for a loss, and for an output that the loss does not depend on."""
    wanted: tuple[bool, ...]
    """Whether each input's gradient is needed."""
    split: bool
    """Whether gradients of weights are separate operations from gradients of activations."""
    weights: tuple[bool, ...]
    """Whether each input is a weight."""
    add: WriteOperation
    """Adds an operation that computes gradients of activations, or of activations and weights together."""
    add_for_weight: WriteOperation
    """Adds an operation that computes only gradients of weights."""

    @property
    def gradient(self) -> int:
        """The gradient of the only output that has a gradient."""
        (found,) = (each for each in self.gradients if each is not None)
        return found

    def each_gradient(self) -> tuple[int, ...]:
        """Return the gradients of all outputs."""
        assert None not in self.gradients, "outputs of one operation are trained together"
        return tuple(each for each in self.gradients if each is not None)

    def one(self, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Add an operation with one output and return that output."""
        return self.add(kind, inputs, **attributes)[0]

    def one_for(self, place: int, kind: str, *inputs: int, **attributes: AttributeValue) -> int:
        """Add an operation with one output, used only for the gradient of input `place`. Return that output.

        If the input is a weight, the operation may belong to the separate pass for weight gradients.
        """
        write = self.add_for_weight if self.weights[place] else self.add
        return write(kind, inputs, **attributes)[0]


StatisticsRule = Callable[[Types, Values], float]
"""Computes a number of bytes from input types and attributes."""
GradientRule = Callable[[Reverse], Sequence[int | None]]
"""Adds the operations for the gradients of an operation's inputs, and returns these gradients.

A gradient is None if the input needs none or has none.
"""


@dataclass(frozen=True, slots=True)
class Operator:
    """An entry of the operator table. Its functions accept any number of inputs."""

    kind: str
    infer: ShapeRule
    compute: Compute
    work: WorkRule
    attributes: tuple[str, ...] = ()
    """Names of required attributes."""
    pattern: str = ""
    """Communication pattern, such as "send" or "allreduce". Empty for operators that run on one device."""
    in_place: bool = False
    """Whether output i overwrites input i, so that the output needs no memory of its own."""
    view: bool = False
    """Whether outputs are views of the first input."""
    stated: bool = False
    """Whether the attribute `seconds` gives the duration. It then does not depend on the device."""
    optional: tuple[str, ...] = ()
    """Names of optional attributes."""
    occupies: bool = True
    """Whether the devices are busy while the operation runs."""
    gradient: GradientRule | None = None
    """Rule for the gradients of the operator's inputs. None if the operator has no gradient."""
    statistics: StatisticsRule | None = None
    """Bytes that frameworks keep for the gradient besides inputs and outputs. Programs here compute these values again.
    """
    workspace: StatisticsRule | None = None
    """Bytes of temporary memory while the operator runs, besides its inputs and outputs."""
    loss: bool = False
    """Whether the output is the loss per sample. The gradient rule of a loss uses 1 as the loss's own gradient."""


def need(condition: bool, why: str) -> None:
    """Raise InputError with `why` unless the condition holds. The caller adds where the error is."""
    if not condition:
        raise InputError("", why)


def _in_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray | np.generic)


def namespace(array: Array) -> Any:
    """Return the array's library, as a module with the functions of the Array API standard."""
    if _in_numpy(array):
        return np
    from array_api_compat import array_namespace  # PyTorch is optional (the extra `torch`).

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
    """Return the array in fp32, or unchanged if its format is wider. Sums are computed in this format."""
    if _in_numpy(array):
        return array.astype(np.result_type(array.dtype, np.float32), copy=False)
    if not array.is_floating_point():
        return array.double()
    return array.float() if array.itemsize < 4 else array


def copied(array: Array) -> Array:
    """Return a copy of the array in row-major order."""
    return namespace(array).reshape(array, array.shape, copy=True)


def parts_of(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Return views of consecutive parts along an axis. `sizes` are their lengths."""
    ends = list(accumulate(sizes))
    before = (slice(None),) * axis
    return [array[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def equal_parts(array: Array, parts: int, axis: int) -> list[Array]:
    """Return views of `parts` equal parts along an axis. `parts` must divide its length."""
    return parts_of(array, (array.shape[axis] // parts,) * parts, axis)


def summed_rows(rows: Array, places: Array, size: int) -> Array:
    """Add each row of `rows` [n, ..] to the row `places[i]` of the result. Return the result, [size, ..]."""
    if not _in_numpy(rows):
        return rows.new_zeros((size, *rows.shape[1:])).index_add_(0, places, rows)
    found = np.zeros((size, *rows.shape[1:]), rows.dtype)
    np.add.at(found, places, rows)
    return found


def rounded(function: Callable[..., Array | tuple[Array, ...]]) -> Compute:
    """Return a `Compute` that works in at least fp32 and rounds once, to the format of the first input.

    `function` gets the arrays in at least fp32, then the attributes. It returns one array, or a tuple of several.
    """

    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        found = function(*map(wide, arrays), values)
        return [in_format(each, arrays[0]) for each in (found if isinstance(found, tuple) else (found,))]

    return compute
