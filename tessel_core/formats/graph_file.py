"""tessel-graph, version 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, as_text, document_text, fingerprint, read_with
from tessel_core.formats.record import AMOUNT, COUNT, TEXT, Codec, Record, at_least, by_name, list_of, or_null
from tessel_core.model import DevicePool, DeviceTime, Edge, Operator, OperatorGraph


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph as it was kept; `pool` where its file says on which devices it is to run."""

    graph: OperatorGraph
    pool: DevicePool | None = None
    fingerprint: str = ""
    """SHA-256 of the graph's canonical JSON, by which placements name it."""
    warnings: tuple[str, ...] = ()
    """What is not as exact as it looks, a sentence each."""
    aliases: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """What else the file calls an operator, and the operator's name; several may be called the same."""


def _times_from(value: object, where: str) -> tuple[DeviceTime, ...]:
    """A time of null is no time: the kind does not support the operator, or its time is not known yet."""
    times: tuple[DeviceTime, ...] = _TIMES.read(value, where)
    return tuple(each for each in times if each.time is not None)


def _colour_from(value: object, where: str) -> str:
    """Text, or an integer as its digits."""
    return str(as_integer(value, where)) if isinstance(value, int) else as_text(value, where)


def _seconds_from(value: object, where: str) -> str:
    if as_text(value, where) != "s":
        raise InputError(where, f"must be 's', times are in seconds; got {value!r}")
    return "s"


_TIMES = by_name(or_null(AMOUNT), DeviceTime, "kind", "time")
_OPERATOR = Record(
    Operator,
    without=("size",),
    kind=or_null(TEXT, ""),
    times=or_null(Codec(_times_from, _TIMES.write), ()).under("time"),
    flops=or_null(AMOUNT),
    bytes=or_null(AMOUNT),
    weight_bytes=or_null(COUNT),
    activation_bytes=or_null(COUNT),
    output_bytes=or_null(COUNT),
    colour=or_null(Codec(_colour_from)),
)
_EDGE = Record(Edge, without=("cost",), source=TEXT.under("from"), target=TEXT.under("to"), bytes=or_null(COUNT))
_GRAPH = Record(
    OperatorGraph,
    *("name", "time_unit", "batch_size"),
    format="tessel-graph",
    name=TEXT.unless_absent("graph"),
    time_unit=Codec(_seconds_from),
    batch_size=or_null(at_least(1), 1),
    operators=list_of(_OPERATOR),
    edges=list_of(_EDGE).required(),
)
"""Every field is written; absent values are null."""


def read_graph(data: bytes, name: str = "graph") -> GraphFile:
    """A graph from the bytes of a tessel-graph file; InputError with the place and the reason, `name` first."""
    return read_with(graph_from, data, name)


def graph_from(fields: Fields) -> GraphFile:
    """A graph from a parsed document."""
    graph = _GRAPH.from_fields(fields)
    return GraphFile(graph, None, fingerprint(_GRAPH.write(graph)))


def graph_document(graph: OperatorGraph) -> dict[str, object]:
    """The graph as a JSON-ready document."""
    return _GRAPH.write(graph)


def graph_text(graph: OperatorGraph) -> str:
    """The graph as the text of a tessel-graph file, one operator or edge a line."""
    return document_text(_GRAPH.write(graph))
