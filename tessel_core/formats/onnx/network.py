"""A model node by node, for readers that do not want an operator graph."""

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
    """One use of an operator of the default domain, or of another one, in front of whose type it then stands."""

    name: str
    """Its own, else that of its first output."""
    op_type: str
    kind: str
    """Its kind in operator graphs and the cost model."""
    inputs: tuple[str, ...]
    """By position, empty where an optional one is left out."""
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    """Tensors that only its subgraphs take."""
    attributes: Mapping[str, Attribute]
    arguments: Mapping[int, Numbers]
    """Per position, the elements of inputs that steer the operator from the host, where they are known."""
    flops: float
    bytes: float
    inner_bytes: int
    """Bytes of the constants in its subgraphs."""
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
    """Version of the default domain; 0 where the model does not use it."""
    tensors: Mapping[str, Tensor]
    """Every tensor of the nodes, by name."""
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    """Weights and other data that exist before the network runs."""
    nodes: tuple[OnnxNode, ...]
    """Each after those whose outputs it takes."""
    outputs: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def _numbers_from(value: object, where: str) -> Numbers:
    """Not bounded as those of files are: the end of a slice may be the largest number that there is."""
    return tuple(each for each, _ in as_items(value, where) if isinstance(each, int | float))


def _attribute_from(value: object, where: str) -> Attribute:
    return value if isinstance(value, int | float | str) else _numbers_from(value, where)


def _by_key(codec: Codec | Record[Any], key: type[str] | type[int] = str) -> Codec:
    """A mapping, as pairs of key and value."""

    def read(value: object, where: str) -> dict[Any, Any]:
        pairs = (as_items(*pair) for pair in as_items(value, where))
        return {key(name): codec.read(*kept) for (name, _), kept in pairs}  # type: ignore[call-overload]

    return Codec(read, lambda value: [[name, codec.write(kept)] for name, kept in value.items()])


_SHAPE = Codec(_numbers_from, list)
_TENSOR = Record(Tensor, shape=_SHAPE)
_NODE = Record(OnnxNode, attributes=_by_key(Codec(_attribute_from)), arguments=_by_key(_SHAPE, int))
NETWORK = Record(OnnxNetwork, tensors=_by_key(_TENSOR), nodes=list_of(_NODE))
"""The form in which one process hands a network to another."""
