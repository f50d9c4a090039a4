"""Two schedules, one above the other, on one time axis."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.bars import LANE, bar_traces, legend_traces
from tessel_core.charts.gantt import device_axis, finish, phase_traces
from tessel_core.charts.palette import FAINT, QUIET
from tessel_core.charts.text import plain
from tessel_core.model import Schedule
from tessel_core.units import many, show_time, time_scale

_LANE_PIXELS, _HEADING = 33, 36


def compared(upper: Schedule, lower: Schedule | None, titles: tuple[str, str]) -> go.Figure:
    """`upper` over `lower` with one scale of time, so that the shorter one visibly ends sooner.

    Both must be in the same unit of time.  Without a `lower` its place stays free.
    """
    shown = [upper] if lower is None else [upper, lower]
    assert len({schedule.plan.time_unit for schedule in shown}) == 1, "one axis needs one unit"
    longest = max(schedule.makespan for schedule in shown)
    divisor, unit = time_scale(longest, upper.plan.time_unit)
    heights = [len(schedule.plan.devices) * _LANE_PIXELS for schedule in (upper, lower or upper)]
    figure = make_subplots(
        rows=2, shared_xaxes=True, row_heights=heights, vertical_spacing=_HEADING / (sum(heights) + _HEADING)
    )
    for row, schedule in enumerate(shown, 1):
        figure.add_traces(phase_traces(schedule, divisor, legend=row == 1), rows=row, cols=1)
        figure.add_traces(bar_traces(schedule, divisor), rows=row, cols=1)
        _mark_end(figure, row, schedule, divisor)
    figure.add_traces(legend_traces([schedule.plan for schedule in shown]), rows=1, cols=1)
    if lower is None:
        figure.add_trace(_free_place(len(upper.plan.devices), longest / divisor), row=2, col=1)
    for row, title in enumerate(titles, 1):
        device_axis(figure, (upper, lower or upper)[row - 1], row=row)
        _head(figure, row, title)
    figure.update_xaxes(range=[0, 1.1 * longest / divisor])
    figure.update_xaxes(title={"text": f"time ({plain(many(unit))})", "standoff": 6}, row=2, col=1)
    return finish(figure, sum(heights) + _HEADING)


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


def _head(figure: go.Figure, row: int, title: str) -> None:
    figure.add_annotation(
        x=0,
        xref="paper",
        xanchor="left",
        y=1,
        yref=f"y{'' if row == 1 else row} domain",
        yanchor="bottom",
        yshift=3,
        text=plain(title, 120),
        font={"size": 14},
        showarrow=False,
    )


def _mark_end(figure: go.Figure, row: int, schedule: Schedule, divisor: float) -> None:
    end = schedule.makespan / divisor
    axis = "" if row == 1 else str(row)
    figure.add_shape(
        type="line",
        x0=end,
        x1=end,
        xref=f"x{axis}",
        y0=0,
        y1=1,
        yref=f"y{axis} domain",
        line={"width": 2, "color": QUIET},
    )
    figure.add_annotation(
        x=end,
        xref=f"x{axis}",
        xanchor="left",
        xshift=6,
        y=0.5,
        yref=f"y{axis} domain",
        text=f"<b>{show_time(schedule.makespan, schedule.plan.time_unit)}</b>",
        font={"size": 15},
        showarrow=False,
    )
