"""Operator graphs as files: tessel-graph, version 1, and the inputs and splits of the published program.

Published are those of "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, as_text, document_text, fingerprint, read_with
from tessel_core.formats.record import AMOUNT, COUNT, TEXT, Codec, Record, at_least, by_name, list_of, or_null
from tessel_core.model import CPU, DevicePool, DeviceTime, Edge, Operator, OperatorGraph, Placement


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A graph as it was kept; `pool` where its file says on which devices it is to run."""

    graph: OperatorGraph
    pool: DevicePool | None = None
    fingerprint: str = ""
    """SHA-256 of the graph's canonical JSON, by which placements name it."""
    warnings: tuple[str, ...] = ()
    """Limits of what the graph says, a sentence each."""
    aliases: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Other names that the file has for operators, each with the operator's; several may share one."""

    @classmethod
    def of(cls, graph: OperatorGraph, pool: DevicePool | None = None) -> GraphFile:
        """The graph as it reads back from its file, with its fingerprint; `pool` for one from the published JSON.

        Raises InputError where a published input would get a name that its format cannot have.
        """
        if pool is not None:
            _check_numbered(graph)
        # Read back, because 1 and 1.0 are equal but are not the same canonical JSON.
        return graph_from(Fields(graph_document(cls(graph, pool)), ""))


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
    *("name", "time_unit", "batch_size", "network"),
    format="tessel-graph",
    name=TEXT.unless_absent("graph"),
    time_unit=Codec(_seconds_from),
    batch_size=or_null(at_least(1), 1),
    network=TEXT.unless_absent("").sparse(),
    operators=list_of(_OPERATOR),
    edges=list_of(_EDGE).required(),
)
"""Every field is written, but for the network where there is none; absent values are null."""


def read_graph(data: bytes, name: str = "graph") -> GraphFile:
    """A graph from the bytes of a file of either format; InputError with the place and the reason, `name` first."""
    return read_with(graph_from, data, name)


def graph_from(fields: Fields) -> GraphFile:
    """A graph from a parsed document of either format."""
    if looks_like_published_graph(fields):
        return _published_graph_from(fields)
    graph = _GRAPH.from_fields(fields)
    return GraphFile(graph, None, fingerprint(_GRAPH.write(graph)))


def graph_document(file: GraphFile) -> dict[str, object]:
    """The graph as a JSON-ready document, in the format of its file."""
    return _GRAPH.write(file.graph) if file.pool is None else _published_document(file.graph, file.pool)


def graph_file_text(file: GraphFile) -> str:
    """The text of a file, one operator or edge a line, in the format that the graph came from."""
    return document_text(graph_document(file))


def graph_text(graph: OperatorGraph) -> str:
    """The graph as the text of a tessel-graph file."""
    return document_text(_GRAPH.write(graph))


# The published program's files

_ACCELERATOR = "accelerator"


@dataclass(frozen=True, slots=True)
class SplitFile:
    """A split by hand: per accelerator and per host, the names of its operators."""

    accelerators: tuple[tuple[str, ...], ...]
    cpus: tuple[tuple[str, ...], ...]


def looks_like_published_graph(fields: Fields) -> bool:
    """True for an input of the published program; it names no format."""
    return not fields.has("format") and fields.has("nodes")


def looks_like_split(fields: Fields) -> bool:
    """True for an answer of the published program or of a human expert."""
    return not fields.has("format") and fields.has("fpgas")


def _published_graph_from(fields: Fields) -> GraphFile:
    """A graph and its devices from a parsed document.

    Operators are named by their id as text, and their `name` is an alias, if they have one.  Times are in
    milliseconds, `size` is all that an operator holds.  Flags
    may be 0 and 1, `colorClass` and `size` may be absent, other keys are ignored, an edge may be repeated.
    """
    counts = fields.integer("maxFPGAs", least=0), fields.integer("maxCPUs", least=0)
    pool = DevicePool(*counts, _cost(fields, "maxSizePerFPGA"))
    edges: dict[tuple[str, str, float], Edge] = {}
    for each in fields.objects("edges"):
        source, target, cost = str(each.integer("sourceId")), str(each.integer("destId")), _cost(each, "cost")
        edges.setdefault((source, target, cost), Edge(source, target, cost=cost))
    nodes = tuple(_node(each) for each in fields.objects("nodes"))
    graph = OperatorGraph("published graph", nodes, tuple(edges.values()), "ms")
    return GraphFile(graph, pool, fingerprint(_published_document(graph, pool)), aliases=tuple(_aliases(fields)))


