"""An ONNX model as a list of nodes with shapes and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tessel_core.formats.fields import as_items
from tessel_core.formats.onnx.formulas import Attribute
from tessel_core.formats.onnx.tensors import Tensor
from tessel_core.formats.record import Codec, Record, list_of

Numbers = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One node of a model."""

    name: str
    """Name of the node, or of its first output if it has none."""
    op_type: str
    """Operator type, prefixed with its domain if that is not the default one."""
    kind: str
    """Kind of the operator in operator graphs and in the cost model, such as `matmul`."""
    inputs: tuple[str, ...]
    """Input tensors by position; empty text for an omitted optional input."""
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    """Tensors that only its subgraphs use."""
    attributes: Mapping[str, Attribute]
    arguments: Mapping[int, Numbers]
    """Known elements of inputs that the host needs, such as shapes and axes, by position."""
    flops: float
    bytes: float
    inner_bytes: int
    """Bytes of the constants in its subgraphs."""
    is_ready: bool
    """Whether it depends on no input of the model and is only a view of a weight."""


@dataclass(frozen=True)
class OnnxNetwork:
    """A model with all shapes.

    Nodes that depend on no input are left out, such as computations of shapes.  Tensors computed from constants are
    constants.
    """

    name: str
    opset: int
    """Version of the default domain; 0 if the model does not use it."""
    tensors: Mapping[str, Tensor]
    """All tensors of the nodes by name."""
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    """Weights and other data that exist before the network runs."""
    nodes: tuple[OnnxNode, ...]
    """Nodes in topological order."""
    outputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def _numbers_from(value: object, where: str) -> Numbers:
    """Read numbers of any size, since the end of a slice may be the largest integer of 64 bits."""
    return tuple(each for each, _ in as_items(value, where) if isinstance(each, int | float))


def _attribute_from(value: object, where: str) -> Attribute:
    return value if isinstance(value, int | float | str) else _numbers_from(value, where)


def _by_key(codec: Codec | Record[Any], key: type[str] | type[int] = str) -> Codec:
    """Return the codec of a mapping that is written as pairs of key and value."""

    def read(value: object, where: str) -> dict[Any, Any]:
        pairs = (as_items(*pair) for pair in as_items(value, where))
        return {key(name): codec.read(*content) for (name, _), content in pairs}  # type: ignore[call-overload]

    return Codec(read, lambda value: [[name, codec.write(content)] for name, content in value.items()])


_SHAPE = Codec(_numbers_from, list)
_TENSOR = Record(Tensor, shape=_SHAPE)
_NODE = Record(OnnxNode, attributes=_by_key(Codec(_attribute_from)), arguments=_by_key(_SHAPE, int))
NETWORK = Record(OnnxNetwork, tensors=_by_key(_TENSOR), nodes=list_of(_NODE))
"""Codec with which the process that reads a model returns the network."""
