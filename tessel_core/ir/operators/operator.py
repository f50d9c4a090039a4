"""The class `Operator`, an entry of the operator table: the shape rule, work, computation and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tessel_core.errors import InputError
from tessel_core.ir.program import AttributeValue
from tessel_core.ir.types import TensorType

Types = Sequence[TensorType]
Values = Mapping[str, AttributeValue]
Array: TypeAlias = Any
"""NumPy array or PyTorch tensor."""
Arrays = Sequence[Array]


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
