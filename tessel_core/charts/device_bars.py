"""Bar charts of time and memory per device, and of the gain from faster blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import plotly.graph_objects as go

from tessel_core.charts.figure import LEGEND, Trace, axis_title, finished, lanes, plain
from tessel_core.charts.palette import FAINT, HELD, KIND_COLOURS, LIMIT, PART_COLOURS, STATIC
from tessel_core.inspection import BUSY, Cause, IdleCauses, IdleSplit
from tessel_core.model import BlockKind, MicroBatchPlan, PlacementDevice, PlacementLoads, Schedule
from tessel_core.units import memory_scale, show_memory, show_time

_TOP, _BOTTOM, _ALL_BARS, _THICKEST, _THIN, _THINNEST = 34, 44, 480, 30, 20, 9
"""Sizes in pixels: top and bottom margin, total height of all bars, and limits of the thickness of a bar."""
_HATCHES = {
    "warmup": "/",
    "cooldown": "\\",
    "order": "x",
    "memory": "+",
    "partners": "|",
    "communication": ".",
    "data": "-",
    "imbalance": "|",
    "unavoidable": "/",
    "open": "x",
    "bubble": "\\",
}
"""Hatches of the causes of idle time, which distinguish them without colour."""
_LEGEND_LINE, _LEGEND_ENTRIES = 20, 5
"""Height of a line of the legend in pixels, and number of entries per line in a figure of half a page's width."""
_MAX_BLOCKS = 12
_PERCENT: dict[str, Any] = {"range": [0, 100], "ticksuffix": "%"}


def cause_chart(causes: IdleCauses, plan: MicroBatchPlan) -> go.Figure:
    """Plot the share of each device's time that is busy, and the share of each cause of idle time."""
    names = [plain(device.name) for device in plan.devices]
    return cause_bars(causes, names, lambda ticks: show_time(ticks, plan.time_unit))


def cause_bars(causes: IdleCauses, names: list[str], show: Callable[[int], str]) -> go.Figure:
    """Plot busy time and causes of idle time for devices with these names. `show` formats ticks as text."""
    rows = [_with_busy(causes.ticks(d), causes.length) for d in range(causes.devices)]
    hover = {part: [f"{n}: {show(row[part])}" for n, row in zip(names, rows, strict=True)] for part in rows[0]}
    shares = [{part: ticks / max(1, causes.length) for part, ticks in row.items()} for row in rows]
    return _share_chart(names, shares, hover, "share of the time")


def mean_cause_chart(shown: Sequence[tuple[str, IdleCauses]]) -> go.Figure:
    """Plot busy time and causes of idle time, with one bar per schedule. Each bar is the mean of all devices."""
    titles = [plain(title, 60) for title, _ in shown]
    return _share_chart(
        titles, [_with_busy(each.shares, 1) for _, each in shown], {}, "share of the makespan, mean of all devices"
    )


def idle_chart(shown: Sequence[tuple[str, IdleSplit]]) -> go.Figure:
    """Plot busy time, and idle time by the change that could remove it.

    Each schedule or steady state has one bar, which is the mean of all devices.
    """
    titles = [plain(title, 60) for title, _ in shown]
    return _share_chart(titles, [split.parts for _, split in shown], {}, "share of the time, mean of all devices")


def _with_busy(idle: Mapping[Cause, Any], whole: int) -> dict[str, Any]:
    """Return the shares by name, with busy time first."""
    return {BUSY: whole - sum(idle.values()), **{str(cause): part for cause, part in idle.items()}}


def _share_chart(
    names: list[str], rows: Sequence[Mapping[str, Any]], hover: Mapping[str, list[str]], title: str
) -> go.Figure:
    """Plot one bar per row. Each bar is divided into shares of 1. A share that is zero in all rows is left out."""
    traces = []
    for part in rows[0]:
        shares = [100 * float(row[part]) for row in rows]
        if any(shares):
            pattern = {"shape": _HATCHES.get(part, ""), "size": 6, "solidity": 0.25, "fillmode": "overlay"}
            text = "%{customdata}, %{x:.1f}%<extra>%{fullData.name}</extra>"
            traces.append(_bars(part, PART_COLOURS[part], shares, hover.get(part, names), text, pattern))
    return _finished(traces, names, title, **_PERCENT)


