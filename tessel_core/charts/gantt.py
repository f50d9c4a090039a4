"""Schedules on a time axis: a lane a device, and what each device holds under it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tessel_core.charts.bars import LANE, MOST_BARS, MOST_LABELS, Window, bar_count, bar_traces, legend_traces
from tessel_core.charts.memory_lanes import lane_labels, memory_traces
from tessel_core.charts.palette import FAINT, LIMIT, QUIET
from tessel_core.charts.raster import raster_trace
from tessel_core.charts.text import plain
from tessel_core.charts.windows import TimeAxis
from tessel_core.model import MemoryProfile, Phase, Schedule
from tessel_core.model.bubbles import repetend_windows
from tessel_core.units import many, show_memory, show_time

_TOP, _BOTTOM = 58, 50
BETWEEN = 12
"""Pixels between pictures of one figure."""
_WIDEST_LABEL = 0.07
"""Shares of the drawn time below which a phase's name would not fit over it."""


def gantt(schedule: Schedule, *, window: Window | None = None) -> go.Figure:
    """The schedule above, memory lanes below, on one time axis.

    `window` limits the picture to some ticks.  Where it holds more blocks than a browser likes, they are drawn as
    shares of columns, see `detail_of`.  A schedule that exceeds a capacity is marked "does not fit".
    """
    axis = TimeAxis.of([schedule])
    window = window or (0, schedule.makespan)
    lanes = len(schedule.plan.devices)
    upper, lower = (lanes * lane_pixels(lanes, most) for most in (34, 26))
    figure = make_subplots(
        rows=2, shared_xaxes=True, row_heights=[upper, lower], vertical_spacing=BETWEEN / (upper + lower + BETWEEN)
    )
    detail = detail_of([schedule], window)
    figure.add_traces(phase_traces(schedule, axis.divisor), rows=1, cols=1)
    figure.add_traces(block_traces(schedule, axis.divisor, window, detail), rows=1, cols=1)
    figure.add_traces(legend_traces([schedule.plan]), rows=1, cols=1)
    figure.add_traces(memory_traces(schedule, axis.divisor, window), rows=2, cols=1)
    labels, memory_unit = lane_labels(schedule)
    device_axis(figure, schedule, row=1)
    device_axis(figure, schedule, row=2, labels=labels, title=f"peak/capacity ({plain(many(memory_unit))})")
    _mark_phases(figure, schedule, axis.divisor, window)
    _mark_misfit(figure, schedule)
    time_axis(figure, axis, window, last_row=2)
    return finish(figure, upper + lower + BETWEEN)


class Detail(Enum):
    """How closely one picture shows what is in its window: as closely as a browser does without delay."""

    SHARES = "what share of each column is spent on what"
    BARS = "a bar for every block"
    LABELLED = "a bar with its label for every block"


SHARES_TOLD = (
    "Too many blocks for a bar each: a column shows what its time is spent on, fainter where devices are idle."
)


def detail_of(schedules: Sequence[Schedule], window: Window) -> Detail:
    """The detail in which one picture shows all of `schedules` between the ends of the window."""
    bars = sum(bar_count(schedule, window) for schedule in schedules)
    return Detail.SHARES if bars > MOST_BARS else Detail.BARS if bars > MOST_LABELS else Detail.LABELLED


def block_traces(
    schedule: Schedule, divisor: float, window: Window, detail: Detail, *, labels: str = "micro-batch"
) -> list[go.Bar | go.Heatmap]:
    """The runs in the window: a bar each, labelled as in `bar_traces`, or the shares of time that they take."""
    if detail is Detail.SHARES:
        return [raster_trace(schedule, divisor, window)]
    return bar_traces(schedule, divisor, window, labels=labels if detail is Detail.LABELLED else "")


def time_axis(figure: go.Figure, axis: TimeAxis, window: Window, *, last_row: int) -> None:
    """All pictures of the figure show the window; the last one has the title."""
    figure.update_xaxes(range=axis.shown(window))
    figure.update_xaxes(title={"text": f"time ({plain(axis.unit)})", "standoff": 6}, row=last_row, col=1)


