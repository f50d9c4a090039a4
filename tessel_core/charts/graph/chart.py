"""Draw an operator graph in layers, with hover texts, zoom and selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.figure import STILL_LEGEND, finish
from tessel_core.charts.graph.groups import GraphView, GroupBy, MarkedGraph, marked
from tessel_core.charts.graph.labels import LANES_OF_LAYERS, layer_labels, names_layers
from tessel_core.charts.graph.layout import Frame, Layout, layout_of
from tessel_core.charts.graph.marks import mark_traces
from tessel_core.charts.palette import FAINT, QUIET, TRANSFER
from tessel_core.model import OperatorGraph, Placement

_WIDTH = 1_150
"""Width of a picture on a small screen, in pixels."""
_MIN_HEIGHT, _MAX_HEIGHT = 420, 1_400
_PIXELS_PER_MARK = 24 * 24
"""Area in square pixels of a mark (the symbol of an operator or group) and the lines around it."""
_LARGEST_LANE, _SMALLEST_LANE = 46.0, 3.0
_TOP, _BOTTOM = 34, 16
_MOVED, _INSIDE, _KEPT = "between devices", "tensors", "kept for the backward pass"
_MAX_LINES = 14_000
"""Limit of lines in all traces together, about half a megabyte."""
_ROW_STRIDE = 1e6
"""Distance between lanes of different rows in sort keys.

