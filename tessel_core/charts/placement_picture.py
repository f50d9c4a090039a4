"""A plan as a small space-time picture: one micro-batch alone, as early as its dependencies allow."""

from __future__ import annotations

import plotly.graph_objects as go

from tessel_core.charts.bars import bar_traces, legend_traces
from tessel_core.charts.gantt import device_axis, drawn_window, finish
from tessel_core.charts.text import plain
from tessel_core.model import Schedule
from tessel_core.units import many, time_scale


def placement_picture(alone: Schedule) -> go.Figure:
    """`alone` is a schedule of one micro-batch; its blocks carry their names."""
    divisor, unit = time_scale(alone.makespan, alone.plan.time_unit)
    window = drawn_window(alone)
    figure = go.Figure(bar_traces(alone, divisor, labels="block", window=window))
    figure.add_traces(legend_traces([alone.plan]))
    device_axis(figure, alone)
    figure.update_xaxes(range=[0, window[1] / divisor], title={"text": f"time ({plain(many(unit))})", "standoff": 6})
    lanes = len(alone.plan.devices)
    finish(figure, lanes * max(12, min(64, 300 // lanes)))
    figure.update_layout(margin={"t": 30})
    return figure
