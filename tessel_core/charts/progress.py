"""How a search closed in on its answer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import plotly.graph_objects as go

from tessel_core.charts.palette import KIND_COLOURS, LIMIT
from tessel_core.charts.text import plain
from tessel_core.control import Progress
from tessel_core.model import BlockKind
from tessel_core.units import many, time_scale


def gap_curve(history: Sequence[Progress], time_unit: str, elapsed_s: float) -> go.Figure:
    """Best solution and bound over wall time, in steps; they meet where the solution is proved optimal."""
    amounts = [amount for news in history for amount in (news.objective, news.bound) if amount is not None]
    divisor, unit = time_scale(float(max(amounts, default=Fraction(1))), time_unit)
    end = max([elapsed_s, *(news.wall_s for news in history)])
    figure = go.Figure()
    for name, colour, dash, points in (
        ("best so far", KIND_COLOURS[BlockKind.FORWARD], "solid", [(news.wall_s, news.objective) for news in history]),
        ("bound", LIMIT, "dash", [(news.wall_s, news.bound) for news in history]),
    ):
        known = [(wall_s, float(amount) / divisor) for wall_s, amount in points if amount is not None]
        if known:
            known.append((end, known[-1][1]))
        figure.add_scatter(
            name=name,
            x=[wall_s for wall_s, _ in known],
            y=[amount for _, amount in known],
            mode="lines",
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            hovertemplate="%{y:.4g} after %{x:.2f} s<extra>" + name + "</extra>",
        )
    figure.update_xaxes(range=[0, max(end, 0.1)], title={"text": "wall time (s)", "standoff": 6})
    figure.update_yaxes(title={"text": plain(many(unit)), "standoff": 6}, rangemode="tozero")
    figure.update_layout(
        height=210,
        margin={"t": 30, "b": 44, "l": 8, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0},
    )
    return figure
