"""An operator graph as a layered drawing that answers to pointing, zooming and selecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from tessel_core.charts.graph.edges import edge_traces
from tessel_core.charts.graph.groups import marked
from tessel_core.charts.graph.labels import LANES_OF_LAYERS, layer_labels, tells_layers
from tessel_core.charts.graph.layout import Frame, Layout, layout_of
from tessel_core.charts.graph.marks import mark_traces
from tessel_core.charts.graph.view import GraphView, GroupBy
from tessel_core.charts.palette import FAINT
from tessel_core.model import OperatorGraph, Placement

_WIDTH = 1_150
"""Pixels that a picture has across a small screen; wider ones only leave more room."""
_LEAST_HEIGHT, _MOST_HEIGHT = 420, 1_400
_AREA = 24 * 24
"""Square pixels that a mark should have with the lines around it."""
_LARGEST_LANE, _SMALLEST_LANE = 46.0, 3.0
_TOP, _BOTTOM = 34, 16


def graph_chart(graph: OperatorGraph, view: GraphView | None = None, placement: Placement | None = None) -> go.Figure:
    """The graph as `view` says, on `placement` if there is one.

    Every mark is a point whose customdata is the index of its first operator, see `selected_operators`.  Forward marks
    are circles from left to right in the upper part of each row, backward ones diamonds that come back below; rows
    follow each other as lines of text do.  A dot marks what is pinned, a second colour around a mark a second device.
    """
    view = view or GraphView()
    shown = marked(graph, view, placement)
    if not shown.marks:
        return _finish(go.Figure(), _LEAST_HEIGHT)
    target = round(min(_MOST_HEIGHT, max(_LEAST_HEIGHT, len(shown.marks) * _AREA / _WIDTH)))
    layers_told = view.group_by is GroupBy.OPERATOR and tells_layers(shown)
    between_rows = LANES_OF_LAYERS if layers_told else 1
    layout = layout_of(shown, Frame(_WIDTH / target, between_rows, _LARGEST_LANE / target))
    lane_px = max(_SMALLEST_LANE, min(_LARGEST_LANE, target / (layout.height + 1)))
    figure = go.Figure(edge_traces(shown, layout, placement))
    figure.add_traces(mark_traces(shown, layout, view, placement, (_WIDTH / (layout.width + 0.6), lane_px)))
    figure.update_layout(shapes=_ground(layout, between_rows))
    if layers_told:
        figure.update_layout(annotations=layer_labels(shown, layout, _WIDTH / layout.width))
    figure.update_xaxes(range=[-0.8, layout.width - 0.2])
    figure.update_yaxes(range=[layout.height, -1 - 0.5 * between_rows])
    return _finish(figure, round(lane_px * (layout.height + 1 + 0.5 * between_rows)))


def selected_operators(
    points: Iterable[Mapping[str, Any]], graph: OperatorGraph, view: GraphView, placement: Placement | None = None
) -> tuple[str, ...]:
    """The names behind points that a person selected in `graph_chart` with these arguments, in the graph's order.

    A group selects all its operators.  Points are what Streamlit and plotly report; those without one of our
    customdata are passed over, as are operators that `view` does not draw.
    """
    shown = marked(graph, view, placement)
    firsts = [first for point in points if isinstance(first := point.get("customdata"), int)]
    chosen = {shown.mark_of[first] for first in firsts if first in shown.mark_of}
    members = sorted(member for mark in chosen for member in shown.marks[mark].members)
    return tuple(graph.operators[member].name for member in members)


def _ground(layout: Layout, between_rows: int) -> list[dict[str, Any]]:
    """Shapes: faint ground under what runs backward, and a faint line between rows."""
    across = {"x0": -0.7, "x1": layout.width - 0.3, "layer": "below"}
    bands = [
        {
            "type": "rect",
            **across,
            "y0": row.middle - 0.6,
            "y1": row.bottom - 0.4,
            "fillcolor": FAINT,
            "line": {"width": 0},
        }
        for row in layout.rows
        if row.bottom > row.middle
    ]
    lines = [
        {"type": "line", **across, "y0": row.top - between_rows, "y1": row.top - between_rows, "line": {"color": FAINT}}
        for row in layout.rows[1:]
    ]
    return [*bands, *lines]


def _finish(figure: go.Figure, pixels: int) -> go.Figure:
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(
        height=pixels + _TOP + _BOTTOM,
        margin={"t": _TOP, "b": _BOTTOM, "l": 4, "r": 4},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        hovermode="closest",
        dragmode="pan",  # with the select tools, Streamlit turns off that a click selects
    )
    return figure
