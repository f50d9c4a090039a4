"""An operator graph as a layered drawing that answers to pointing, zooming and selecting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.graph.colouring import Gradient, colours_of, devices_of
from tessel_core.charts.graph.edges import edge_traces
from tessel_core.charts.graph.groups import MarkedGraph, marked
from tessel_core.charts.graph.hover import hover_texts
from tessel_core.charts.graph.labels import (
    LABEL_PX,
    LABEL_SIZE,
    LANES_OF_LAYERS,
    has_labels,
    labels_of,
    layer_labels,
    tells_layers,
)
from tessel_core.charts.graph.layout import Layout, layout_of
from tessel_core.charts.graph.view import ColourBy, GraphView, GroupBy
from tessel_core.charts.palette import COST_SCALE, FAINT, QUIET, STATIC, ink, slot_colour
from tessel_core.charts.text import plain
from tessel_core.model import OperatorGraph, Placement

_WIDTH = 1_150
"""Pixels that a picture has across a small screen; wider ones only leave more room."""
_LEAST_HEIGHT, _MOST_HEIGHT = 420, 1_400
_AREA = 24 * 24
"""Square pixels that a mark should have with the lines around it."""
_LARGEST_LANE, _SMALLEST_LANE = 46.0, 3.0
_LARGEST_MARK = 24.0
_TOP, _BOTTOM = 34, 16
_CIRCLE, _DIAMOND, _DOTTED = 0, 2, 200
"""Plotly's numbers of symbols; the dotted ones are 200 further on."""
_DIMMED, _PINNED_LARGER = 0.12, 1.35


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
    layout = layout_of(shown, _WIDTH / target, between_rows)
    lane_px = max(_SMALLEST_LANE, min(_LARGEST_LANE, target / (layout.height + 1)))
    figure = go.Figure(edge_traces(shown, layout, placement))
    figure.add_traces(_mark_traces(shown, layout, view, placement, lane_px))
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
    firsts = (_first_operator(point.get("customdata")) for point in points)
    chosen = {shown.mark_of[first] for first in firsts if first in shown.mark_of}
    members = sorted(member for mark in chosen for member in shown.marks[mark].members)
    return tuple(graph.operators[member].name for member in members)


def _first_operator(customdata: object) -> int:
    """Streamlit wraps a single number in a list at times; -1 where it is neither."""
    value = customdata[0] if isinstance(customdata, list | tuple) and customdata else customdata
    return int(value) if isinstance(value, int | float) else -1


def _mark_traces(
    shown: MarkedGraph, layout: Layout, view: GraphView, placement: Placement | None, lane_px: float
) -> list[go.Scatter]:
    """A trace for each colour, or one for all amounts; all marks once."""
    column_px = _WIDTH / (layout.width + 0.6)
    looks = _Looks(shown, layout, view, placement, (column_px, lane_px))
    tints, gradient = colours_of(shown, view, placement)
    traces = [looks.trace(tint.name, tint.marks, {"color": tint.colour}) for tint in tints]
    if gradient is not None:
        traces.append(looks.trace("", gradient.marks, _gradient_colours(gradient)))
    return [*traces, *_legend_of_shapes(shown, view)]