def _aliases(fields: Fields) -> Iterator[tuple[str, str]]:
    for each in fields.objects("nodes"):
        name = each.take("name") if each.has("name") else None
        if isinstance(name, str):
            yield name, str(each.integer("id"))


def _node(fields: Fields) -> Operator:
    times = [DeviceTime(CPU, _cost(fields, "cpuLatency"))]
    on_accelerator = _cost(fields, "fpgaLatency")
    if _flag(fields, "supportedOnFpga"):
        times.append(DeviceTime(_ACCELERATOR, on_accelerator))
    return Operator(
        name=str(fields.integer("id")),
        times=tuple(times),
        size=fields.amount("size") or 0.0,
        backward=_flag(fields, "isBackwardNode"),
        colour=None if fields.is_null("colorClass") else str(fields.integer("colorClass")),
    )


def _cost(fields: Fields, key: str) -> float:
    found = fields.amount(key)
    if found is None:
        raise InputError(fields.where or "the file", f"{key!r} is missing" if not fields.has(key) else f"{key} is null")
    return found


def _flag(fields: Fields, key: str) -> bool:
    """true, false, 1 or 0."""
    if isinstance(fields.take(key), bool):
        return fields.truth(key)
    value = fields.integer(key)
    if value not in (0, 1):
        raise InputError(fields.place(key), f"must be true, false, 0 or 1, got {value}")
    return bool(value)


def _published_document(graph: OperatorGraph, pool: DevicePool) -> dict[str, object]:
    """A graph that was read from the published JSON, as that JSON with every field that is read."""
    return {
        "maxSizePerFPGA": pool.memory,
        "maxFPGAs": pool.accelerators,
        "maxCPUs": pool.cpus,
        "nodes": [
            {
                "id": int(operator.name),
                "supportedOnFpga": operator.time_on(_ACCELERATOR) is not None,
                "cpuLatency": operator.time_on(CPU),
                "fpgaLatency": operator.time_on(_ACCELERATOR) or 0.0,
                "isBackwardNode": operator.backward,
                **({} if operator.colour is None else {"colorClass": int(operator.colour)}),
                "size": operator.size,
            }
            for operator in graph.operators
        ],
        "edges": [{"sourceId": int(e.source), "destId": int(e.target), "cost": e.cost} for e in graph.edges],
    }


def split_from(fields: Fields) -> SplitFile:
    """A split from a parsed document; its claimed loads are ignored."""
    return SplitFile(_parts(fields, "fpgas"), _parts(fields, "cpus"))


def _parts(fields: Fields, key: str) -> tuple[tuple[str, ...], ...]:
    parts = (each.items("nodes") for each in fields.objects(key))
    return tuple(tuple(str(as_integer(*node)) for node in part) for part in parts)


def split_placement(split: SplitFile, graph: OperatorGraph, pool: DevicePool) -> Placement:
    """A split as a placement; operators that it leaves out follow those that they must share a device with.

    Raises InputError for an unknown or repeated operator, more parts than devices, or an operator without a place.
    """
    place: dict[int, int] = {}
    for what, parts, count, first in (
        ("fpgas", split.accelerators, pool.accelerators, 0),
        ("cpus", split.cpus, pool.cpus, pool.accelerators),
    ):
        used = [part for part in parts if part]
        if len(used) > count:
            raise InputError(what, f"the split uses {len(used)}, there are {count}")
        for device, names in enumerate(used, start=first):
            for name in names:
                if name not in graph.names:
                    raise InputError(what, f"unknown operator {name!r}")
                if place.setdefault(graph.operator_index(name), device) != device:
                    raise InputError(what, f"operator {name} has two places")
    for group in graph.colocated:
        known = {place[member] for member in group if member in place}
        if len(known) == 1:
            place.update({member: place.get(member, *known) for member in group})
    lost = next((o.name for i, o in enumerate(graph.operators) if i not in place), None)
    if lost is not None:
        raise InputError(f"operator {lost}", "has no place in the split, and nothing that it must be with has one")
    return Placement(graph, pool.devices(graph), tuple((place[i],) for i in range(len(graph.operators))))


def _check_numbered(graph: OperatorGraph) -> None:
    for operator in graph.operators:
        for what, text in (("its name", operator.name), ("its colour", operator.colour)):
            if text is not None and not _is_number(text):
                why = f"{what} must be a whole number in a published input, got {text!r}"
                raise InputError(f"operator {operator.name}", why)


def _is_number(text: str) -> bool:
    try:
        return str(int(text)) == text
    except ValueError:
        return False
