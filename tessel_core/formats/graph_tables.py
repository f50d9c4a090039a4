"""An operator graph as two tables that people edit a part at a time: operators and edges.

Edits come as differences to some rows of the graph.  What hangs on a name follows it: edges go with an operator that
is renamed or deleted, and one output has one size, so its size or cost is changed on all its edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessel_core.formats.tables import Cells, Row, TableEdits
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph

TIME = "time on "
"""Begins the titles of the columns with times, a kind of devices each."""
BYTES_COLUMNS = ("weight_bytes", "activation_bytes", "output_bytes")


def is_published(graph: OperatorGraph) -> bool:
    """Whether its times are not in seconds: then it says costs of edges and sizes of operators instead of bytes."""
    return graph.time_unit != "s"


def operator_columns(graph: OperatorGraph) -> tuple[str, ...]:
    """Titles of the columns that the graph's operators have."""
    times = tuple(f"{TIME}{kind}" for kind in graph.kinds)
    if is_published(graph):
        return ("operator", *times, "size", "backward", "colour")
    return ("operator", "kind", *times, "flops", "bytes", *BYTES_COLUMNS, "backward", "colour", "forward_of")


def edge_columns(graph: OperatorGraph) -> tuple[str, ...]:
    """Titles of the columns that the graph's edges have."""
    return ("from", "to", "cost" if is_published(graph) else "bytes")


def operator_rows(graph: OperatorGraph, shown: Sequence[int]) -> tuple[Row, ...]:
    """The operators at these positions, a row each."""
    columns = operator_columns(graph)
    return tuple({column: _operator_cell(graph.operators[i], column) for column in columns} for i in shown)


def _operator_cell(operator: Operator, column: str) -> object:
    if column.startswith(TIME):
        return operator.time_on(column.removeprefix(TIME))
    return operator.name if column == "operator" else getattr(operator, column)


def edge_rows(graph: OperatorGraph, shown: Sequence[int]) -> tuple[Row, ...]:
    """The edges at these positions, a row each."""
    (what,) = edge_columns(graph)[2:]
    edges = (graph.edges[i] for i in shown)
    return tuple({"from": edge.source, "to": edge.target, what: getattr(edge, what)} for edge in edges)


def find_operators(graph: OperatorGraph, text: str) -> tuple[int, ...]:
    """Positions of the operators whose name, kind or colour class holds `text`, whatever its case; all for nothing.

    Numbers at its ends are taken whole where that finds anything, so that layer2 is not layer20.
    """
    wanted = text.strip().casefold()
    before = r"(?<!\d)" if wanted[:1].isdigit() else ""
    after = r"(?!\d)" if wanted[-1:].isdigit() else ""
    return _holding(graph, before + re.escape(wanted) + after) or _holding(graph, re.escape(wanted))


def _holding(graph: OperatorGraph, pattern: str) -> tuple[int, ...]:
    search = re.compile(pattern).search
    words = enumerate((each.name, each.kind, each.colour or "") for each in graph.operators)
    return tuple(i for i, some in words if any(search(word.casefold()) for word in some))


def find_edges(graph: OperatorGraph, text: str) -> tuple[int, ...]:
    """Positions of the edges at those operators."""
    found = {graph.operators[i].name for i in find_operators(graph, text)}
    return tuple(i for i, edge in enumerate(graph.edges) if edge.source in found or edge.target in found)


MOST_ROWS = 500
"""Rows of a table that people edit; of more, so many at a time."""


