"""Parts of every figure: transparent ground, the legend above, lanes, and names from files shown literally."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, TypeAlias

# plotly takes pandas from sys.modules as it stands there; a search on another thread may just be importing it, and half
# a module breaks the figure.  So have it whole before any figure is drawn.
import pandas  # noqa: F401
import plotly.graph_objects as go

Trace: TypeAlias = go.Bar | go.Scatter | go.Scattergl
LANE = 0.86
"""Height of a bar, in lanes."""
CLEAR = "rgba(0, 0, 0, 0)"
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top"}
"""Above the drawing."""
STILL_LEGEND = {**LEGEND, "itemclick": False, "itemdoubleclick": False}


def plain(name: str, longest: int = 18) -> str:
    """`name` without markup and not longer than fits an axis.

    >>> plain("<b>gpu0</b>")
    '&lt;b&gt;gpu0&lt;/b&gt;'
    >>> plain("a-very-long-device-name")
    'a-very-long-devic…'
    """
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return html.escape(short)


def listed(parts: Sequence[str], most: int) -> str:
    """At most so many of the parts, with commas between."""
    return ", ".join(parts[:most]) + (" …" if len(parts) > most else "")


def finished(traces: Sequence[Trace], pixels: int, top: int, bottom: int, **layout: Any) -> go.Figure:
    """The same as `finish` of a figure of these traces, in a quarter of the time: plotly is slow to update a layout."""
    return go.Figure(traces, _on_ground(pixels, top, bottom, layout))


def finish(figure: go.Figure, pixels: int, top: int, bottom: int, **layout: Any) -> go.Figure:
    """The figure on transparent ground, `pixels` high between its margins, with `layout` as plotly takes it."""
    return figure.update_layout(**_on_ground(pixels, top, bottom, layout))


def _on_ground(pixels: int, top: int, bottom: int, layout: dict[str, Any]) -> dict[str, Any]:
    return {
        "height": top + pixels + bottom,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hovermode": "closest",
        "dragmode": "zoom",  # said here, or Streamlit pans where a click selects
        **layout,
        "margin": {"t": top, "b": bottom, "l": 8, "r": 16, **layout.get("margin", {})},
    }


def lane_axis(figure: go.Figure, names: Sequence[str], *, row: int | None = None, title: str = "") -> None:
    """A lane a name, the first on top; in a figure of several pictures, for the one in `row`."""
    figure.update_yaxes(**lanes(names, title=title), row=row, col=None if row is None else 1)


def lanes(names: Sequence[str], *, every: int = 1, size: int = 0, title: str = "") -> dict[str, Any]:
    """The vertical axis of a lane a name, the first on top; of many, every so many are named."""
    return {
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(0, len(names), every)),
        "ticktext": list(names[::every]),
        "tickfont": {"size": size or (12 if len(names) <= 6 else 10)},
        "title": {"text": title, "standoff": 10, "font": {"size": 11}},
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def axis_title(text: str, standoff: int = 6) -> dict[str, Any]:
    """The title of an axis, so many pixels from its numbers."""
    return {"text": text, "standoff": standoff}