class _Looks:
    """What does not depend on the colouring: size, symbol, outline, opacity, label and hover text per mark."""

    def __init__(
        self,
        shown: MarkedGraph,
        layout: Layout,
        view: GraphView,
        placement: Placement | None,
        pitch: tuple[float, float],
    ) -> None:
        operators = shown.graph.operators
        names = [{operators[i].name for i in mark.members} for mark in shown.marks]
        pinned = np.array([bool(each & view.pinned) for each in names])
        found = np.array([not view.highlight or bool(each & view.highlight) for each in names])
        backward = np.array([mark.backward for mark in shown.marks])
        self._at = layout.x, layout.y
        self._symbol = np.where(backward, _DIAMOND, _CIRCLE) + np.where(pinned, _DOTTED, 0)
        self._opacity = np.where(found, 1.0, _DIMMED)
        self._pinned = pinned
        self._size = np.where(pinned, _PINNED_LARGER, 1.0) * _sizes(shown, *pitch)
        self._edge_width, self._edge_colour = _edges(shown, placement)
        self._first = np.array([mark.members[0] for mark in shown.marks])
        self._hover = hover_texts(shown, view, placement)
        self._label = labels_of(shown, layout, *pitch)

    def trace(self, name: str, marks: tuple[int, ...], colours: dict[str, Any]) -> go.Scatter:
        """These marks with a legend entry, where there is a name."""
        at = np.array(marks)
        labels = [self._label[i] for i in marks]
        fill = colours["color"]
        dot = ink(fill) if isinstance(fill, str) else ink(COST_SCALE[0][1])
        edge_colour = np.where(self._pinned[at], dot, self._edge_colour[at])
        return go.Scatter(
            name=plain(name),
            x=_small(self._at[0][at]),
            y=_small(self._at[1][at]),
            mode="markers+text" if any(labels) else "markers",
            marker={
                "size": _shared(self._size[at].astype(np.float32)),
                "symbol": _shared(_small(self._symbol[at])),
                "opacity": _shared(self._opacity[at].astype(np.float32)),
                "line": {"width": _shared(self._edge_width[at]), "color": _shared(edge_colour)},
                **colours,
            },
            text=labels if any(labels) else None,
            textposition="bottom center",
            textfont={"size": LABEL_SIZE},
            customdata=self._first[at].tolist(),
            hovertext=[self._hover[i] for i in marks],
            hovertemplate="%{hovertext}<extra></extra>",
            showlegend=bool(name),
            unselected={"marker": {"opacity": 0.35}},
        )


def _sizes(shown: MarkedGraph, column_px: float, lane_px: float) -> NDArray[np.float64]:
    """Diameters in pixels: groups by the number of their operators, as far as there is room."""
    most = min(_LARGEST_MARK, 0.72 * min(lane_px, column_px), lane_px - LABEL_PX if has_labels(lane_px) else lane_px)
    counts = np.array([len(mark.members) for mark in shown.marks])
    share = np.sqrt(counts / counts.max())
    return np.asarray(np.maximum(2.5, most * (0.55 + 0.45 * share if counts.max() > 1 else share)).round(1))


def _edges(shown: MarkedGraph, placement: Placement | None) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Width and colour of each mark's outline, which is the second device's if there is one."""
    on = [devices_of(mark, placement) if placement is not None else () for mark in shown.marks]
    colours = np.array([slot_colour(devices[1]) if len(devices) > 1 else QUIET for devices in on])
    several = np.array([len(devices) > 1 for devices in on])
    return np.where(several, 3.0, 0.5).astype(np.float32), colours


def _gradient_colours(gradient: Gradient) -> dict[str, Any]:
    return {
        "color": np.array(gradient.amounts, dtype=np.float32),
        "colorscale": COST_SCALE,
        "cmin": 0,
        "cmax": max(gradient.amounts) or 1.0,
        "colorbar": {
            "title": {"text": plain(gradient.title, 40), "side": "right", "font": {"size": 11}},
            "thickness": 10,
            "outlinewidth": 0,
        },
    }


def _legend_of_shapes(shown: MarkedGraph, view: GraphView) -> list[go.Scatter]:
    """Entries that explain diamonds and dots, where there are any."""
    told = [("backward", _DIAMOND)] * (
        view.colour_by is not ColourBy.DIRECTION and any(mark.backward for mark in shown.marks)
    )
    told += [("pinned", _CIRCLE + _DOTTED)] * bool(view.pinned)
    return [
        go.Scatter(
            name=name,
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": symbol, "color": STATIC, "size": 10, "line": {"width": 1, "color": ink(STATIC)}},
        )
        for name, symbol in told
    ]


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
        dragmode="select",
    )
    return figure


def _small(values: NDArray[np.int64]) -> NDArray[np.int16]:
    """Positions and symbols are small numbers; plotly sends an array's bytes as they are."""
    return values.astype(np.int16)


def _shared(values: NDArray[Any]) -> Any:
    """One value instead of an array of equals."""
    return values[0].item() if (values == values[0]).all() else values
