"""How a search closed in on its answer."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.palette import KIND_COLOURS, LIMIT
from tessel_core.charts.text import plain
from tessel_core.control import Progress
from tessel_core.model import BlockKind
from tessel_core.units import many, time_scale

_TOP, _BOTTOM, _ROW, _BETWEEN = 34, 44, 120, 34
_SERIES = (("best so far", KIND_COLOURS[BlockKind.FORWARD], "solid"), ("bound", LIMIT, "dash"))


def gap_curve(history: Sequence[Progress], time_unit: str, elapsed_s: float) -> go.Figure:
    """Best solution and bound over wall time, in steps; they meet where the solution is proved optimal.

    A row for each phase of the search: each phase has an objective of its own.
    """
    phases = list(dict.fromkeys(news.phase for news in history)) or [""]
    end = max([elapsed_s, *(news.wall_s for news in history)])
    pixels = len(phases) * _ROW + (len(phases) - 1) * _BETWEEN
    figure = make_subplots(
        rows=len(phases),
        shared_xaxes=True,
        vertical_spacing=_BETWEEN / pixels if len(phases) > 1 else 0,
        subplot_titles=phases,
    )
    for row, phase in enumerate(phases, 1):
        part = [news for news in history if news.phase == phase]
        _add_phase(figure, row, part, time_unit, end if row == len(phases) else part[-1].wall_s)
    figure.update_annotations(font={"size": 12}, x=0, xanchor="left")
    figure.update_xaxes(range=[0, max(end, 0.1)])
    figure.update_xaxes(title={"text": "wall time (s)", "standoff": 6}, row=len(phases), col=1)
    figure.update_layout(
        height=_TOP + pixels + _BOTTOM,
        margin={"t": _TOP, "b": _BOTTOM, "l": 8, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 1, "xanchor": "right"},
    )
    return figure


def _add_phase(figure: go.Figure, row: int, part: list[Progress], time_unit: str, end: float) -> None:
    amounts = [float(amount) for news in part for amount in (news.objective, news.bound) if amount is not None]
    divisor, unit = time_scale(max(amounts, default=1.0), time_unit)
    for name, colour, dash in _SERIES:
        values = [(news.wall_s, news.bound if name == "bound" else news.objective) for news in part]
        known = [(wall_s, float(value) / divisor) for wall_s, value in values if value is not None]
        if known:
            known.append((end, known[-1][1]))
        figure.add_scatter(
            name=name,
            x=[wall_s for wall_s, _ in known],
            y=[value for _, value in known],
            mode="lines+markers" if len(known) < 50 else "lines",
            marker={"size": 5},
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            hovertemplate="%{y:.4g} after %{x:.2f} s<extra>" + name + "</extra>",
            legendgroup=name,
            showlegend=row == 1,
            row=row,
            col=1,
        )
    figure.update_yaxes(title={"text": plain(many(unit)), "standoff": 6}, nticks=4, row=row, col=1)
