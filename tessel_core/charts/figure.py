"""Parts of every figure: transparent ground, the legend above, lanes, and names from files shown literally."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

# plotly takes pandas from sys.modules as it stands there; a search on another thread may just be importing it, and half
# a module breaks the figure.  So have it whole before any figure is drawn.
import pandas  # noqa: F401
import plotly.graph_objects as go

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


def finish(figure: go.Figure, pixels: int, top: int, bottom: int, **layout: Any) -> go.Figure:
    """The figure on transparent ground, `pixels` high between its margins, with `layout` as plotly takes it."""
    figure.update_layout(
        height=top + pixels + bottom,
        margin={"t": top, "b": bottom, "l": 8, "r": 16},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        hovermode="closest",
        dragmode="zoom",  # said here, or Streamlit pans where a click selects
    )
    return figure.update_layout(**layout)


def lane_axis(
    figure: go.Figure, names: Sequence[str], *, row: int | None = None, every: int = 1, size: int = 0, title: str = ""
) -> None:
    """A lane a name, the first on top; in a figure of several pictures, for the one in `row`."""
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5],
        tickvals=list(range(0, len(names), every)),
        ticktext=list(names[::every]),
        tickfont={"size": size or (12 if len(names) <= 6 else 10)},
        title={"text": title, "standoff": 10, "font": {"size": 11}},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        row=row,
        col=None if row is None else 1,
    )


def axis_title(text: str, standoff: int = 6) -> dict[str, Any]:
    """The title of an axis, so many pixels from its numbers."""
    return {"text": text, "standoff": standoff}
