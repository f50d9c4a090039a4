"""Where the time of each device goes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tessel_core.charts.palette import PHASE_COLOURS
from tessel_core.charts.text import plain
from tessel_core.model import BubbleBreakdown, MicroBatchPlan
from tessel_core.units import show_time

_HATCHES = {"busy": "", "warmup": "/", "steady": "x", "cooldown": "\\"}


def bubble_chart(bubbles: BubbleBreakdown, plan: MicroBatchPlan) -> go.Figure:
    """Per device, the shares of the makespan: busy, and idle in warmup, steady state and cooldown."""
    names = [plain(device.name) for device in plan.devices]
    figure = go.Figure()
    for name, amounts in bubbles.parts.items():
        shares = [100 * ticks / max(1, bubbles.makespan) for ticks in amounts]
        told = [f"{device}: {show_time(ticks, plan.time_unit)}" for device, ticks in zip(names, amounts, strict=True)]
        figure.add_trace(_bars(name, shares, told))
    return _finish(figure, names, "share of the makespan")


def mean_bubbles(shown: Sequence[tuple[str, BubbleBreakdown]]) -> go.Figure:
    """Per schedule, the same shares averaged over its devices."""
    figure = go.Figure()
    titles = [plain(title, 60) for title, _ in shown]
    for name in _HATCHES:
        shares = [100 * each.shares()[name] for _, each in shown]
        figure.add_trace(_bars(name, shares, titles))
    return _finish(figure, titles, "share of the makespan, mean of all devices")


def _bars(name: str, shares: list[float], told: list[str]) -> go.Bar:
    return go.Bar(
        name=name if name == "busy" else f"{name} bubble",
        orientation="h",
        y=list(range(len(shares))),
        x=shares,
        marker={
            "color": PHASE_COLOURS[name],
            "pattern": {"shape": _HATCHES[name], "size": 6, "solidity": 0.25, "fillmode": "overlay"},
        },
        unselected={"marker": {"opacity": 1}},
        customdata=told,
        hovertemplate="%{customdata}, %{x:.1f}%<extra>%{fullData.name}</extra>",
    )


def _finish(figure: go.Figure, names: Sequence[str], title: str) -> go.Figure:
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=names, fixedrange=True
    )
    figure.update_xaxes(range=[0, 100], ticksuffix="%", title={"text": title, "standoff": 6})
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
