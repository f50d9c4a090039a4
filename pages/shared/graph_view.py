"""Drawing of an operator graph, with controls for grouping, colours and search, and a zoom into groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import MODE_BAR, button, labelled
from tessel_core.charts.graph.chart import graph_chart, selected_operators
from tessel_core.charts.graph.groups import ColourBy, GraphView, GroupBy, marked, overview
from tessel_core.formats.graph_tables import find_operators
from tessel_core.model import OperatorGraph, Placement

_DEEPEST = 6


@dataclass
class DrawingState:
    """State of the drawing in one tab."""

    of_workspace: ClassVar[bool] = True
    expanded: frozenset[str] = frozenset()
    """Keys of the expanded groups."""
    only: frozenset[str] = frozenset()
    """Names of the operators to draw. Empty: all."""


_overview = lru_cache(maxsize=8)(overview)
_figure = lru_cache(maxsize=8)(graph_chart)


def view_controls(graph: OperatorGraph, name: str, *, placed: bool) -> GraphView:
    """Show the controls of the drawing. With `placed`, operators can be grouped and coloured by device."""
    begin, tab = _overview(graph), session().of(DrawingState)
    groups = [each for each in GroupBy if placed or each is not GroupBy.DEVICE]
    colours = [each for each in ColourBy if placed or each is not ColourBy.DEVICE]
    first = ColourBy.DEVICE if placed else ColourBy.KIND
    key = f"{name}-{workspace().token}-{graph.name}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        group = labelled(width=150).selectbox("Group by", groups, groups.index(begin.group_by), key=f"group-{key}")
        look: dict[str, Any] = {"key": f"depth-{key}", "help": _DEPTH, "disabled": group is not GroupBy.LAYER}
        depth = labelled(width=110).number_input("Depth", 1, _DEEPEST, begin.depth, **look)
        colour = labelled(width=150).selectbox("Colour by", colours, colours.index(first), key=f"colour-{key}")
        text = labelled().text_input("Search", key=f"search-{key}", placeholder="name, kind or colour class")
        if (tab.expanded or tab.only) and button("Whole graph", icon=":material/zoom_out_map:"):
            tab.expanded, tab.only = frozenset(), frozenset()
    found = frozenset(graph.operators[i].name for i in find_operators(graph, text)) if text else frozenset()
    view = GraphView(group, depth, tab.expanded, colour, highlight=found, only=tab.only)
    if text and not found:
        st.caption(f"No operator has “{text}” in its name, kind or colour class.")
    return view


_DEPTH = "Number of path parts in an operator's name that identify its layer. More parts give smaller groups."


def drawing(graph: OperatorGraph, view: GraphView, name: str, placement: Placement | None = None) -> tuple[str, ...]:
    """Show the drawing. Return the names of the operators that are selected in it."""
    pinned = frozenset(pin.operator for pin in workspace().placing.pins) if placement is not None else frozenset()
    view = replace(view, pinned=pinned)
    event: Mapping[str, Any] = st.plotly_chart(
        _figure(graph, view, placement),
        key=f"{name}-{workspace().token}",
        on_select="rerun",
        selection_mode=("points", "box", "lasso"),
        config={**MODE_BAR, "modeBarButtonsToRemove": []},
    )
    return selected_operators(event["selection"]["points"], graph, view, placement)


def look_closer(graph: OperatorGraph, selected: tuple[str, ...], view: GraphView) -> None:
    """Show the buttons that expand the selected groups, or draw only the selection."""
    tab = session().of(DrawingState)
    with st.container(horizontal=True, vertical_alignment="center"):
        if not selected:
            st.caption("Point at an operator to see its costs. Click to select, or drag a box with the box tool above.")
            return
        st.caption(f"{len(selected):,} operators selected")
        if view.group_by is not GroupBy.OPERATOR and button("Expand group", icon=":material/unfold_more:"):
            chosen = {graph.operator_index(name) for name in selected}
            tab.expanded |= {mark.key for mark in marked(graph, view).marks if chosen & set(mark.members)}
            st.rerun()
        if button("Show only these", icon=":material/filter_center_focus:"):
            tab.only = frozenset(selected)
            st.rerun()
