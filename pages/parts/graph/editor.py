"""An operator graph as tables, shown page by page. An edit that makes the graph invalid changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pages.shared.session import workspace
from pages.shared.tables import edit_table, number_column, part_of, take_over
from tessel_core.formats.graph_tables import (
    BYTES_COLUMNS,
    MAX_TABLE_ROWS,
    TIME,
    edge_columns,
    edge_rows,
    find_edges,
    find_operators,
    operator_columns,
    operator_rows,
    row_pages,
    with_edges,
    with_operators,
)
from tessel_core.model import OperatorGraph


def operators_editor(graph: OperatorGraph) -> None:
    """Show the operators that match the search as a table to edit."""
    shown, name = _part(graph, find_operators, "operators")
    columns = {each: _operator_column(each, graph) for each in operator_columns(graph)}
    (before, rows), edits = edit_table(name, (graph, shown), lambda base: operator_rows(*base), columns)
    take_over(edits, lambda: workspace().placing.edited(with_operators(before, rows, edits)), "graph")


def edges_editor(graph: OperatorGraph) -> None:
    """Show the edges of the operators that match the search as a table to edit."""
    shown, name = _part(graph, find_edges, "edges")
    columns = {each: _edge_column(each, graph) for each in edge_columns(graph)}
    (before, rows), edits = edit_table(name, (graph, shown), lambda base: edge_rows(*base), columns)
    take_over(edits, lambda: workspace().placing.edited(with_edges(before, rows, edits)), "graph")


def _part(
    graph: OperatorGraph, find: Callable[[OperatorGraph, str], tuple[int, ...]], what: str
) -> tuple[tuple[int, ...], str]:
    """Return the rows to show and a name for their table."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        place = f"{what}-{workspace().token}"
        text = st.text_input("Search", key=f"find-{place}", placeholder="name, kind or colour class", width=360)
        pages = row_pages(find(graph, text))
        at = part_of(f"Rows, {MAX_TABLE_ROWS} at a time", pages, f"page-{place}")
        st.caption(
            "Click a cell to change it. Fill in the empty row to add one. If you rename an operator, its edges stay "
            "connected to it."
        )
    return pages[at], f"{what}-{text}-{at}"


def _operator_column(column: str, graph: OperatorGraph) -> Any:
    if column.startswith(TIME):
        return number_column(
            f"{column} ({graph.time_unit})", "Empty: not supported on this device, or computed from the costs."
        )
    if column == "backward":
        return st.column_config.CheckboxColumn("backward", width="small")
    if column in ("flops", "bytes", "size"):
        return number_column(column, _HELP.get(column, ""))
    if column in BYTES_COLUMNS:
        return number_column(column.replace("_bytes", " (B)").replace("_", " "), step=1)
    return st.column_config.TextColumn(column.replace("_", " "), required=column == "operator", help=_HELP.get(column))


_HELP = {
    "bytes": "Bytes moved between a device's memory and its processors.",
    "size": "Bytes that the operator holds on an accelerator.",
    "colour": "Operators of one colour class share a device.",
    "forward_of": "For a backward operator: the forward operator whose device it shares.",
}


def _edge_column(column: str, graph: OperatorGraph) -> Any:
    if column in ("from", "to"):
        return st.column_config.TextColumn(column, required=True)
    title = f"cost ({graph.time_unit})" if column == "cost" else "bytes"
    return number_column(title, "All edges from one operator carry the same output, so they change together.")
