"""Parts that all figures share: transparent background, legend on top, one lane per device, and escaped names."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, TypeAlias

# Plotly uses pandas if `sys.modules` has it. A search on another thread may just be importing pandas, and plotly fails
# on a half-imported module. So import pandas completely first.
import pandas  # noqa: F401
import plotly.graph_objects as go

Trace: TypeAlias = go.Bar | go.Scatter | go.Scattergl
LANE = 0.86
"""Height of a bar, in lanes."""
CLEAR = "rgba(0, 0, 0, 0)"
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top"}
"""A horizontal legend above the drawing."""
STILL_LEGEND = {**LEGEND, "itemclick": False, "itemdoubleclick": False}


def plain(name: str, longest: int = 18) -> str:
    """Return `name` without markup, shortened to `longest` letters.

    >>> plain("<b>gpu0</b>")
    '&lt;b&gt;gpu0&lt;/b&gt;'
    >>> plain("a-very-long-device-name")
    'a-very-long-devic…'
    """
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return html.escape(short)


def listed(parts: Sequence[str], most: int) -> str:
    """Return at most `most` of the parts, separated by commas."""
    return ", ".join(parts[:most]) + (" …" if len(parts) > most else "")


def finished(traces: Sequence[Trace], pixels: int, top: int, bottom: int, **layout: Any) -> go.Figure:
    """Return a finished figure of these traces. It is four times as fast as `finish`, because plotly updates slowly."""
    return go.Figure(traces, _layout(pixels, top, bottom, layout))


def finish(figure: go.Figure, pixels: int, top: int, bottom: int, **layout: Any) -> go.Figure:
    """Set background, height (`pixels` between the margins `top` and `bottom`) and plotly's `layout` of a figure."""
    return figure.update_layout(**_layout(pixels, top, bottom, layout))


def _layout(pixels: int, top: int, bottom: int, layout: dict[str, Any]) -> dict[str, Any]:
    return {
        "height": top + pixels + bottom,
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hovermode": "closest",
        "dragmode": "zoom",  # explicit, because Streamlit would choose pan for figures with selections
        **layout,
        "margin": {"t": top, "b": bottom, "l": 8, "r": 16, **layout.get("margin", {})},
    }


def lane_axis(figure: go.Figure, names: Sequence[str], *, row: int | None = None, title: str = "") -> None:
    """Set the vertical axis of a subplot to one lane per name, the first name on top."""
    figure.update_yaxes(**lanes(names, title=title), row=row, col=None if row is None else 1)


def lanes(names: Sequence[str], *, every: int = 1, size: int = 0, title: str = "") -> dict[str, Any]:
    """Return a vertical axis with one lane per name, the first name on top. Only every `every`-th name is shown."""
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
    """Return the title of an axis, at a distance of `standoff` pixels from its numbers."""
    return {"text": text, "standoff": standoff}
