"""What a model says, node by node, for those who make something else of it than an operator graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tessel_core.formats.fields import Fields, as_integer, as_items, as_text
from tessel_core.formats.onnx.call import Attribute
from tessel_core.formats.onnx.tensors import Shape

Numbers = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """A tensor's number format (fp32, int64, bool, int4 …), its shape, and the bytes that it takes."""

    dtype: str
    shape: Shape
    bytes: int


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """One use of an operator of the default domain, or of another one, in front of whose type it then stands."""

    name: str
    """Its own, else that of its first output."""
    op_type: str
    kind: str
    """What operator graphs and the cost model call it."""
    inputs: tuple[str, ...]
    """By position, empty where an optional one is left out."""
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    """What only its subgraphs take."""
    attributes: Mapping[str, Attribute]
    arguments: Mapping[int, Numbers]
    """Per position, the elements of inputs that steer the operator from the host, where they are known."""
    flops: float
    bytes: float
    inner_bytes: int
    """Of the constants in its subgraphs."""
    is_ready: bool
    """Whether it depends on no input, and only looks at a weight in another way."""


@dataclass(frozen=True)
class OnnxNetwork:
    """A model with all of its shapes.

    What depends on no input is left out: shapes and what is computed of them; tensors that are made of constants are
    constants themselves.
    """

    name: str
    opset: int
    """Of the default domain; 0 where the model does not use it."""
    tensors: Mapping[str, OnnxTensor]
    """Every tensor of the nodes, by name."""
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    """What is there before the network runs: weights, and the like."""
    nodes: tuple[OnnxNode, ...]
    """Each after those whose outputs it takes."""
    outputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def network_document(network: OnnxNetwork) -> dict[str, object]:
    """The network as JSON; `network_from` reads it."""
    return {
        "name": network.name,
        "opset": network.opset,
        "tensors": [[name, each.dtype, list(each.shape), each.bytes] for name, each in network.tensors.items()],
        "inputs": list(network.inputs),
        "constants": list(network.constants),
        "nodes": [_node_document(node) for node in network.nodes],
        "outputs": list(network.outputs),
        "warnings": list(network.warnings),
    }


def _node_document(node: OnnxNode) -> dict[str, object]:
    return {
        "name": node.name,
        "op_type": node.op_type,
        "kind": node.kind,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "captured": list(node.captured),
        "attributes": [[name, value] for name, value in node.attributes.items()],
        "arguments": [[place, list(found)] for place, found in node.arguments.items()],
        "flops": node.flops,
        "bytes": node.bytes,
        "inner_bytes": node.inner_bytes,
        "is_ready": node.is_ready,
    }


def network_from(document: Fields) -> OnnxNetwork:
    """What `network_document` wrote."""
    return OnnxNetwork(
        document.text("name"),
        document.integer("opset"),
        dict(_tensor(each, place) for each, place in document.items("tensors")),
        _names(document, "inputs"),
        _names(document, "constants"),
        tuple(map(_node, document.objects("nodes"))),
        _names(document, "outputs"),
        _names(document, "warnings"),
    )


def _node(fields: Fields) -> OnnxNode:
    return OnnxNode(
        fields.text("name"),
        fields.text("op_type"),
        fields.text("kind"),
        _names(fields, "inputs"),
        _names(fields, "outputs"),
        _names(fields, "captured"),
        {name: _attribute(value) for name, value in _pairs(fields, "attributes") if isinstance(name, str)},
        {at: _numbers(value) for at, value in _pairs(fields, "arguments") if isinstance(at, int)},
        fields.number("flops"),
        fields.number("bytes"),
        fields.integer("inner_bytes"),
        fields.truth("is_ready"),
    )


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    return tuple(as_text(*each) for each in fields.items(key))


def _pairs(fields: Fields, key: str) -> Iterator[tuple[object, object]]:
    for each, place in fields.items(key):
        first, second = (value for value, _ in as_items(each, place))
        yield first, second


def _tensor(entry: object, place: str) -> tuple[str, OnnxTensor]:
    (name, _), (dtype, _), (shape, _), (held, _) = as_items(entry, place)
    sizes = tuple(size for size, _ in as_items(shape, place) if isinstance(size, int))
    return as_text(name, place), OnnxTensor(as_text(dtype, place), sizes, as_integer(held, place))


def _numbers(value: object) -> Numbers:
    """Not bounded as those of files are: the end of a slice may be the largest number that there is."""
    return tuple(each for each, _ in as_items(value, "") if isinstance(each, int | float))


def _attribute(value: object) -> Attribute:
    if isinstance(value, int | float | str):
        return value
    return tuple(each for each, _ in as_items(value, "") if isinstance(each, int))
