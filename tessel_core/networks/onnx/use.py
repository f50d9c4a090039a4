"""A node of ONNX as rules see it, and the operation that a rule makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessel_core.formats.onnx import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.formulas import Attribute, WithAttributes
from tessel_core.formats.onnx.tensors import Shape
from tessel_core.ir.program import Attributes, AttributeValue


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of programs: its kind, the tensors that it takes, and its attributes."""

    kind: str
    inputs: tuple[str, ...]
    attributes: Attributes = ()


@dataclass(frozen=True, slots=True)
class Use(WithAttributes):
    """A node with the shapes of its inputs and outputs."""

    node: OnnxNode
    network: OnnxNetwork

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names by position, without those that are left out at the end."""
        found = list(self.node.inputs)
        while found and not found[-1]:
            found.pop()
        return tuple(found)

    @property
    def makes_one(self) -> bool:
        """Whether its first output is the only one that there is."""
        return bool(self.node.outputs[0]) and not any(self.node.outputs[1:])

    @property
    def shape(self) -> Shape:
        """Of its first input."""
        return self.network.tensors[self.node.inputs[0]].shape

    @property
    def made(self) -> Shape:
        """Of its first output."""
        return self.network.tensors[self.node.outputs[0]].shape

    @property
    def attributes(self) -> Mapping[str, Attribute]:  # type: ignore[override]
        return self.node.attributes

    @property
    def opset(self) -> int:
        return self.network.opset

    def shape_of(self, position: int) -> Shape:
        """Of any input."""
        return self.network.tensors[self.node.inputs[position]].shape

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.node.inputs) and bool(self.node.inputs[position])

    def argument(self, position: int) -> tuple[int, ...] | None:
        """The whole numbers of an input that steers the operator; None where it is left out or not known."""
        found = self.node.arguments.get(position)
        return None if found is None else tuple(map(int, found))

    def axes(self, position: int) -> tuple[int, ...] | None:
        """From an input of newer opsets, or from an attribute of older ones."""
        return self.argument(position) if self.has(position) else self.integers("axes")

    def is_unknown(self, position: int) -> bool:
        """Whether an input that steers the operator is computed while the network runs."""
        return self.has(position) and position not in self.node.arguments

    def operation(self, kind: str, takes: int | None = None, /, **attributes: AttributeValue) -> Operation | None:
        """This operation of the first `takes` inputs, of all where None; None where one of them is left out."""
        inputs = self.inputs[:takes]
        return Operation(kind, inputs, tuple(sorted(attributes.items()))) if all(inputs) else None
