"""A distributed program: typed operations in static single assignment form, in the order in which they are issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tessel_core.ir.types import TensorType

AttributeValue = int | float | str | tuple[int, ...]
Attributes = tuple[tuple[str, AttributeValue], ...]
"""Names and values, in alphabetical order."""
Scope = str | int | None
"""A layer: the first step of the names of its operations, else its stage."""


@dataclass(frozen=True, slots=True)
class Tag:
    """The origin of an operation, for people; nothing computes with it."""

    stage: int | None = None
    micro_batch: int | None = None
    phase: str = ""
    """forward, backward, weight, update, or empty; of a schedule's program, the kind of block, or wait."""
    name: str = ""
    """The operator of the network that it belongs to, as a path: `layer3/mlp/up`."""

    @property
    def scope(self) -> Scope:
        """The layer that it belongs to: the first step of its name, else its stage."""
        return self.name.lstrip("/").partition("/")[0] or self.stage


UNTAGGED = Tag()


def _named(attributes: Attributes) -> tuple[int, ...]:
    """Devices that an operation runs on, whether they hold anything or not."""
    return next((value for name, value in attributes if name == "devices" and isinstance(value, tuple)), ())


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; values are named by their number in the program's `types`."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Attributes = ()
    tag: Tag = UNTAGGED


@dataclass(frozen=True)
class Program:
    """Inputs, operations in order (the order is the schedule), and outputs.

    A program is what a builder, a transform or a reader makes; `verify` says whether it is well-formed.
    """

    name: str
    types: tuple[TensorType, ...]
    """Per value, by number."""
    inputs: tuple[int, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    names: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Names of values that have one; others are called by their number."""

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Every device that holds a value or that an operation names, in order."""
        named = {device for each in {op.attributes for op in self.ops} for device in _named(each)}
        return tuple(sorted(named.union(each.device for each in set(self.types))))

    @cached_property
    def is_training(self) -> bool:
        """Whether it has a backward pass."""
        return any(op.tag.phase == "backward" for op in self.ops)

    def devices_of(self, op: Op) -> tuple[int, ...]:
        """Those of the operation's inputs, of its outputs, and those that it names."""
        values = (self.types[value].device for value in (*op.inputs, *op.outputs))
        return tuple(dict.fromkeys((*values, *_named(op.attributes))))

    @cached_property
    def uses(self) -> tuple[int, ...]:
        """Per value, how many times operations take it; program outputs do not count."""
        found = [0] * len(self.types)
        for op in self.ops:
            for value in op.inputs:
                found[value] += 1
        return tuple(found)

    def value_name(self, value: int) -> str:
        """The value's name, else its number."""
        return self.names.get(value) or str(value)

    def types_of(self, values: Sequence[int]) -> tuple[TensorType, ...]:
        """The types of several values."""
        return tuple(self.types[value] for value in values)
