"""Convert an operator graph to two editable tables, operators and edges, and apply edits to the graph.

Edits are stored as differences to the rows that were shown. If an operator is renamed or deleted, its edges are renamed
or deleted too. The edges of one output all carry the same tensor, so a change of bytes or cost applies to all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessel_core.formats.tables import Cells, Row, TableEdits
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph

TIME = "time on "
"""Prefix of the titles of time columns, one per kind of device."""
BYTES_COLUMNS = ("weight_bytes", "activation_bytes", "output_bytes")


def is_published(graph: OperatorGraph) -> bool:
    """Return whether the graph comes from the published format.

    Its times are not in seconds, and it has costs of edges and sizes of operators instead of bytes.
    """
    return graph.time_unit != "s"


def operator_columns(graph: OperatorGraph) -> tuple[str, ...]:
    """Return the column titles of the graph's operators."""
    times = tuple(f"{TIME}{kind}" for kind in graph.kinds)
    if is_published(graph):
        return ("operator", *times, "size", "backward", "colour")
    return ("operator", "kind", *times, "flops", "bytes", *BYTES_COLUMNS, "backward", "colour", "forward_of")


def edge_columns(graph: OperatorGraph) -> tuple[str, ...]:
    """Return the column titles of the graph's edges."""
    return ("from", "to", "cost" if is_published(graph) else "bytes")


def operator_rows(graph: OperatorGraph, shown: Sequence[int]) -> tuple[Row, ...]:
    """Return one row for each operator at the positions `shown`."""
    columns = operator_columns(graph)
    return tuple({column: _operator_cell(graph.operators[i], column) for column in columns} for i in shown)


def _operator_cell(operator: Operator, column: str) -> object:
    if column.startswith(TIME):
        return operator.time_on(column.removeprefix(TIME))
    return operator.name if column == "operator" else getattr(operator, column)


def edge_rows(graph: OperatorGraph, shown: Sequence[int]) -> tuple[Row, ...]:
    """Return one row for each edge at the positions `shown`."""
    (what,) = edge_columns(graph)[2:]
    edges = (graph.edges[i] for i in shown)
    return tuple({"from": edge.source, "to": edge.target, what: getattr(edge, what)} for edge in edges)


def find_operators(graph: OperatorGraph, text: str) -> tuple[int, ...]:
    """Return the positions of operators whose name, kind or colour class contains `text`, ignoring case.

    A number at the start or end of `text` must match a whole number, so that layer2 does not find layer20.  If this
    finds nothing, parts of numbers match too.  An empty text finds all operators.
    """
    query = text.strip().casefold()
    before = r"(?<!\d)" if query[:1].isdigit() else ""
    after = r"(?!\d)" if query[-1:].isdigit() else ""
    return _matching(graph, before + re.escape(query) + after) or _matching(graph, re.escape(query))


def _matching(graph: OperatorGraph, pattern: str) -> tuple[int, ...]:
    search = re.compile(pattern).search
    words = enumerate((each.name, each.kind, each.colour or "") for each in graph.operators)
    return tuple(i for i, some in words if any(search(word.casefold()) for word in some))


def find_edges(graph: OperatorGraph, text: str) -> tuple[int, ...]:
    """Return the positions of edges from or to the operators that `find_operators` finds."""
    names = {graph.operators[i].name for i in find_operators(graph, text)}
    return tuple(i for i, edge in enumerate(graph.edges) if edge.source in names or edge.target in names)


MAX_TABLE_ROWS = 500
"""Rows on one page of an editable table."""


def row_pages(positions: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Split positions of rows into pages of a table. Without rows, return one empty page."""
    pages = tuple(tuple(positions[i : i + MAX_TABLE_ROWS]) for i in range(0, len(positions), MAX_TABLE_ROWS))
    return pages or ((),)


def with_operators(graph: OperatorGraph, shown: Sequence[int], edits: TableEdits) -> OperatorGraph:
    """Apply edits of the rows that `operator_rows` returned for `shown`.

    Raises InputError with the row and the column, or with the rule that the whole graph breaks.
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
    """Return `operator` with the values of a row.  Columns that the row lacks keep their values."""
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
    """Apply edits of the rows that `edge_rows` returned for `shown`.  Raises InputError like `with_operators`."""
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
    """Return a new edge.  Without a size it gets the size of the other edges from its source."""
    edge = _edge(cells, what)
    if not cells.empty(what):
        return edge
    known = next((getattr(each, what) for each in edges if each.source == edge.source), None)
    return _carrying(edge, what, known)


def _carrying(edge: Edge, what: str, amount: Any) -> Edge:
    return replace(edge, **{what: amount})


def _edge(cells: Cells, what: str) -> Edge:
    source, target = cells.text("from"), cells.text("to")
    if what == "cost":
        return Edge(source, target, cost=cells.amount(what) or 0.0)
    return Edge(source, target, bytes=_whole(cells, what))
