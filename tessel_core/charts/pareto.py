"""Strategies as points: what each takes against what it gives, and the front that nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from tessel_core.charts.palette import FAINT, LIMIT, QUIET, SERIES_COLOURS
from tessel_core.charts.text import plain
from tessel_core.strategies import OBJECTIVES, Sweep
from tessel_core.units import memory_scale, show_memory, show_time, time_scale

_HEIGHT = 400
_MOST_POINTS = 20_000


@dataclass(frozen=True, slots=True)
class _Axis:
    """A column in a unit that suits its largest number."""

    name: str
    divisor: float
    unit: str

    @classmethod
    def of(cls, sweep: Sweep, name: str) -> _Axis:
        known = sweep.columns[name][np.isfinite(sweep.columns[name])]
        most = float(known.max(initial=1e-12))
        if name == "latency":
            return cls(name, *time_scale(most, "s"))
        if name == "peak_memory":
            return cls(name, *memory_scale(most, "B"))
        return cls(name, 1.0, "samples/s" if name == "throughput" else "")

    @property
    def title(self) -> str:
        unit = f" ({self.unit})" if self.unit else ""
        return f"{OBJECTIVES[self.name].title.lower()}{unit}"

    def of_points(self, sweep: Sweep, numbers: Sequence[int]) -> list[float]:
        return [float(value) for value in sweep.columns[self.name][list(numbers)] / self.divisor]


def pareto_chart(sweep: Sweep, x: str = "peak_memory", y: str = "throughput", chosen: int | None = None) -> go.Figure:
    """A point a configuration, by the names of two objectives; `customdata` begins with its number in the sweep.

    The front is over all objectives, so some of its points are beaten in the two that are shown.  What was simulated
    and does not fit is hollow.  Of more points than a browser likes, the front and the first of the others are shown.
    """
    front = list(sweep.front)
    rest = [i for i in np.flatnonzero(sweep.feasible).tolist() if i not in set(front)]
    too_large = np.flatnonzero(~sweep.feasible & np.isfinite(sweep.columns["latency"])).tolist()
    axes = _Axis.of(sweep, x), _Axis.of(sweep, y)
    figure = go.Figure()
    layers = (
        (
            "does not fit",
            too_large[:_MOST_POINTS],
            {"symbol": "x-thin", "size": 7, "line": {"width": 1.2, "color": LIMIT}},
        ),
        ("feasible", rest[:_MOST_POINTS], {"size": 6, "color": QUIET}),
        ("on the front", front, {"size": 10, "color": SERIES_COLOURS[0], "line": {"width": 1, "color": "white"}}),
    )
    for name, numbers, marker in layers:
        if numbers:
            figure.add_trace(_points(sweep, numbers, axes, name, marker))
    if chosen is not None and np.isfinite(sweep.columns["latency"][chosen]):
        ring = {"size": 18, "symbol": "circle-open", "color": SERIES_COLOURS[1], "line": {"width": 3}}
        figure.add_trace(_points(sweep, [chosen], axes, "shown below", ring))
    for axis, update in zip(axes, (figure.update_xaxes, figure.update_yaxes), strict=True):
        update(title={"text": plain(axis.title, 60), "standoff": 10}, automargin=True, gridcolor=FAINT, zeroline=False)
        update(type="log", dtick=1)
    if x == "devices":
        counts = sorted({each.strategy.devices for each in sweep.configurations})
        figure.update_xaxes(tickvals=counts, ticktext=list(map(str, counts)))
    figure.update_layout(
        height=_HEIGHT,
        margin={"t": 40, "b": 48, "l": 64, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0, "xanchor": "left"},
        hovermode="closest",
        clickmode="event+select",
        dragmode="zoom",
    )
    return figure


def _points(
    sweep: Sweep, numbers: Sequence[int], axes: tuple[_Axis, _Axis], name: str, marker: dict[str, object]
) -> go.Scattergl:
    return go.Scattergl(
        name=name,
        mode="markers",
        x=axes[0].of_points(sweep, numbers),
        y=axes[1].of_points(sweep, numbers),
        marker=marker,
        customdata=[_told(sweep, i) for i in numbers],
        hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]}<br>%{customdata[3]}<extra></extra>",
        unselected={"marker": {"opacity": 1 if name == "on the front" else 0.7}},
    )


def _told(sweep: Sweep, i: int) -> tuple[int, str, str, str]:
    each, columns = sweep.configurations[i], sweep.columns
    strategy = each.strategy
    step = show_time(float(columns["latency"][i]) * 1e9, "ns")
    peak = show_memory(float(columns["peak_memory"][i]), "B")
    sizes = sweep.family.words(each.spec)
    figures = f"{step} a step, {columns['throughput'][i]:,.0f} samples/s, {peak}"
    reason = sweep.outcomes[i].reason
    return i, plain(str(strategy), 60), plain(sizes, 80), plain(figures if not reason else f"{figures}: {reason}", 160)
