"""Files of operator graphs: tessel-graph, version 1, and the published inputs and splits (placements).

The published files belong to "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020).
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
    """Contents of a graph file."""

    graph: OperatorGraph
    pool: DevicePool | None = None
    """Devices, if the file contains them, as published inputs do."""
    fingerprint: str = ""
    """SHA-256 of the graph's canonical JSON.  Placements refer to the graph by it."""
    warnings: tuple[str, ...] = ()
    """Sentences about limits of the graph, such as unknown costs."""
    aliases: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Pairs (alias, name): another name that the file gives for an operator, and its name.

    Aliases need not be unique.
    """

    @classmethod
    def of(cls, graph: OperatorGraph, pool: DevicePool | None = None) -> GraphFile:
        """Build the file of a graph with its fingerprint; with `pool`, in the published format.

        Raises InputError if a name is not possible in the published format.
        """
        if pool is not None:
            _check_numbered(graph)
        # Read the document back, because 1 and 1.0 are equal but differ in canonical JSON.
        return graph_from(Fields(graph_document(cls(graph, pool)), ""))


def _times_from(value: object, where: str) -> tuple[DeviceTime, ...]:
    """Read times. Leave out null: it means that this kind cannot run the operator, or that the time is unknown."""
    times: tuple[DeviceTime, ...] = _TIMES.read(value, where)
    return tuple(each for each in times if each.time is not None)


def _colour_from(value: object, where: str) -> str:
    """Read text, or an integer, which is converted to text."""
    return str(as_integer(value, where)) if isinstance(value, int) else as_text(value, where)


def _seconds_from(value: object, where: str) -> str:
    if as_text(value, where) != "s":
        raise InputError(where, f"must be 's' (seconds), got {value!r}")
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
"""Codec of a graph document. Every field is written, except an empty `network`. Unknown values are null."""


def read_graph(data: bytes, name: str = "graph") -> GraphFile:
    """Read the bytes of a file of either format.  Raises InputError with `name`, the place and the reason."""
    return read_with(graph_from, data, name)


def graph_from(fields: Fields) -> GraphFile:
    """Read a graph from a parsed document of either format."""
    if looks_like_published_graph(fields):
        return _published_graph_from(fields)
    graph = _GRAPH.from_fields(fields)
    return GraphFile(graph, None, fingerprint(_GRAPH.write(graph)))


def graph_document(file: GraphFile) -> dict[str, object]:
    """Return the graph as a JSON-ready document in the format of its file."""
    return _GRAPH.write(file.graph) if file.pool is None else _published_document(file.graph, file.pool)


def graph_file_text(file: GraphFile) -> str:
    """Return the text of the file in the format in which it was read, with one line per operator or edge."""
    return document_text(graph_document(file))


def graph_text(graph: OperatorGraph) -> str:
    """Return the text of a tessel-graph file."""
    return document_text(_GRAPH.write(graph))


# Files of the published program

_ACCELERATOR = "accelerator"


@dataclass(frozen=True, slots=True)
class SplitFile:
    """Names of the operators on each accelerator and on each host, from a published or manual split."""

    accelerators: tuple[tuple[str, ...], ...]
    cpus: tuple[tuple[str, ...], ...]


def looks_like_published_graph(fields: Fields) -> bool:
    """Return whether a document is an input of the published program, which has no `format` key."""
    return not fields.has("format") and fields.has("nodes")


def looks_like_split(fields: Fields) -> bool:
    """Return whether a document is an answer of the published program or of a human expert."""
    return not fields.has("format") and fields.has("fpgas")


def _published_graph_from(fields: Fields) -> GraphFile:
    """Read a graph and its devices from a parsed document of the published format.

    The id of an operator becomes its name, and its `name` an alias.  Times are in milliseconds, and `size` is the whole
    memory of an operator.  Flags may be 0 and 1, `colorClass` and `size` may be missing, other keys are ignored, and
    edges may be repeated.
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
    cost = fields.amount(key)
    if cost is None:
        raise InputError(fields.where or "the file", f"{key!r} is missing" if not fields.has(key) else f"{key} is null")
    return cost


def _flag(fields: Fields, key: str) -> bool:
    """Read true, false, 1 or 0."""
    if isinstance(fields.take(key), bool):
        return fields.truth(key)
    value = fields.integer(key)
    if value not in (0, 1):
        raise InputError(fields.place(key), f"must be true, false, 0 or 1, got {value}")
    return bool(value)


def _published_document(graph: OperatorGraph, pool: DevicePool) -> dict[str, object]:
    """Convert a graph of the published format back to a document with all fields that the reader uses."""
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
    """Read a split from a parsed document.  Its claimed loads are ignored."""
    return SplitFile(_parts(fields, "fpgas"), _parts(fields, "cpus"))


def _parts(fields: Fields, key: str) -> tuple[tuple[str, ...], ...]:
    parts = (each.items("nodes") for each in fields.objects(key))
    return tuple(tuple(str(as_integer(*node)) for node in part) for part in parts)


def split_placement(split: SplitFile, graph: OperatorGraph, pool: DevicePool) -> Placement:
    """Convert a split to a placement.  A missing operator goes to the device of those it must share a device with.

    Raises InputError for an unknown or repeated operator, more parts than devices, or an operator without a device.
    """
    place: dict[int, int] = {}
    for what, parts, count, first in (
        ("fpgas", split.accelerators, pool.accelerators, 0),
        ("cpus", split.cpus, pool.cpus, pool.accelerators),
    ):
        used = [part for part in parts if part]
        if len(used) > count:
            raise InputError(what, f"the split uses {len(used)}, but there are {count}")
        for device, names in enumerate(used, start=first):
            for name in names:
                if name not in graph.names:
                    raise InputError(what, f"unknown operator {name!r}")
                if place.setdefault(graph.operator_index(name), device) != device:
                    raise InputError(what, f"operator {name} is on two devices")
    for group in graph.colocated:
        known = {place[member] for member in group if member in place}
        if len(known) == 1:
            place.update({member: place.get(member, *known) for member in group})
    lost = next((o.name for i, o in enumerate(graph.operators) if i not in place), None)
    if lost is not None:
        raise InputError(
            f"operator {lost}", "is not in the split, and neither is an operator that must share its device"
        )
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
