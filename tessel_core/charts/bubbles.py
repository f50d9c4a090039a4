"""Where the time of each device goes."""

from __future__ import annotations

import plotly.graph_objects as go

from tessel_core.charts.palette import PHASE_COLOURS
from tessel_core.charts.text import plain
from tessel_core.model import BubbleBreakdown, MicroBatchPlan
from tessel_core.units import show_time

_HATCHES = {"busy": "", "warmup": "/", "steady": "x", "cooldown": "\\"}


def bubble_chart(bubbles: BubbleBreakdown, plan: MicroBatchPlan) -> go.Figure:
    """Per device, the shares of the makespan: busy, and idle in warmup, steady state and cooldown."""
    names = [plain(device.name) for device in plan.devices]
    parts = {"busy": bubbles.busy, "warmup": bubbles.warmup, "steady": bubbles.steady, "cooldown": bubbles.cooldown}
    figure = go.Figure(
        [
            go.Bar(
                name=name if name == "busy" else f"{name} bubble",
                orientation="h",
                y=list(range(len(names))),
                x=[100 * ticks / max(1, bubbles.makespan) for ticks in amounts],
                marker={
                    "color": PHASE_COLOURS[name],
                    "pattern": {"shape": _HATCHES[name], "size": 6, "solidity": 0.25, "fillmode": "overlay"},
                },
                unselected={"marker": {"opacity": 1}},
                customdata=[(device, show_time(t, plan.time_unit)) for device, t in zip(names, amounts, strict=True)],
                hovertemplate="%{customdata[0]}: %{x:.1f}% (%{customdata[1]})<extra>%{fullData.name}</extra>",
            )
            for name, amounts in parts.items()
        ]
    )
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=names, fixedrange=True
    )
    figure.update_xaxes(range=[0, 100], ticksuffix="%", title={"text": "share of the makespan", "standoff": 6})
    figure.update_layout(
        barmode="stack",
        bargap=0.25,
        height=90 + len(names) * max(14, min(30, 480 // len(names))),
        margin={"t": 34, "b": 44, "l": 8, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0, "traceorder": "normal"},
    )
    return figure