It is larger than the width of any drawing, so that positions of different lanes do not overlap.
"""
_THIN_ABOVE = 3_000
"""Number of lines above which a drawing uses thin lines."""


def graph_chart(graph: OperatorGraph, view: GraphView | None = None, placement: Placement | None = None) -> go.Figure:
    """Draw the graph with the grouping and colours of `view`, and with the devices of `placement` if given.

    Forward marks are circles from left to right in the upper part of each row. Backward marks are diamonds from right
    to left below. Rows continue like lines of text. A dot marks pinned operators, and an outline a second device. The
    customdata of a mark is the index of its first operator, for `selected_operators`.
    """
    view = view or GraphView()
    shown = marked(graph, view, placement)
    if not shown.marks:
        return _finish(go.Figure(), _MIN_HEIGHT)
    target = round(min(_MAX_HEIGHT, max(_MIN_HEIGHT, len(shown.marks) * _PIXELS_PER_MARK / _WIDTH)))
    with_layers = view.group_by is GroupBy.OPERATOR and names_layers(shown)
    between_rows = LANES_OF_LAYERS if with_layers else 1
    layout = layout_of(shown, Frame(_WIDTH / target, between_rows, _LARGEST_LANE / target))
    lane_px = max(_SMALLEST_LANE, min(_LARGEST_LANE, target / (layout.height + 1)))
    figure = go.Figure(_edge_traces(shown, layout, placement))
    figure.add_traces(mark_traces(shown, layout, view, placement, (_WIDTH / (layout.width + 0.6), lane_px)))
    figure.update_layout(shapes=_ground(layout, between_rows))
    if with_layers:
        figure.update_layout(annotations=layer_labels(shown, layout, _WIDTH / layout.width))
    figure.update_xaxes(range=[-0.8, layout.width - 0.2])
    figure.update_yaxes(range=[layout.height, -1 - 0.5 * between_rows])
    return _finish(figure, round(lane_px * (layout.height + 1 + 0.5 * between_rows)))


def selected_operators(
    points: Iterable[Mapping[str, Any]], graph: OperatorGraph, view: GraphView, placement: Placement | None = None
) -> tuple[str, ...]:
    """Return the names of the operators that a user selected in the `graph_chart` with these arguments.

    They are in the order of the graph. A group selects all its operators. `points` are as Streamlit and plotly report
    them. Points without customdata of a mark are ignored, and so are operators that `view` does not draw.
    """
    shown = marked(graph, view, placement)
    firsts = [first for point in points if isinstance(first := point.get("customdata"), int)]
    chosen = {shown.mark_of[first] for first in firsts if first in shown.mark_of}
    members = sorted(member for mark in chosen for member in shown.marks[mark].members)
    return tuple(graph.operators[member].name for member in members)


def _ground(layout: Layout, between_rows: int) -> list[dict[str, Any]]:
    """Return background shapes: a faint area behind backward marks, and a faint line between rows."""
    across = {"x0": -0.7, "x1": layout.width - 0.3, "layer": "below"}
    band = {"type": "rect", **across, "fillcolor": FAINT, "line": {"width": 0}}
    bands = [{**band, "y0": row.middle - 0.6, "y1": row.bottom - 0.4} for row in layout.rows if row.bottom > row.middle]
    lines = [
        {"type": "line", **across, "y0": row.top - between_rows, "y1": row.top - between_rows, "line": {"color": FAINT}}
        for row in layout.rows[1:]
    ]
    return [*bands, *lines]


def _finish(figure: go.Figure, pixels: int) -> go.Figure:
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    # Streamlit ignores clicks if the drag mode is a selection tool.
    return finish(figure, pixels, _TOP, _BOTTOM, margin={"l": 4, "r": 4}, legend=STILL_LEGEND, dragmode="pan")


def _edge_traces(marked: MarkedGraph, layout: Layout, placement: Placement | None) -> list[go.Scatter]:
    """Return the traces of lines.

    Tensors kept for the backward pass are at the bottom, and tensors between devices on top. If there are too many
    lines, the longest are left out, and the legend counts them.
    """
    moves = _moving(marked, layout, placement)
    thin = len(layout.lines) > _THIN_ABOVE
    looks = (
        (_MOVED, moves, {"color": TRANSFER, "width": 1.0 if thin else 1.6}),
        (_INSIDE, ~layout.mirror & ~moves, {"color": QUIET, "width": 0.7 if thin else 1.1}),
        (_KEPT, layout.mirror & ~moves, {"color": QUIET, "width": 0.5, "dash": "dot"}),
    )
    traces: list[go.Scatter] = []
    room = _MAX_LINES
    for name, chosen, look in looks:
        lines = _joined(layout.lines[chosen])
        if len(lines):
            traces.insert(0, _trace(name, lines, room, look))
            room = max(0, room - len(lines))
    return traces


def _moving(marked: MarkedGraph, layout: Layout, placement: Placement | None) -> NDArray[np.bool_]:
    """Return, for each line, whether it carries a tensor between operators on different devices."""
    moves = np.zeros(len(layout.lines), dtype=bool)
    if placement is None:
        return moves
    on = placement.assignment
    moving = {ends for (source, target), ends in marked.arc_of.items() if set(on[source]) != set(on[target])}
    of_arc = np.array([arc in moving for arc in marked.arcs], dtype=bool)
    arcs, lines = layout.arc_of_line
    moves[lines[of_arc[arcs]]] = True
    return moves


def _trace(name: str, lines: NDArray[np.float64], room: int, look: dict[str, Any]) -> go.Scatter:
    """Return a trace of at most `room` lines, the shortest ones."""
    left_out = len(lines) - room
    if left_out > 0:
        length = np.hypot(lines[:, 2] - lines[:, 0], lines[:, 3] - lines[:, 1])
        lines = lines[np.argsort(length, kind="stable")[:room]]
        name += f" ({left_out:,} lines left out)"
    x, y = _drawn(lines)
    named = left_out > 0 or name != _INSIDE
    return go.Scatter(name=name, x=x, y=y, mode="lines", line=look, hoverinfo="skip", showlegend=named)


def _joined(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Join horizontal lines that meet end to end, and join vertical lines likewise. The picture stays the same."""
    swapped = [1, 0, 3, 2]
    return _levels_joined(_levels_joined(lines)[:, swapped])[:, swapped]


def _levels_joined(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    level = lines[:, 1] == lines[:, 3]
    flat = lines[level]
    if not len(flat):
        return lines
    left, right = np.minimum(flat[:, 0], flat[:, 2]), np.maximum(flat[:, 0], flat[:, 2])
    order = np.lexsort((left, flat[:, 1]))
    y, left, right = flat[order, 1], left[order], right[order]
    reached = np.maximum.accumulate(right + y * _ROW_STRIDE) - y * _ROW_STRIDE
    firsts = np.flatnonzero(np.append(True, (y[1:] != y[:-1]) | (left[1:] > reached[:-1])))
    ends = np.maximum.reduceat(right, firsts)
    return np.concatenate([lines[~level], np.stack([left[firsts], y[firsts], ends, y[firsts]], axis=1)])


def _drawn(lines: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the coordinates of all line ends, with a gap after each line."""
    gap = np.full(len(lines), np.nan)
    x = np.stack([lines[:, 0], lines[:, 2], gap], axis=1).ravel()
    y = np.stack([lines[:, 1], lines[:, 3], gap], axis=1).ravel()
    return x.astype(np.float32), y.astype(np.float32)