def row_pages(found: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """`found` in parts that a table can show; one empty part where there is nothing."""
    return tuple(tuple(found[i : i + MOST_ROWS]) for i in range(0, len(found), MOST_ROWS)) or ((),)


def with_operators(graph: OperatorGraph, shown: Sequence[int], edits: TableEdits) -> OperatorGraph:
    """The graph after edits of the rows that `operator_rows` gave for `shown`.

    Raises InputError naming the row and the column, or what the graph as a whole breaks.
    """
    operators: list[Operator | None] = list(graph.operators)
    renamed: dict[str, str] = {}
    for row, cells in edits.changed.items():
        before = graph.operators[shown[row]]
        after = _changed(before, Cells({**operator_rows(graph, [shown[row]])[0], **cells}, f"operator {before.name}"))
        operators[shown[row]] = after
        if after.name != before.name:
            renamed[before.name] = after.name
    gone = {graph.operators[shown[row]].name for row in edits.deleted}
    for row in edits.deleted:
        operators[shown[row]] = None
    added = (_changed(Operator("new"), Cells(row, "the new row")) for row in edits.filled)
    kept = (_renamed(each, renamed) for each in operators if each is not None)
    edges = (
        replace(edge, source=renamed.get(edge.source, edge.source), target=renamed.get(edge.target, edge.target))
        for edge in graph.edges
        if edge.source not in gone and edge.target not in gone
    )
    return replace(graph, operators=(*kept, *added), edges=tuple(edges))


def _renamed(operator: Operator, renamed: Mapping[str, str]) -> Operator:
    forward = operator.forward_of
    return replace(operator, forward_of=renamed[forward]) if forward and forward in renamed else operator


def _changed(operator: Operator, cells: Cells) -> Operator:
    """`operator` with what the row says; columns that the row does not have stay as they are."""
    times: dict[str, float | None] = {each.kind: each.time for each in operator.times}
    values: dict[str, Any] = {"name": cells.text("operator")}
    for column in cells.columns:
        if column.startswith(TIME):
            times[column.removeprefix(TIME)] = cells.amount(column)
        elif column != "operator":
            values[column] = _READERS[column](cells, column)
    known = tuple(DeviceTime(kind, time) for kind, time in times.items() if time is not None)
    return replace(operator, times=known, **values)


def _whole(cells: Cells, column: str) -> int | None:
    return None if cells.empty(column) else cells.integer(column, 0)


def _text(cells: Cells, column: str) -> str | None:
    return None if cells.empty(column) else cells.text(column)


_READERS: dict[str, Callable[[Cells, str], Any]] = {
    "kind": lambda cells, column: _text(cells, column) or "",
    "flops": Cells.amount,
    "bytes": Cells.amount,
    "size": Cells.amount,
    **dict.fromkeys(BYTES_COLUMNS, _whole),
    "backward": Cells.flag,
    "colour": _text,
    "forward_of": _text,
}


def with_edges(graph: OperatorGraph, shown: Sequence[int], edits: TableEdits) -> OperatorGraph:
    """The graph after edits of the rows that `edge_rows` gave for `shown`; InputError as for operators."""
    edges: list[Edge | None] = list(graph.edges)
    (what,) = edge_columns(graph)[2:]
    amounts: dict[str, Any] = {}
    for row, cells in edits.changed.items():
        before = graph.edges[shown[row]]
        where = f"edge {before.source} -> {before.target}"
        after = _edge(Cells({**edge_rows(graph, [shown[row]])[0], **cells}, where), what)
        edges[shown[row]] = after
        if what in cells:
            amounts[after.source] = getattr(after, what)
    for row in edits.deleted:
        edges[shown[row]] = None
    kept = [edge for edge in edges if edge is not None]
    for each in edits.filled:
        kept.append(_added_edge(kept, Cells(each, "the new row"), what))
    if amounts:
        kept = [_carrying(each, what, amounts.get(each.source, getattr(each, what))) for each in kept]
    return replace(graph, edges=tuple(kept))


def _added_edge(edges: Sequence[Edge], cells: Cells, what: str) -> Edge:
    """An edge whose size is not said carries what its source's other edges carry."""
    found = _edge(cells, what)
    if not cells.empty(what):
        return found
    known = next((getattr(each, what) for each in edges if each.source == found.source), None)
    return _carrying(found, what, known)


def _carrying(edge: Edge, what: str, amount: Any) -> Edge:
    return replace(edge, **{what: amount})


def _edge(cells: Cells, what: str) -> Edge:
    source, target = cells.text("from"), cells.text("to")
    if what == "cost":
        return Edge(source, target, cost=cells.amount(what) or 0.0)
    return Edge(source, target, bytes=_whole(cells, what))
