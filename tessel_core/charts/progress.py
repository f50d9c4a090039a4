"""The progress of a search as curves of its best solution and bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.figure import CLEAR, axis_title, finish, plain
from tessel_core.charts.palette import KIND_COLOURS, LIMIT, SERIES_COLOURS
from tessel_core.control import Progress
from tessel_core.model import MAKESPAN, PERIOD, BlockKind
from tessel_core.units import many, time_scale

_FRAMES, _FRAME_MS = 40, 300
"""Of a curve that plays: pictures at most, and how long each stands."""
_BUTTONS, _NOTE = 36, 20
"""Pixels for a curve's buttons, below its axis, and for the line below them."""
_TOP, _BOTTOM, _ROW, _BETWEEN = 34, 44, 120, 34
_SERIES = (("best so far", KIND_COLOURS[BlockKind.FORWARD], "solid"), ("bound", LIMIT, "dash"))

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "x")
_COLOURS = SERIES_COLOURS[2:]
"""Colours of the marks: the first two are those of the lines."""
_FAR = 2
"""Times the last best: what is above, the first answers of a search, would flatten all steps that follow."""
_LASTING = (MAKESPAN, PERIOD)
"""Phases whose best and bound hold to the end, whatever is searched after."""


def gap_curve(history: Sequence[Progress], time_unit: str, elapsed_s: float) -> go.Figure:
    """Best solution and bound over wall time, in steps; they meet where the solution is proved optimal.

    A row for each phase of the search: each phase has an objective of its own.  Where news say what found them, each
    step has a mark by that name.  First answers of more than twice the last are left out.
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


def played(figure: go.Figure, history: Sequence[Progress], time_unit: str) -> go.Figure:
    """A gap curve that plays: a button shows the best and the bound grow, news by news, as they were found."""
    known = [news for news in history if news.objective is not None or news.bound is not None]
    if len(known) < 2:
        return figure
    shown = sorted({round(i * (len(known) - 1) / (_FRAMES - 1)) for i in range(_FRAMES)})
    titles = list(figure.layout.annotations)
    note = {"showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "y": 0, "xanchor": "left", "yanchor": "top"}
    note |= {"yshift": -_BOTTOM - _BUTTONS, "font": {"size": 12}}
    figure.frames = [
        go.Frame(
            data=[_until(trace, known[i].wall_s) for trace in figure.data],
            layout={"annotations": [*titles, {**note, "text": _standing(known[: i + 1], time_unit)}]},
        )
        for i in shown
    ]
    figure.add_annotation(**note, text=_standing(known, time_unit))
    press = [
        None,
        {"frame": {"duration": _FRAME_MS, "redraw": True}, "transition": {"duration": 0}, "mode": "immediate"},
    ]
    stop = [[None], {"frame": {"duration": 0, "redraw": False}, "mode": "immediate"}]
    buttons = [{"label": title, "method": "animate", "args": args} for title, args in (("▶ Play", press), ("❚❚", stop))]
    look = {"type": "buttons", "direction": "left", "showactive": False, "bgcolor": CLEAR, "font": {"size": 12}}
    place = {"x": 0, "y": 0, "xanchor": "left", "yanchor": "top", "pad": {"t": _BOTTOM}}
    more = _BUTTONS + _NOTE
    figure.update_layout(height=figure.layout.height + more, margin_b=_BOTTOM + more)
    return figure.update_layout(updatemenus=[{**look, **place, "buttons": buttons}])


def _until(trace: go.Scatter, wall_s: float) -> go.Scatter:
    """What is known by then; a line goes on to that moment."""
    points = [(x, y) for x, y in zip(trace.x, trace.y, strict=True) if x <= wall_s]
    if points and "lines" in trace.mode and trace.x[-1] > wall_s:
        points.append((wall_s, points[-1][1]))
    return go.Scatter(x=[x for x, _ in points], y=[y for _, y in points])


def _standing(known: Sequence[Progress], time_unit: str) -> str:
    """The phase, best and bound of the last news."""
    last = known[-1]
    parts = [f"after {last.wall_s:.2f} s", plain(last.phase, 40)] if last.phase else [f"after {last.wall_s:.2f} s"]
    for name, value in (("best", last.objective), ("bound", last.bound)):
        if value is not None:
            parts.append(f"{name} {_amount(value, time_unit)}")
    if last.gap is not None:
        parts.append(f"gap {last.gap:.1%}" if last.gap else "proved")
    return " · ".join(parts)


def _amount(value: Fraction, time_unit: str) -> str:
    divisor, unit = time_scale(float(value), time_unit)
    return f"{float(value) / divisor:.4g} {plain(many(unit))}"


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
        # An empty trace has no place in the legend, so a name stands there with its first mark.
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
    """Without first answers that are far above the last."""
    last = min((news.objective for news in part if news.objective is not None), default=Fraction(0))
    return [news for news in part if news.objective is None or news.objective <= _FAR * last]


def _steps(part: list[Progress]) -> Iterator[tuple[float, Fraction, str]]:
    """Improvements of the best or the bound: time, new value, and what found it."""
    best = bound = None
    for news in part:
        if news.objective is not None and (best is None or news.objective < best):
            best = news.objective
            yield news.wall_s, best, news.by
        if news.bound is not None and (bound is None or news.bound > bound):
            if bound is not None:
                yield news.wall_s, news.bound, news.by
            bound = news.bound
