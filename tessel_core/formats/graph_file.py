"""tessel-graph, version 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, document_text, fingerprint, header, read_with
from tessel_core.model import DevicePool, DeviceTime, Edge, Operator, OperatorGraph

FORMAT = "tessel-graph"


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


def read_graph(data: bytes, name: str = "graph") -> GraphFile:
    """A graph from the bytes of a tessel-graph file; InputError with the place and the reason, `name` first."""
    return read_with(graph_from, data, name)


def graph_from(fields: Fields) -> GraphFile:
    """A graph from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "name", "time_unit", "operators", "edges", "batch_size")
    if fields.text("time_unit", "s") != "s":
        raise InputError("time_unit", f"must be 's', times are in seconds; got {fields.text('time_unit')!r}")
    graph = OperatorGraph(
        name=fields.text("name", "graph"),
        operators=tuple(_operator(each) for each in fields.objects("operators")),
        edges=tuple(_edge(each) for each in fields.objects("edges")),
        batch_size=1 if fields.is_null("batch_size") else fields.integer("batch_size", least=1),
    )
    return GraphFile(graph, None, fingerprint(graph_document(graph)))


def _operator(fields: Fields) -> Operator:
    fields.only(
        *("name", "kind", "time", "flops", "bytes", "weight_bytes", "activation_bytes", "output_bytes"),
        *("backward", "colour", "forward_of"),
    )
    return Operator(
        name=fields.text("name"),
        kind=_text(fields, "kind") or "",
        times=() if fields.is_null("time") else _times(fields.fields("time")),
        flops=fields.amount("flops"),
        bytes=fields.amount("bytes"),
        weight_bytes=fields.count("weight_bytes"),
        activation_bytes=fields.count("activation_bytes"),
        output_bytes=fields.count("output_bytes"),
        backward=fields.flag("backward"),
        colour=_colour(fields),
        forward_of=_text(fields, "forward_of"),
    )


def _times(fields: Fields) -> tuple[DeviceTime, ...]:
    """A time of null is no time: the kind does not support the operator, or its time is not known yet."""
    found = ((kind, fields.amount(kind)) for kind, _ in fields.entries())
    return tuple(DeviceTime(kind, time) for kind, time in found if time is not None)


def _colour(fields: Fields) -> str | None:
    """Text, or an integer as its digits."""
    if not fields.is_null("colour") and isinstance(fields.take("colour"), int):
        return str(fields.integer("colour"))
    return _text(fields, "colour")


def _text(fields: Fields, key: str) -> str | None:
    return None if fields.is_null(key) else fields.text(key)


def _edge(fields: Fields) -> Edge:
    fields.only("from", "to", "bytes")
    return Edge(fields.text("from"), fields.text("to"), fields.count("bytes"))


def graph_document(graph: OperatorGraph) -> dict[str, object]:
    """The graph as a JSON-ready document, every field written out; absent values are null."""
    return {
        "format": FORMAT,
        "version": 1,
        "name": graph.name,
        "time_unit": graph.time_unit,
        "batch_size": graph.batch_size,
        "operators": [_operator_document(operator) for operator in graph.operators],
        "edges": [{"from": edge.source, "to": edge.target, "bytes": edge.bytes} for edge in graph.edges],
    }


def _operator_document(operator: Operator) -> dict[str, object]:
    return {
        "name": operator.name,
        "kind": operator.kind,
        "time": {each.kind: each.time for each in operator.times},
        "flops": operator.flops,
        "bytes": operator.bytes,
        "weight_bytes": operator.weight_bytes,
        "activation_bytes": operator.activation_bytes,
        "output_bytes": operator.output_bytes,
        "backward": operator.backward,
        "colour": operator.colour,
        "forward_of": operator.forward_of,
    }


def graph_text(graph: OperatorGraph) -> str:
    """The graph as the text of a tessel-graph file, one operator or edge a line."""
    return document_text(graph_document(graph))
