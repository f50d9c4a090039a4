"""A plan as a small space-time picture: one micro-batch alone, as early as its dependencies allow."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tessel_core.charts.bars import legend_traces
from tessel_core.charts.gantt import block_traces, detail_of, device_axis, finish, time_axis
from tessel_core.charts.windows import TimeAxis
from tessel_core.model import Schedule


def placement_picture(alone: Schedule) -> go.Figure:
    """`alone` is a schedule of one micro-batch; its blocks carry their names."""
    axis, window = TimeAxis.of([alone]), (0, alone.makespan)
    figure = make_subplots(rows=1)
    detail = detail_of([alone], window)
    figure.add_traces(block_traces(alone, axis.divisor, window, detail, labels="block"))
    figure.add_traces(legend_traces([alone.plan]))
    device_axis(figure, alone)
    time_axis(figure, axis, window, last_row=1)
    lanes = len(alone.plan.devices)
    finish(figure, lanes * max(12, min(64, 300 // lanes)))
    figure.update_layout(margin={"t": 30})
    return figure
