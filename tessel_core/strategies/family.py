"""What a family of networks says of itself, so that its strategies can be compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms import Optimizer

Value = int | str


class Spec(Protocol):
    """Sizes of one network; every family has these and its own."""

    @property
    def layers(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Size:
    """One thing that may be asked of a family; what has no default follows from the others."""

    name: str
    label: str
    default: Value | None = None
    choices: tuple[str, ...] = ()
    """The words that it may be; without them it is a number, except for `dtype`."""


class Family(ABC):
    """Networks of one kind: what may be asked, and the program of one device.  A spec is one that `spec` made."""

    name: str
    title: str
    sizes: tuple[Size, ...]

    @abstractmethod
    def spec(self, *values: Any, **named: Any) -> Spec:
        """From values of `sizes`, in their order or by name; InputError for those that cannot be."""

    @abstractmethod
    def build(self, spec: Any) -> Distributed:
        """The program, without the optimizer's step."""

    @abstractmethod
    def optimizer(self, spec: Any) -> Optimizer | None:
        """What ends a step; None for inference, which has no backward either."""

    @abstractmethod
    def objection(self, spec: Any, tensor: int) -> str:
        """Why layers do not divide among so many devices, as one sentence; empty where they do."""

    @abstractmethod
    def shared_side(self, spec: Any, tensor: int) -> int:
        """Of every matrix on one of so many devices, the side that replicas divide to share the optimizer's state."""

    @abstractmethod
    def example(self, spec: Any, layers: int) -> Spec:
        """A small network of the same structure and so many layers.

        Its numbers tell its `numbers` apart where 2 devices share layers.
        Its `dtype` is one that no operation makes on its own.
        """

    @abstractmethod
    def numbers(self, spec: Any, rows: int, tensor: int) -> dict[str, int]:
        """By name, the sizes that tensors have on one of `tensor` devices, of so many samples.

        Attributes of operations that are called like one of them are that size.
        """

    @abstractmethod
    def told(self, spec: Any) -> Mapping[str, Value]:
        """The sizes by which a table tells the network from others."""

    @abstractmethod
    def words(self, spec: Any) -> str:
        """The network in a few words."""