def finish(figure: go.Figure, pixels: int) -> go.Figure:
    """What all time pictures share: size, margins, legend, transparent ground, bars that stay when one is clicked."""
    figure.update_xaxes(showgrid=True, gridcolor=FAINT, zeroline=False, showline=False)
    figure.update_layout(
        barmode="overlay",
        height=pixels + _TOP + _BOTTOM,
        margin={"t": _TOP, "b": _BOTTOM, "l": 8, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        uniformtext={"minsize": 7, "mode": "hide"},
        hovermode="closest",
        dragmode="zoom",
    )
    return figure


def phase_traces(schedule: Schedule, divisor: float, *, legend: bool = True) -> list[go.Bar]:
    """Hatched ground per lane: warmup up to the device's first block of the repetend, cooldown after its last one."""
    if schedule.repetend is None:
        return []
    windows = repetend_windows(schedule)
    opens = np.array([first for first, _ in windows]) / divisor
    closes = np.array([last for _, last in windows]) / divisor
    cooled = schedule.makespan / divisor - closes
    return [
        _ground("warmup", np.zeros_like(opens), opens, "/", legend),
        _ground("cooldown", closes, cooled, "\\", legend),
    ]


def _ground(name: str, base: NDArray[np.float64], width: NDArray[np.float64], hatch: str, legend: bool) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        base=base,
        x=width,
        y=np.arange(len(base)),
        width=LANE,
        marker={
            "color": FAINT,
            "line": {"width": 0},
            "pattern": {"shape": hatch, "size": 7, "solidity": 0.12, "fgcolor": QUIET, "bgcolor": "rgba(0,0,0,0)"},
        },
        hoverinfo="skip",
        showlegend=legend,
        legendrank=2000,
    )


def lane_pixels(lanes: int, most: int) -> int:
    """Up to about eight lanes fit a small screen together with their memory; more make the picture longer."""
    return max(12, min(most, 5 * most // lanes))


def device_axis(
    figure: go.Figure, schedule: Schedule, *, row: int | None = None, labels: list[str] | None = None, title: str = ""
) -> None:
    """A lane a device, the first on top; in a figure of several pictures, for the one in `row`."""
    names = [plain(device.name) for device in schedule.plan.devices]
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5],
        tickvals=list(range(len(names))),
        ticktext=names if labels is None else labels,
        tickfont={"size": 12 if len(names) <= 6 else 10},
        title={"text": title, "standoff": 10, "font": {"size": 11}},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        row=row,
        col=None if row is None else 1,
    )


def _mark_phases(figure: go.Figure, schedule: Schedule, divisor: float, window: tuple[int, int]) -> None:
    """Names of the phases over the lanes, and a line where each begins on the first device that gets there."""
    steady = schedule.repetend
    if steady is None:
        return
    repeats = schedule.phase == Phase.REPETEND
    opens, closes = int(schedule.start[repeats].min()), int(schedule.end[repeats].max())
    per = f" for {steady.unroll} micro-batches" if steady.unroll > 1 else ""
    every = f"repetend, every {show_time(steady.period, schedule.plan.time_unit)}{per}"
    for name, first, last in (("warmup", 0, opens), (every, opens, closes), ("cooldown", closes, schedule.makespan)):
        left, right = max(first, window[0]), min(last, window[1])
        if right - left < _WIDEST_LABEL * (window[1] - window[0]):
            continue
        middle = (left + right) / 2 / divisor
        figure.add_annotation(
            x=middle, y=1, yref="y domain", yanchor="bottom", text=plain(name, 60), showarrow=False, font={"size": 12}
        )
    for tick in (opens, closes):
        if window[0] < tick < window[1]:
            figure.add_shape(
                type="line",
                x0=tick / divisor,
                x1=tick / divisor,
                y0=0,
                y1=1.04,
                yref="y domain",
                line={"width": 1, "dash": "dot", "color": QUIET},
            )


def _mark_misfit(figure: go.Figure, schedule: Schedule) -> None:
    profile = MemoryProfile.of(schedule)
    over = [d for d, excess in enumerate(profile.excess) if excess]
    if not over:
        return
    worst = max(over, key=lambda d: profile.excess[d])
    device, unit = schedule.plan.devices[worst], schedule.plan.memory_unit
    held, may = show_memory(profile.peaks[worst], unit), show_memory(device.memory_capacity or 0, unit)
    figure.add_annotation(
        x=0.5,
        xref="paper",
        y=1,
        yref="paper",
        yshift=_TOP - 4,
        xanchor="center",
        yanchor="top",
        text=f'<b style="color:{LIMIT}">does not fit</b>: {plain(device.name)} would hold {held} of {may}',
        font={"size": 13},
        showarrow=False,
    )
