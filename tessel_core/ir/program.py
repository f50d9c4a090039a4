"""Distributed programs: lists of typed operations. Each value is assigned once, and the order is the order of issue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tessel_core.ir.types import TensorType

AttributeValue = int | float | str | tuple[int, ...]
Attributes = tuple[tuple[str, AttributeValue], ...]
"""Names of attributes with their values, sorted by name."""
Scope = str | int | None
"""Layer of an operation: the first part of its name, such as `layer3`. Without a name, its stage number."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Where an operation comes from. Tags are only displayed and never change a computation."""

    stage: int | None = None
    micro_batch: int | None = None
    phase: str = ""
    """"forward", "backward", "weight", "update" or "". In the program of a schedule: the kind of block, or "wait"."""
    name: str = ""
    """Path of the network's operator that this operation belongs to, such as `layer3/mlp/up`."""

    @property
    def scope(self) -> Scope:
        """Layer of the operation: the first part of its name. An operation without a name has its stage number."""
        return self.name.lstrip("/").partition("/")[0] or self.stage


UNTAGGED = Tag()


def _listed_devices(attributes: Attributes) -> tuple[int, ...]:
    """Return the devices that the attribute `devices` lists. Some may hold no input or output of the operation."""
    return next((value for name, value in attributes if name == "devices" and isinstance(value, tuple)), ())


@dataclass(frozen=True, slots=True)
class Op:
    """One operation. Inputs and outputs are indices into the program's `types`."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Attributes = ()
    tag: Tag = UNTAGGED

    def with_attributes(self, **more: AttributeValue) -> Op:
        """Return the operation with further attributes, or with other values for those that it has."""
        return replace(self, attributes=tuple(sorted({**dict(self.attributes), **more}.items())))


@dataclass(frozen=True)
class Program:
    """Inputs, operations in the order of issue, and outputs.

    Builders, transforms and parsers create programs. `verify` checks that a program is well-formed.
    """

    name: str
    types: tuple[TensorType, ...]
    """Type of each value."""
    inputs: tuple[int, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    names: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Names of values. A value without a name is displayed by its number."""

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Sorted devices that hold a value or occur in an attribute of an operation."""
        named = {device for each in {op.attributes for op in self.ops} for device in _listed_devices(each)}
        return tuple(sorted(named.union(each.device for each in set(self.types))))

    @cached_property
    def is_training(self) -> bool:
        """Whether the program has a backward pass."""
        return any(op.tag.phase == "backward" for op in self.ops)

    def devices_of(self, op: Op) -> tuple[int, ...]:
        """Return the devices of the operation's inputs and outputs, and those that its attribute `devices` lists."""
        values = (self.types[value].device for value in (*op.inputs, *op.outputs))
        return tuple(dict.fromkeys((*values, *_listed_devices(op.attributes))))

    @cached_property
    def uses(self) -> tuple[int, ...]:
        """Number of uses of each value as an input of an operation. Program outputs do not count as uses."""
        found = [0] * len(self.types)
        for op in self.ops:
            for value in op.inputs:
                found[value] += 1
        return tuple(found)

    def value_name(self, value: int) -> str:
        """Return the value's name, or else its number."""
        return self.names.get(value) or str(value)

    def types_of(self, values: Sequence[int]) -> tuple[TensorType, ...]:
        """Return the types of several values."""
        return tuple(self.types[value] for value in values)
