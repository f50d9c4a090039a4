"""What conversion rules get and return: an ONNX node with its shapes, and an operation of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessel_core.formats.onnx import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.formulas import Attribute, WithAttributes
from tessel_core.formats.onnx.tensors import Shape
from tessel_core.ir.program import Attributes, AttributeValue


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a program: its kind, input tensors and attributes."""

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
        """Names of the inputs, by position. Omitted inputs at the end are left out."""
        names = list(self.node.inputs)
        while names and not names[-1]:
            names.pop()
        return tuple(names)

    @property
    def makes_one(self) -> bool:
        """Whether the node has exactly one output."""
        return bool(self.node.outputs[0]) and not any(self.node.outputs[1:])

    @property
    def shape(self) -> Shape:
        """Shape of the first input."""
        return self.network.tensors[self.node.inputs[0]].shape

    @property
    def made(self) -> Shape:
        """Shape of the first output."""
        return self.network.tensors[self.node.outputs[0]].shape

    @property
    def attributes(self) -> Mapping[str, Attribute]:  # type: ignore[override]
        return self.node.attributes

    @property
    def opset(self) -> int:
        return self.network.opset

    def shape_of(self, position: int) -> Shape:
        """Return the shape of an input."""
        return self.network.tensors[self.node.inputs[position]].shape

    def has(self, position: int) -> bool:
        """Return whether an optional input is present."""
        return position < len(self.node.inputs) and bool(self.node.inputs[position])

    def argument(self, position: int) -> tuple[int, ...] | None:
        """Return the integers of an input such as a shape or axes. None if the input is omitted or unknown."""
        numbers = self.node.arguments.get(position)
        return None if numbers is None else tuple(map(int, numbers))

    def axes(self, position: int) -> tuple[int, ...] | None:
        """Return the axes, which are an input in newer opsets and an attribute in older ones."""
        return self.argument(position) if self.has(position) else self.integers("axes")

    def is_unknown(self, position: int) -> bool:
        """Return whether an input such as a shape or axes is known only when the network runs."""
        return self.has(position) and position not in self.node.arguments

    def operation(self, kind: str, takes: int | None = None, /, **attributes: AttributeValue) -> Operation | None:
        """Return an operation on the first `takes` inputs, or on all inputs. None if one of them is omitted."""
        inputs = self.inputs[:takes]
        return Operation(kind, inputs, tuple(sorted(attributes.items()))) if all(inputs) else None
