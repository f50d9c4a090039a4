"""Bar charts of a simulation: idle time by cause, and the memory of a device at its peak."""

from __future__ import annotations

import plotly.graph_objects as go

from tessel_core.charts.device_bars import cause_bars
from tessel_core.charts.figure import axis_title, finished, plain
from tessel_core.charts.palette import FAINT, HELD
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace, memory_shares
from tessel_core.simulation.attribution import over_micro_batches
from tessel_core.simulation.idle import ProgramIdle
from tessel_core.simulation.trace import device_name
from tessel_core.units import memory_scale, show_memory, show_time

_TOP, _BAR, _BOTTOM = 8, 22, 50
_MAX_BARS = 12


def trace_cause_chart(trace: Trace, idle: ProgramIdle, mesh: DeviceMesh | None = None) -> go.Figure:
    """Plot the share of each device's time that it computes, and the share of each cause of idle time."""
    names = [plain(device_name(device, mesh)) for device in trace.devices]
    return cause_bars(idle.causes, names, lambda ticks: show_time(ticks * idle.tick, "s"))


def peak_chart(trace: Trace, device: int) -> go.Figure:
    """Plot a device's memory at its peak: the largest kinds of values, and one bar for the rest.

    Micro-batches have separate bars if all fit. Raises InputError for a device that the program does not use.
    """
    shares = memory_shares(trace, device)
    divisor, unit = memory_scale(shares[0].bytes if shares else 1, "B")
    shares = shares if len(shares) <= _MAX_BARS else over_micro_batches(shares)
    rest = shares[_MAX_BARS:]
    rows = [(plain(each.title, 60), each.bytes, each.values) for each in shares[:_MAX_BARS]]
    rows += [("everything else", sum(each.bytes for each in rest), sum(each.values for each in rest))] if rest else []
    bars = go.Bar(
        name="at the peak",
        orientation="h",
        x=[amount / divisor for _, amount, _ in rows],
        y=[title for title, _, _ in rows],
        marker={"color": HELD},
        customdata=[(show_memory(amount, "B"), values) for _, amount, values in rows],
        hovertemplate="%{y}: %{customdata[0]} in %{customdata[1]} values<extra></extra>",
    )
    return finished(
        [bars],
        _BAR * max(1, len(rows)),
        _TOP,
        _BOTTOM,
        xaxis={"title": axis_title(f"held at the peak ({unit})"), "gridcolor": FAINT, "zeroline": False},
        yaxis={"autorange": "reversed"},
    )
