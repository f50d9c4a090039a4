"""Draw several schedules below each other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.bars import Window, legend_traces
from tessel_core.charts.figure import LANE, lane_axis, plain
from tessel_core.charts.gantt import (
    Detail,
    TimeAxis,
    block_traces,
    detail_of,
    device_names,
    finish_timeline,
    phase_traces,
    time_axis,
)
from tessel_core.charts.memory_lanes import lane_labels, memory_traces
from tessel_core.charts.palette import FAINT, MISFIT, QUIET
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import show_time

_HEADING, _MEMORY_GAP = 36, 8
_LANES_PIXELS = {True: (100, 14, 24), False: (132, 14, 33)}
"""Heights in pixels with and without memory lanes: all lanes of a schedule together, smallest lane and largest lane."""
_ROOM_FOR_END = 0.1
"""Share of the window's width that is added on the right for the labels of makespans."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One schedule of a comparison with its title. Without a schedule, its lanes are drawn empty."""

    title: str
    schedule: Schedule | None


@dataclass(frozen=True, slots=True)
class _Band:
    """Height of a subplot and the gap above it, in pixels."""

    pixels: int
    gap: int


def compared(shown: Sequence[Shown], *, window: Window | None = None, memory: bool = False) -> go.Figure:
    """Return a figure of the schedules with one time axis.

    Zooming the axis zooms all schedules. All must have the same time unit, and there must be at least one. With
    `memory`, memory lanes are drawn below each schedule.
    """
    schedules = [each.schedule for each in shown if each.schedule is not None]
    assert len({schedule.plan.time_unit for schedule in schedules}) == 1, "one axis needs one unit"
    axis = TimeAxis.of(schedules)
    window = window or (0, axis.longest)
    bands = _bands([each.schedule or schedules[0] for each in shown], memory)
    figure = make_subplots(rows=len(bands), shared_xaxes=True)
    detail = detail_of(schedules, window)
    for i, each in enumerate(shown):
        row = i * (1 + memory) + 1
        _add(figure, row, each, schedules[0], axis, window, detail=detail, legend=each.schedule is schedules[0])
        if memory and each.schedule is not None:
            _add_memory(figure, row + 1, each.schedule, axis, window, legend=each.schedule is schedules[0])
    figure.add_traces(legend_traces([schedule.plan for schedule in schedules]), rows=1, cols=1)
    # Room for the label of the makespan behind the last end.
    room = round(_ROOM_FOR_END * (window[1] - window[0])) if window[1] == axis.longest else 0
    time_axis(figure, axis.shown((window[0], window[1] + room)), axis.unit, last_row=len(bands))
    _place(figure, bands)
    return finish_timeline(figure, sum(band.pixels + band.gap for band in bands))


def _bands(schedules: Sequence[Schedule], memory: bool) -> list[_Band]:
    share, least, most = _LANES_PIXELS[memory]
    bands = []
    for i, schedule in enumerate(schedules):
        lanes = len(schedule.plan.devices)
        pixels = lanes * max(least, min(most, share // lanes))
        bands.append(_Band(pixels, _HEADING if i else 0))
        if memory:
            bands.append(_Band(pixels * 6 // 7, _MEMORY_GAP))
    return bands


def _place(figure: go.Figure, bands: Sequence[_Band]) -> None:
    """Set the vertical position of each subplot."""
    total = sum(band.pixels + band.gap for band in bands)
    top = total
    for row, band in enumerate(bands, 1):
        top -= band.gap
        figure.update_yaxes(domain=[max(0, (top - band.pixels) / total), top / total], row=row, col=1)
        top -= band.pixels


def _add(
    figure: go.Figure,
    row: int,
    shown: Shown,
    other: Schedule,
    axis: TimeAxis,
    window: Window,
    *,
    detail: Detail,
    legend: bool,
) -> None:
    schedule = shown.schedule
    if schedule is None:
        lanes = len(other.plan.devices)
        figure.add_trace(_free_place(lanes, axis.shown((0, axis.longest))[1]), row=row, col=1)
    else:
        figure.add_traces(phase_traces(schedule, axis.divisor, legend=legend), rows=row, cols=1)
        figure.add_traces(block_traces(schedule, axis.divisor, window, detail), rows=row, cols=1)
        _mark_end(figure, row, schedule, axis.divisor)
    lane_axis(figure, device_names((schedule or other).plan), row=row)
    _head(figure, row, shown)


def _add_memory(figure: go.Figure, row: int, schedule: Schedule, axis: TimeAxis, window: Window, legend: bool) -> None:
    for trace in memory_traces(schedule, axis.divisor, window):
        trace.showlegend = trace.showlegend and legend
        figure.add_trace(trace, row=row, col=1)
    lane_axis(figure, lane_labels(schedule)[0], row=row)


def _free_place(lanes: int, width: float) -> go.Bar:
    return go.Bar(
        orientation="h",
        x=[width] * lanes,
        y=list(range(lanes)),
        width=LANE,
        marker={"color": FAINT, "line": {"width": 0}},
        hoverinfo="skip",
        showlegend=False,
    )


def _head(figure: go.Figure, row: int, shown: Shown) -> None:
    misfit = shown.schedule is not None and any(MemoryProfile.of(shown.schedule).excess)
    figure.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=1,
        yref=f"y{'' if row == 1 else row} domain",
        yanchor="bottom",
        yshift=3,
        text=plain(shown.title, 120) + (f' · <b style="color:{MISFIT}">does not fit</b>' if misfit else ""),
        font={"size": 14},
        showarrow=False,
    )


def _mark_end(figure: go.Figure, row: int, schedule: Schedule, divisor: float) -> None:
    end = schedule.makespan / divisor
    axis = "" if row == 1 else str(row)
    at = {"xref": f"x{axis}", "yref": f"y{axis} domain"}
    figure.add_shape(type="line", x0=end, x1=end, y0=0, y1=1, line={"width": 2, "color": QUIET}, **at)
    figure.add_annotation(
        x=end,
        xanchor="left",
        xshift=6,
        y=0.5,
        **at,
        text=f"<b>{show_time(schedule.makespan, schedule.plan.time_unit)}</b>",
        font={"size": 15},
        showarrow=False,
    )