def savings_chart(schedule: Schedule, savings: Sequence[Fraction]) -> go.Figure:
    """Plot the blocks whose speed-up shortens the makespan most.

    `savings` has ticks. One bar stands for all other blocks.
    """
    blocks = sorted(range(len(savings)), key=lambda b: -savings[b])
    saving = [b for b in blocks if savings[b]][:_MAX_BLOCKS]
    others = blocks[len(saving) :]
    rows: list[tuple[str, BlockKind | None, Fraction]] = []
    for b in saving:
        block = schedule.plan.blocks[b]
        rows.append((block.title, block.kind, savings[b]))
    if others:
        most = savings[others[0]]
        rows.append((f"{len(others)} other{'s' * (len(others) > 1)}, {'at most' if most else 'nothing'}", None, most))
    hover = [f"{plain(name, 60)}: {show_time(float(ticks), schedule.plan.time_unit)}" for name, _, ticks in rows]
    traces = []
    for kind in dict.fromkeys(kind for _, kind, _ in rows):
        shares = [float(100 * ticks / schedule.makespan) if kind is of else 0.0 for _, of, ticks in rows]
        if any(shares):
            name, colour = ("others", STATIC) if kind is None else (str(kind), KIND_COLOURS[kind])
            text = "%{customdata} shorter, %{x:.1f}%<extra>%{fullData.name}</extra>"
            traces.append(_bars(name, colour, shares, hover, text))
    names, title = [plain(name, 32) for name, _, _ in rows], "reduction of the makespan, same order"
    return _finished(traces, names, title, _THIN, ticksuffix="%", rangemode="tozero")


def memory_bars(loads: PlacementLoads, devices: Sequence[PlacementDevice]) -> go.Figure:
    """Plot the bytes that each device holds, its capacity, and the bytes above the capacity."""
    names, limits = [plain(device.name) for device in devices], [device.memory_capacity for device in devices]
    divisor, unit = memory_scale(max(*loads.memory, *(limit or 0.0 for limit in limits), 1.0), "B")
    within = [held if limit is None else min(held, limit) for held, limit in zip(loads.memory, limits, strict=True)]
    over = [held - inside for held, inside in zip(loads.memory, within, strict=True)]
    hover = [
        f"{name}: {show_memory(held, 'B')}" + ("" if limit is None else f" of {show_memory(limit, 'B')}")
        for name, held, limit in zip(names, loads.memory, limits, strict=True)
    ]
    traces: list[Trace] = [_bars("held", HELD, [amount / divisor for amount in within], hover)]
    if any(over):
        traces.append(_bars("exceeds the capacity", LIMIT, [amount / divisor for amount in over], hover))
    limited = [(limit / divisor, lane) for lane, limit in enumerate(limits) if limit is not None]
    if limited:
        traces.append(_marks("memory capacity", [at for at, _ in limited], [lane for _, lane in limited]))
    return _finished(traces, names, f"memory ({unit})", rangemode="tozero")


def _bars(
    name: str,
    colour: str,
    amounts: list[float],
    hover: list[str],
    text: str = "%{customdata}<extra>%{fullData.name}</extra>",
    pattern: dict[str, Any] | None = None,
) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        y=list(range(len(amounts))),
        x=amounts,
        marker={"color": colour, "line": {"width": 0}, "pattern": pattern or {}},
        unselected={"marker": {"opacity": 1}},
        customdata=hover,
        hovertemplate=text,
    )


def _marks(name: str, x: list[float], y: list[int]) -> go.Scatter:
    """Return a vertical mark in each lane, such as a capacity."""
    stroke = {"symbol": "line-ns", "size": 18, "line": {"color": LIMIT, "width": 2}}
    return go.Scatter(name=name, x=x, y=y, mode="markers", marker=stroke, hoverinfo="skip", showlegend=True)


def _finished(
    traces: Sequence[Trace], names: list[str], title: str, thickest: int = _THICKEST, **x_axis: Any
) -> go.Figure:
    thickness = max(_THINNEST, min(thickest, _ALL_BARS // max(1, len(names))))
    return finished(
        traces,
        len(names) * thickness,
        _TOP + _LEGEND_LINE * max(0, (len(traces) - 1) // _LEGEND_ENTRIES),
        _BOTTOM,
        xaxis={"title": axis_title(title), "gridcolor": FAINT, "zeroline": False, **x_axis},
        yaxis=lanes(names, every=-(-12 // thickness), size=12 if thickness > 14 else 10),
        barmode="stack",
        bargap=0.25,
        legend={**LEGEND, "traceorder": "normal"},
    )
