"""Plot the progress of a search: its best solution and its bound over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.figure import axis_title, finish, plain
from tessel_core.charts.palette import KIND_COLOURS, LIMIT, SERIES_COLOURS
from tessel_core.control import Progress
from tessel_core.model import MAKESPAN, PERIOD, BlockKind
from tessel_core.units import many, show_gap, time_scale

_MAX_STEPS = 40
"""Number of moments in the animated replay of a search."""
_ROOM = 0.1
"""Margin above and below the values of a subplot, as a share of their range."""
_TOP, _BOTTOM, _ROW, _BETWEEN = 34, 44, 120, 34
_SERIES = (("best so far", KIND_COLOURS[BlockKind.FORWARD], "solid"), ("bound", LIMIT, "dash"))

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "x")
_COLOURS = SERIES_COLOURS[2:]
"""Colours of the methods' marks. The lines use the first two colours of the series."""
_OUTLIER_FACTOR = 2
"""Multiple of the final best above which earlier answers are left out, because they would flatten the later steps."""
_LASTING = (MAKESPAN, PERIOD)
"""Phases whose best solution and bound stay valid until the end of the search."""


def gap_curve(history: Sequence[Progress], time_unit: str, elapsed_s: float) -> go.Figure:
    """Plot best solution and bound over wall time as steps. They meet if the solution is proved optimal.

    There is one row for each phase of the search, because each phase has its own objective. If reports name the method
    that found an answer, each step has a mark for it. Answers of more than twice the final one are left out.
    """
    phases = list(dict.fromkeys(news.phase for news in history)) or [""]
    end = max([elapsed_s, *(news.wall_s for news in history)])
    names = list(dict.fromkeys(news.by for news in history if news.by))
    pixels = len(phases) * _ROW + (len(phases) - 1) * _BETWEEN
    figure = make_subplots(
        rows=len(phases),
        shared_xaxes=True,
        vertical_spacing=_BETWEEN / pixels if len(phases) > 1 else 0,
        subplot_titles=phases,
    )
    for row, phase in enumerate(phases, 1):
        part = _near([news for news in history if news.phase == phase])
        last = end if row == len(phases) or phase in _LASTING else part[-1].wall_s
        _add_phase(figure, row, part, time_unit, last, names)
    figure.update_annotations(font={"size": 12}, x=0, xanchor="left")
    figure.update_xaxes(range=[0, max(end, 0.1)])
    figure.update_xaxes(title=axis_title("wall time (s)"), row=len(phases), col=1)
    return finish(figure, pixels, _TOP, _BOTTOM)


def played(history: Sequence[Progress]) -> tuple[Progress, ...]:
    """Return the moments of a replay: all reports, or `_MAX_STEPS` of them from the first to the last."""
    steps = min(_MAX_STEPS, len(history))
    return tuple(history[i * (len(history) - 1) // max(1, steps - 1)] for i in range(steps))


def at_moment(figure: go.Figure, wall_s: float = inf) -> go.Figure:
    """Return a gap curve as it was after `wall_s` seconds, with the axes of the whole curve."""
    then = go.Figure(figure)
    for axis in then.select_yaxes():
        on = [trace for trace in figure.data if axis.plotly_name == f"yaxis{(trace.yaxis or 'y')[1:]}"]
        values = [value for trace in on for value in trace.y]
        if values:
            room = _ROOM * ((max(values) - min(values)) or max(values))
            axis.range = [min(values) - room, max(values) + room]
    for trace in then.data:
        points = [(x, y) for x, y in zip(trace.x, trace.y, strict=True) if x <= wall_s]
        if points and "lines" in trace.mode and trace.x[-1] > wall_s:
            points.append((wall_s, points[-1][1]))  # Extend the line to that moment.
        points = points or [(None, None)]  # plotly drops an empty trace from the legend, which changes the height
        trace.x, trace.y = [x for x, _ in points], [y for _, y in points]
    return then


def standing(news: Progress, time_unit: str) -> str:
    """Return the time, phase, best solution and bound of a report as text."""
    parts = [f"after {news.wall_s:.2f} s"]
    if news.phase:
        parts.append(news.phase)
    for name, value in (("best", news.objective), ("bound", news.bound)):
        if value is not None:
            parts.append(f"{name} {_amount(value, time_unit)}")
    if news.gap is not None:
        parts.append(f"gap {show_gap(float(news.gap))}" if news.gap else "proved")
    return " · ".join(parts)


def _amount(value: Fraction, time_unit: str) -> str:
    divisor, unit = time_scale(float(value), time_unit)
    return f"{float(value) / divisor:.4g} {many(unit)}"


def _add_phase(figure: go.Figure, row: int, part: list[Progress], time_unit: str, end: float, names: list[str]) -> None:
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
            mode="lines+markers" if len(known) < 50 and not names else "lines",
            marker={"size": 5},
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
            hovertemplate="%{y:.4g} after %{x:.2f} s<extra>" + name + "</extra>",
            legendgroup=name,
            showlegend=row == 1,
            row=row,
            col=1,
        )
    for slot, name in enumerate(names):
        # plotly drops empty traces from the legend, so the first trace with a mark gets the entry.
        marked = [(wall_s, float(value) / divisor) for wall_s, value, by in _steps(part) if by == name]
        figure.add_scatter(
            name=plain(name),
            x=[wall_s for wall_s, _ in marked],
            y=[value for _, value in marked],
            mode="markers",
            marker={"size": 9, "symbol": _SYMBOLS[slot % len(_SYMBOLS)], "color": _COLOURS[slot % len(_COLOURS)]},
            hovertemplate="%{y:.4g} after %{x:.2f} s<extra>by " + plain(name) + "</extra>",
            cliponaxis=False,
            legendgroup=name,
            showlegend=bool(marked) and not any(trace.x and trace.legendgroup == name for trace in figure.data),
            row=row,
            col=1,
        )
    figure.update_yaxes(title=axis_title(plain(many(unit)), 14), nticks=4, automargin=True, row=row, col=1)


def _near(part: list[Progress]) -> list[Progress]:
    """Return the reports. Answers far above the final best are left out."""
    last = min((news.objective for news in part if news.objective is not None), default=Fraction(0))
    return [news for news in part if news.objective is None or news.objective <= _OUTLIER_FACTOR * last]


def _steps(part: list[Progress]) -> Iterator[tuple[float, Fraction, str]]:
    """Yield the time, new value and method of each improvement of the best solution or the bound."""
    best = bound = None
    for news in part:
        if news.objective is not None and (best is None or news.objective < best):
            best = news.objective
            yield news.wall_s, best, news.by
        if news.bound is not None and (bound is None or news.bound > bound):
            if bound is not None:
                yield news.wall_s, news.bound, news.by
            bound = news.bound
