"""Draw the marks as scatter points with hover texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.figure import plain
from tessel_core.charts.graph.colouring import Gradient, colours_of, devices_of
from tessel_core.charts.graph.groups import ColourBy, GraphView, MarkedGraph
from tessel_core.charts.graph.labels import LABEL_PX, LABEL_SIZE, has_labels, hover_texts, labels_of
from tessel_core.charts.graph.layers import IntArray
from tessel_core.charts.graph.layout import Layout
from tessel_core.charts.palette import COST_SCALE, STATIC, ink, slot_colour
from tessel_core.model import Placement

_LARGEST, _SMALLEST = 24.0, 3.0
"""Largest and smallest diameter of a mark, in pixels."""
_CIRCLE, _DIAMOND, _DOTTED = 0, 2, 200
"""Plotly's symbol numbers. A dotted symbol has 200 added."""
_DIMMED, _PINNED_LARGER = 0.12, 1.35


def mark_traces(
    shown: MarkedGraph, layout: Layout, view: GraphView, placement: Placement | None, pitch: tuple[float, float]
) -> list[go.Scatter]:
    """Return one trace per colour, or one trace for all marks that are coloured by an amount.

    `pitch` is the size of a column and of a lane in pixels.
    """
    looks = _Looks.of(shown, layout, view, placement, pitch)
    tints, gradient = colours_of(shown, view, placement)
    traces = [looks.trace(tint.name, tint.marks, {"color": tint.colour}, ink(tint.colour)) for tint in tints]
    if gradient is not None:
        traces.append(looks.trace("", gradient.marks, _gradient_colours(gradient), ink(COST_SCALE[0][1])))
    return [*traces, *_legend_of_shapes(shown, view)]


@dataclass(frozen=True)
class _Looks:
    """Attributes of each mark that do not depend on its colour."""

    x: IntArray
    y: IntArray
    pinned: NDArray[np.bool_]
    symbol: IntArray
    opacity: NDArray[np.float32]
    size: NDArray[np.uint8]
    edge_width: NDArray[np.float32]
    edge_colour: NDArray[np.str_]
    operator: IntArray
    """Index of the first operator."""
    hover: list[str]
    label: list[str]

    @classmethod
    def of(
        cls,
        shown: MarkedGraph,
        layout: Layout,
        view: GraphView,
        placement: Placement | None,
        pitch: tuple[float, float],
    ) -> _Looks:
        """Compute the attributes for a layout. `pitch` is the size of a column and of a lane in pixels."""
        names = [{shown.graph.operators[i].name for i in mark.members} for mark in shown.marks]
        pinned = np.array([bool(each & view.pinned) for each in names])
        found = np.array([not view.highlight or bool(each & view.highlight) for each in names])
        backward = np.array([mark.backward for mark in shown.marks])
        on = [devices_of(mark, placement) if placement is not None else () for mark in shown.marks]
        return cls(
            x=layout.x,
            y=layout.y,
            pinned=pinned,
            symbol=np.where(backward, _DIAMOND, _CIRCLE) + np.where(pinned, _DOTTED, 0),
            opacity=np.where(found, 1.0, _DIMMED).astype(np.float32),
            size=(np.where(pinned, _PINNED_LARGER, 1.0) * _sizes(shown, *pitch)).round().astype(np.uint8),
            edge_width=np.where([len(devices) > 1 for devices in on], 3.0, 0.5).astype(np.float32),
            edge_colour=np.array([slot_colour(devices[1]) if len(devices) > 1 else STATIC for devices in on]),
            operator=np.array([mark.members[0] for mark in shown.marks]),
            hover=hover_texts(shown, view, placement),
            label=labels_of(shown, layout, *pitch),
        )

    def trace(self, name: str, marks: tuple[int, ...], colours: dict[str, Any], dot: str) -> go.Scatter:
        """Return a trace of these marks.

        It has a legend entry if it has a name. `dot` is the colour of the dots of pinned operators.
        """
        at = np.array(marks)
        labels = [self.label[i] for i in marks]
        edge_colour = np.where(self.pinned[at], dot, self.edge_colour[at])
        return go.Scatter(
            name=plain(name),
            x=self.x[at].astype(np.int16),
            y=self.y[at].astype(np.int16),
            mode="markers+text" if any(labels) else "markers",
            marker={
                "size": _shared(self.size[at]),
                "symbol": _shared(self.symbol[at].astype(np.uint8)),
                "opacity": _shared(self.opacity[at]),
                "line": {"width": _shared(self.edge_width[at]), **_outline_colours(edge_colour)},
                **colours,
            },
            text=labels if any(labels) else None,
            textposition="bottom center",
            textfont={"size": LABEL_SIZE},
            customdata=self.operator[at].tolist(),
            hovertext=[self.hover[i] for i in marks],
            hovertemplate="%{hovertext}<extra></extra>",
            showlegend=bool(name),
            unselected={"marker": {"opacity": 0.35}},
        )


def _sizes(shown: MarkedGraph, column_px: float, lane_px: float) -> NDArray[np.float64]:
    """Return the diameters of marks in pixels. Groups with more operators are larger, if space allows."""
    room = lane_px - LABEL_PX if has_labels(lane_px) else lane_px
    most = min(_LARGEST, 0.72 * min(lane_px, column_px), room)
    counts = np.array([len(mark.members) for mark in shown.marks])
    share = 0.55 + 0.45 * np.sqrt(counts / counts.max()) if counts.max() > 1 else np.ones(len(counts))
    return np.asarray(np.maximum(_SMALLEST, most * share))


def _outline_colours(colours: NDArray[np.str_]) -> dict[str, Any]:
    """Encode the colours as numbers of a stepped colour scale. This takes one byte per mark."""
    names, number = np.unique(colours, return_inverse=True)
    if len(names) == 1:
        return {"color": str(names[0])}
    steps = [((i + side) / len(names), str(name)) for i, name in enumerate(names) for side in (0, 1)]
    return {"color": number.astype(np.uint8), "colorscale": steps, "cmin": -0.5, "cmax": len(names) - 0.5}


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
    """Return legend entries for diamonds (backward) and dots (pinned), unless colours already show the direction."""
    diamonds = view.colour_by is not ColourBy.DIRECTION and any(mark.backward for mark in shown.marks)
    entries = [("backward", _DIAMOND)] * diamonds + [("pinned", _CIRCLE + _DOTTED)] * bool(view.pinned)
    return [
        go.Scatter(
            name=name,
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": symbol, "color": STATIC, "size": 10, "line": {"width": 1, "color": ink(STATIC)}},
        )
        for name, symbol in entries
    ]


def _shared(values: NDArray[Any]) -> Any:
    """Return a single value if all values are equal, so that fewer bytes are sent."""
    return values[0].item() if (values == values[0]).all() else values
