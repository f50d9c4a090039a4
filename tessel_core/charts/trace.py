"""A simulation on a time axis: computing and communication of each device, and what each device holds."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.bars import MOST_BARS, MOST_LABELS, legend_bar
from tessel_core.charts.figure import CLEAR, axis_title, lane_axis
from tessel_core.charts.gantt import BETWEEN, finish_timeline, lane_pixels, time_axis, two_pictures
from tessel_core.charts.trace_lanes import COMMUNICATION_MARK, Lanes, Seconds, event_bars, event_shares, kinds_in, marks
from tessel_core.charts.trace_memory import lane_ticks, lane_titles, lane_traces, share_bars
from tessel_core.errors import InputError
from tessel_core.model import BlockKind, DeviceMesh
from tessel_core.simulation import Trace, kind_of, memory_shares
from tessel_core.units import memory_scale, time_scale

_BAR_PIXELS = 22
_UPDATE = "update"
"""The phase of the optimizer and of what sums gradients for it."""
_TITLE = 12
"""Pixels between the numbers of an axis and its title."""


def trace_chart(
    trace: Trace,
    mesh: DeviceMesh | None = None,
    window: Seconds | None = None,
    marked: int | None = None,
    *,
    by_mesh: bool = True,
) -> go.Figure:
    """Lanes of computing and communication above, live memory below, on one time axis.

    `mesh` gives devices their names and events their formulas, as `MeshCosts` counts them.  `window` (seconds) limits
    the picture; more events than a browser likes are drawn as shares of columns, as in `gantt`.  The events of
    operation `marked` are framed.  Not `by_mesh`: other costs than the mesh's made the times, so none has a formula.
    """
    window, lanes = _window(trace, window), Lanes.of(trace, mesh)
    divisor, unit = time_scale(max(trace.latency, 1e-12), "s")
    upper, lower = _pixels(len(lanes.names), 28), _pixels(len(trace.devices), 26)
    figure = two_pictures(upper, lower)
    events = lanes.within(trace, window)
    if len(events) > MOST_BARS:
        figure.add_trace(event_shares(trace, lanes, events, divisor, window), row=1, col=1)
    else:
        priced = mesh if by_mesh else None
        bars = event_bars(trace, lanes, events, divisor, priced, labels=len(events) <= MOST_LABELS)
        figure.add_traces(bars, rows=1, cols=1)
    if marked is not None:
        figure.add_trace(marks(trace, lanes, marked, divisor), row=1, col=1)
    figure.add_traces([legend_bar(kind, _called(trace, kind)) for kind in kinds_in(lanes)], rows=1, cols=1)
    if any(name.endswith(COMMUNICATION_MARK) for name in lanes.names):
        name = f"{COMMUNICATION_MARK} communication"
        figure.add_trace(go.Bar(name=name, x=[None], y=[0], marker={"color": CLEAR}), row=1, col=1)
    lane_axis(figure, lanes.names, row=1)
    _add_memory(figure, trace, trace.devices, divisor, window, mesh, row=2)
    _time_axis(figure, window, divisor, unit, row=2)
    return finish_timeline(figure, upper + lower + BETWEEN)


def _called(trace: Trace, kind: BlockKind) -> str:
    """In the legend; where all that is neither forward nor backward changes weights, it is called so."""
    rest = {op.tag.phase for op in trace.program.ops if kind_of(op) is BlockKind.OTHER}
    return _UPDATE if kind is BlockKind.OTHER and rest == {_UPDATE} else str(kind)


def memory_chart(
    trace: Trace, device: int | None = None, mesh: DeviceMesh | None = None, window: Seconds | None = None
) -> go.Figure:
    """What every device holds over time; of one device, also what holds its memory at the peak.

    Raises
    ------
    InputError
        For a device that the program does not use.
    """
    window = _window(trace, window)
    divisor, unit = time_scale(max(trace.latency, 1e-12), "s")
    if device is None:
        figure, pixels = make_subplots(rows=1), _pixels(len(trace.devices), 40)
        _add_memory(figure, trace, trace.devices, divisor, window, mesh, row=1)
        _time_axis(figure, window, divisor, unit, row=1)
        return finish_timeline(figure, pixels)
    shares = memory_shares(trace, device)
    scale, memory_unit = memory_scale(shares[0].bytes if shares else 1, "B")
    bars = share_bars(shares, scale)
    upper, lower = 160, _BAR_PIXELS * max(1, len(bars.y)) + 30
    gap = 60 / (upper + lower + 60)
    figure = make_subplots(rows=2, row_heights=[upper, lower], vertical_spacing=gap)
    _add_memory(figure, trace, [device], divisor, window, mesh, row=1)
    figure.update_yaxes(**lane_ticks(trace, device, mesh), tickfont={"size": 11}, showgrid=True, row=1, col=1)
    _time_axis(figure, window, divisor, unit, row=1)
    figure.add_trace(bars, row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=2, col=1)
    figure.update_xaxes(title=axis_title(f"held at the peak ({memory_unit})", _TITLE), row=2, col=1)
    return finish_timeline(figure, upper + lower + 60)


def _add_memory(
    figure: go.Figure,
    trace: Trace,
    devices: Sequence[int],
    divisor: float,
    window: Seconds,
    mesh: DeviceMesh | None,
    *,
    row: int,
) -> None:
    figure.add_traces(lane_traces(trace, devices, divisor, window, mesh), rows=row, cols=1)
    lane_axis(figure, lane_titles(trace, devices, mesh), row=row)


def _time_axis(figure: go.Figure, window: Seconds, divisor: float, unit: str, *, row: int) -> None:
    time_axis(figure, (window[0] / divisor, window[1] / divisor), unit, last_row=row, standoff=_TITLE)


def _pixels(lanes: int, most: int) -> int:
    """Room for one lane where a program, which may use the host only, has none."""
    return max(1, lanes) * lane_pixels(max(1, lanes), most)


def percents(trace: Trace, first: float, last: float) -> Seconds:
    """The window from one percentage of the trace's time to another."""
    whole = max(trace.latency, 1e-12)
    return whole * first / 100, whole * last / 100


def _window(trace: Trace, window: Seconds | None) -> Seconds:
    found = window or (0.0, max(trace.latency, 1e-12))
    if not found[0] < found[1]:
        raise InputError("window", f"must end after it begins, got {found[0]:g} s to {found[1]:g} s")
    return found
