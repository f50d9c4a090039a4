"""What a placement asks of each device: time against the bound, memory against the capacity."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tessel_core.charts.palette import FAINT, HELD, LIMIT, SERIES_COLOURS, TRANSFER
from tessel_core.charts.text import plain
from tessel_core.model import PlacementDevice, PlacementLoads
from tessel_core.units import many, memory_scale, show_memory, show_time, time_scale

_TOP, _BOTTOM, _BARS, _THICKEST, _THINNEST = 34, 44, 480, 30, 9
_LINE = {"color": LIMIT, "width": 2}


def load_bars(
    loads: PlacementLoads, devices: Sequence[PlacementDevice], time_unit: str, bound: float | None = None
) -> go.Figure:
    """Per device its operators' time and its transfers, and the line that the busiest device cannot get below.

    `bound` is in `time_unit`; the placement is proved optimal where the longest bar ends at it.
    """
    divisor, unit = time_scale(max(loads.largest, bound or 0.0), time_unit)
    figure = go.Figure()
    parts = (("work", SERIES_COLOURS[0], loads.work), ("communication", TRANSFER, loads.communication))
    for name, colour, amounts in parts:
        told = [
            f"{plain(device.name)}: {show_time(amount, time_unit)} of {show_time(load, time_unit)}"
            for device, amount, load in zip(devices, amounts, loads.load, strict=True)
        ]
        figure.add_trace(_bars(name, colour, [amount / divisor for amount in amounts], told))
    if bound is not None:
        at = bound / divisor
        label = f"bound {plain(show_time(bound, time_unit))}"
        figure.add_trace(_marks(label, [at, at], [-0.5, len(devices) - 0.5], "lines"))
    return _finish(figure, devices, f"time per sample ({plain(many(unit))})")


def memory_bars(loads: PlacementLoads, devices: Sequence[PlacementDevice]) -> go.Figure:
    """Per device the bytes that it holds, what exceeds its capacity, and its capacity if it has one."""
    limits = [device.memory_capacity for device in devices]
    divisor, unit = memory_scale(max(*loads.memory, *(limit or 0.0 for limit in limits), 1.0), "B")
    within = [held if limit is None else min(held, limit) for held, limit in zip(loads.memory, limits, strict=True)]
    over = [held - inside for held, inside in zip(loads.memory, within, strict=True)]
    told = [_memory_told(device, held) for device, held in zip(devices, loads.memory, strict=True)]
    figure = go.Figure(_bars("held", HELD, [amount / divisor for amount in within], told))
    if any(over):
        figure.add_trace(_bars("exceeds the capacity", LIMIT, [amount / divisor for amount in over], told))
    limited = [(limit / divisor, lane) for lane, limit in enumerate(limits) if limit is not None]
    if limited:
        figure.add_trace(_marks("memory capacity", [at for at, _ in limited], [lane for _, lane in limited], "markers"))
    return _finish(figure, devices, f"memory ({unit})")


def _memory_told(device: PlacementDevice, held: float) -> str:
    of = "" if device.memory_capacity is None else f" of {show_memory(device.memory_capacity, 'B')}"
    return f"{plain(device.name)}: {show_memory(held, 'B')}{of}"


def _bars(name: str, colour: str, amounts: list[float], told: list[str]) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        y=list(range(len(amounts))),
        x=amounts,
        marker={"color": colour, "line": {"width": 0}},
        unselected={"marker": {"opacity": 1}},
        customdata=told,
        hovertemplate="%{customdata}<extra>" + name + "</extra>",
    )


def _marks(name: str, x: list[float], y: list[float], mode: str) -> go.Scatter:
    """A line across all lanes, or an upright stroke in each."""
    stroke = {"symbol": "line-ns", "size": 18, "line": _LINE}
    return go.Scatter(
        name=name, x=x, y=y, mode=mode, line={**_LINE, "dash": "dash"}, marker=stroke, hoverinfo="skip", showlegend=True
    )


def _finish(figure: go.Figure, devices: Sequence[PlacementDevice], title: str) -> go.Figure:
    names = [plain(device.name) for device in devices]
    thickness = max(_THINNEST, min(_THICKEST, _BARS // max(1, len(names))))
    every = -(-12 // thickness)
    lanes = list(range(0, len(names), every))
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5],
        tickvals=lanes,
        ticktext=[names[lane] for lane in lanes],
        tickfont={"size": 12 if thickness > 14 else 10},
        showgrid=False,
        zeroline=False,
        fixedrange=True,
    )
    figure.update_xaxes(title={"text": title, "standoff": 6}, rangemode="tozero", gridcolor=FAINT, zeroline=False)
    figure.update_layout(
        barmode="stack",
        bargap=0.25,
        height=_TOP + _BOTTOM + len(names) * thickness,
        margin={"t": _TOP, "b": _BOTTOM, "l": 8, "r": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0, "traceorder": "normal"},
        hovermode="closest",
    )
    return figure
