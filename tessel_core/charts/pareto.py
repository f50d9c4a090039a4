"""Scatter plot of strategies over two objectives, with their Pareto front.

No strategy beats one of the front in both objectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from tessel_core.charts.figure import LEGEND, axis_title, finished, plain
from tessel_core.charts.palette import FAINT, LIMIT, QUIET, SERIES_COLOURS
from tessel_core.strategies.grid import OBJECTIVES, GridResult
from tessel_core.units import show_memory, show_time

_HEIGHT, _TOP, _BOTTOM = 248, 60, 52
_MAX_POINTS = 20_000
_WEBGL_ABOVE = 2_000
"""Number of points above which the plot uses WebGL. With fewer points, a browser draws faster without it."""
_MIN_TICKS, _MAX_TICKS = 2, 8


def _ticks(name: str, known: Sequence[float]) -> dict[str, list[float] | list[str]]:
    """Return the ticks of a logarithmic axis: 1, 2, 5, 10 … or fewer, or the occurring numbers of devices.

    If all values lie between two of these ticks, the least and the largest value are the ticks.
    """
    if name == "devices":
        values = sorted(set(known))
    else:
        low, high = min(known, default=1.0), max(known, default=1.0)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**power for power in powers for step in steps]
            if sum(low <= value <= high for value in values) <= _MAX_TICKS:
                break
        if sum(low <= value <= high for value in values) < _MIN_TICKS:
            values = sorted({low, high})
    return {"tickvals": values, "ticktext": [_SHOWN[name](value) for value in values]}


def _short(value: float) -> str:
    """Return a short form of a number.

    >>> [_short(value) for value in (0.02, 5, 2000, 50000, 1e6)]
    ['0.02', '5', '2k', '50k', '1M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:,.4g}{letter}"
    return f"{value:.4g}"


_SHOWN: Mapping[str, Callable[[float], str]] = {
    "throughput": _short,
    "latency": lambda seconds: show_time(seconds, "s"),
    "peak_memory": lambda amount: show_memory(amount, "B"),
    "devices": _short,
}


def _title(name: str) -> str:
    title = OBJECTIVES[name].title.lower()
    return f"{title} (samples/s)" if name == "throughput" else title


def _column(sweep: GridResult, name: str, numbers: Sequence[int]) -> list[float]:
    found: list[float] = sweep.columns[name][list(numbers)].tolist()
    return found


def pareto_chart(
    sweep: GridResult, x: str = "peak_memory", y: str = "throughput", chosen: int | None = None
) -> go.Figure:
    """Draw one point per configuration over two objectives.

    `customdata` begins with the number of the configuration in the sweep. The Pareto front is that of these two
    objectives. A cross is a simulated configuration that does not fit. If there are too many points, the front and the
    first of the other points are drawn.
    """
    front = list(sweep.front_of((x, y)))
    rest = [i for i in np.flatnonzero(sweep.feasible).tolist() if i not in set(front)]
    too_large = np.flatnonzero(~sweep.feasible & np.isfinite(sweep.columns["latency"])).tolist()
    cross = {"symbol": "x-thin", "size": 7, "line": {"width": 1.2, "color": LIMIT}}
    dot = {"size": 10, "color": SERIES_COLOURS[0], "line": {"width": 1, "color": "white"}}
    layers = (
        ("does not fit", too_large[:_MAX_POINTS], cross),
        ("feasible", rest[:_MAX_POINTS], {"size": 6, "color": QUIET}),
        ("on the front", front, dot),
    )
    traces = [_points(sweep, numbers, (x, y), name, marker) for name, numbers, marker in layers if numbers]
    if chosen is not None and np.isfinite(sweep.columns["latency"][chosen]):
        ring = {"size": 18, "symbol": "circle-open", "color": SERIES_COLOURS[1], "line": {"width": 3}}
        traces.append(_points(sweep, [chosen], (x, y), "shown below", ring))
    drawn = np.flatnonzero(np.isfinite(sweep.columns["latency"])).tolist()
    plain_axis = {"type": "log", "automargin": True, "gridcolor": FAINT, "zeroline": False}
    across, up = ({**plain_axis, **_ticks(axis, _column(sweep, axis, drawn))} for axis in (x, y))
    # The title is horizontal above the axis, where it is easy to read and never covers the ticks.
    title = {
        "text": _title(y), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0, "y": 1, "xanchor": "left",
        "yanchor": "bottom", "xshift": -44, "yshift": 6, "font": {"size": 13},
    }  # fmt: skip
    return finished(
        traces,
        _HEIGHT,
        _TOP,
        _BOTTOM,
        xaxis={**across, "title": axis_title(_title(x), 14)},
        yaxis=up,
        annotations=[title],
        margin={"l": 56},
        legend=LEGEND,
        clickmode="event+select",
    )


def _points(
    sweep: GridResult, numbers: Sequence[int], axes: tuple[str, str], name: str, marker: dict[str, object]
) -> go.Scatter | go.Scattergl:
    kind = go.Scatter if len(numbers) <= _WEBGL_ABOVE else go.Scattergl
    return kind(
        name=name,
        mode="markers",
        x=_column(sweep, axes[0], numbers),
        y=_column(sweep, axes[1], numbers),
        marker=marker,
        customdata=[_hover_parts(sweep, i) for i in numbers],
        hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<br>%{customdata[3]}<extra></extra>",
        unselected={"marker": {"opacity": 1}},
    )


def _hover_parts(sweep: GridResult, i: int) -> tuple[int, str, str, str]:
    each, columns = sweep.configurations[i], sweep.columns
    strategy = each.strategy
    step = show_time(float(columns["latency"][i]) * 1e9, "ns")
    peak = show_memory(float(columns["peak_memory"][i]), "B")
    sizes = sweep.family.describe(each.spec)
    figures = f"{step} per step, {columns['throughput'][i]:,.0f} samples/s, {peak}"
    reason = sweep.outcomes[i].reason
    return i, plain(str(strategy), 60), plain(sizes, 80), plain(figures if not reason else f"{figures}: {reason}", 160)
