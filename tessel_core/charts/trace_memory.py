"""Live memory of a simulation: how much each device holds over time, and what holds it at the peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.figure import LANE, limit_line, plain
from tessel_core.charts.palette import HELD, LIMIT
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace, memory_shares
from tessel_core.simulation.attribution import MemoryShare, over_micro_batches, peak_time
from tessel_core.units import show_memory, show_time

Floats = NDArray[np.float64]
Seconds = tuple[float, float]
"""The part of the time that a picture shows."""

_MOST_STEPS, _FEWEST_STEPS = 6_000, 200
"""In one picture, and at least for each lane: with more, each step is the most that is held within its width."""
_MOST_LISTED, _MOST_BARS = 6, 12
_FARTHEST_LIMIT = 4
"""Times the highest peak: larger capacities would flatten the lanes, so only the titles name them."""


@dataclass(frozen=True, slots=True)
class MemoryLane:
    """One device's steps: `held[i]` bytes from `time[i]` to `time[i + 1]`; times have one entry more."""

    time: Floats
    held: NDArray[np.int64]


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """Worker w is device w - 1 of the mesh."""
    return plain(mesh.devices[device - 1].name) if mesh and 0 < device <= len(mesh.devices) else f"device {device}"


def memory_lane(trace: Trace, device: int, window: Seconds, lanes: int = 1) -> MemoryLane:
    """The memory of a device in the window, in as many steps as one of so many lanes may have."""
    mine = trace.memory_device == device
    time, held = trace.memory_time[mine], trace.memory_bytes[mine]
    before = int(np.searchsorted(time, window[0], side="right"))
    beyond = int(np.searchsorted(time, window[1], side="left"))
    time = np.concatenate(([window[0]], time[before:beyond]))
    held = np.concatenate(([held[before - 1] if before else 0], held[before:beyond]))
    most = max(_FEWEST_STEPS, _MOST_STEPS // lanes)
    if len(time) > most:
        edges = np.linspace(*window, most + 1)
        first = np.searchsorted(time, edges[:-1], side="right") - 1
        last = np.searchsorted(time, edges[1:], side="left")
        bounds = np.column_stack((first, np.maximum(last, first + 1))).ravel()
        held = np.maximum.reduceat(np.append(held, 0), bounds)[::2]
        time = edges[:-1]
    return MemoryLane(np.append(time, window[1]), held)


def lane_traces(
    trace: Trace, devices: Sequence[int], divisor: float, window: Seconds, mesh: DeviceMesh | None
) -> list[go.Scatter]:
    """Memory of some devices on an axis that points down, 0 at the bottom of each lane; marks at peaks, capacities."""
    peaks = dict(zip(trace.devices, trace.peak_memory, strict=True))
    limits, fullest = _scale(trace, devices, mesh)
    traces, marks, lines = [], list[tuple[float, float, str]](), list[tuple[float | None, float | None]]()
    for row, device in enumerate(devices):
        lane, floor = memory_lane(trace, device, window, len(devices)), row + LANE / 2
        name, when = device_name(device, mesh), peak_time(trace, device)
        traces.append(_area(lane.time / divisor, floor - LANE * lane.held / fullest, floor, lane.held, name))
        if peaks[device] and window[0] <= when <= window[1]:
            peak = f"{name}: {show_memory(peaks[device], 'B')} at {show_time(when, 's')}"
            hover = "<br>".join((peak, *_share_lines(memory_shares(trace, device))))
            marks.append((when / divisor, floor - LANE * peaks[device] / fullest, hover))
        limit = limits[row]
        if limit is not None:
            height = floor - LANE * limit / fullest
            lines += [(window[0] / divisor, height), (window[1] / divisor, height), (None, None)]
    return [*traces, _marks(marks), *([limit_line("memory capacity", lines)] if lines else [])]


def lane_titles(trace: Trace, mesh: DeviceMesh | None) -> list[str]:
    """Per device its name, its peak and, where it is known, its capacity."""
    found = []
    limits = _capacities_of(trace.devices, mesh)
    for device, peak, limit in zip(trace.devices, trace.peak_memory, limits, strict=True):
        of = "" if limit is None else f" / {show_memory(limit, 'B')}"
        found.append(f"{device_name(device, mesh)}  {show_memory(peak, 'B')}{of}")
    return found


def lane_ticks(trace: Trace, device: int, mesh: DeviceMesh | None) -> dict[str, list[float] | list[str]]:
    """Ticks of the memory axis in a picture of one device."""
    fullest = _scale(trace, [device], mesh)[1]
    power = 10.0 ** math.floor(math.log10(fullest / 2))
    step = max(each * power for each in (1, 2, 5) if each * power <= fullest / 2)
    amounts = [step * i for i in range(int(fullest / step) + 1)]
    return {
        "tickvals": [LANE / 2 - LANE * amount / fullest for amount in amounts],
        "ticktext": [show_memory(amount, "B") if amount else "0" for amount in amounts],
    }


def _scale(trace: Trace, devices: Sequence[int], mesh: DeviceMesh | None) -> tuple[list[int | None], int]:
    """Capacities that are near enough to be drawn, and the bytes that fill a lane."""
    peaks = dict(zip(trace.devices, trace.peak_memory, strict=True))
    most = max((1, *(peaks[device] for device in devices)))
    limits = [limit if limit and limit <= _FARTHEST_LIMIT * most else None for limit in _capacities_of(devices, mesh)]
    return limits, max((most, *(limit or 0 for limit in limits)))


def _capacities_of(devices: Sequence[int], mesh: DeviceMesh | None) -> list[int | None]:
    known = () if mesh is None else mesh.devices
    return [known[device - 1].memory_capacity if 0 < device <= len(known) else None for device in devices]


def _marks(marks: list[tuple[float, float, str]]) -> go.Scatter:
    return go.Scatter(
        name="peak",
        x=[x for x, _, _ in marks],
        y=[y for _, y, _ in marks],
        mode="markers",
        marker={"symbol": "diamond", "size": 8, "color": LIMIT},
        customdata=[hover for _, _, hover in marks],
        hovertemplate="%{customdata}<extra></extra>",
        cliponaxis=False,
    )


def _area(time: Floats, height: Floats, floor: float, held: NDArray[np.int64], name: str) -> go.Scatter:
    x = np.concatenate((np.repeat(time, 2)[1:-1], time[[-1, 0]]))
    y = np.concatenate((np.repeat(height, 2), [floor, floor]))
    megabytes = np.concatenate((np.repeat(held, 2), [0, 0])) / 1e6
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        customdata=megabytes,
        mode="lines",
        fill="toself",
        fillcolor=HELD,
        opacity=0.7,
        line={"width": 1, "color": HELD},
        hoveron="points",
        hovertemplate=f"{name} holds %{{customdata:,.6g}} MB at %{{x:.4g}}<extra></extra>",
        showlegend=False,
    )


def share_bars(shares: tuple[MemoryShare, ...], divisor: float) -> go.Bar:
    """Bars of the largest shares of a device's memory, the largest on top, and the rest as one.

    Micro-batches have bars of their own as long as there is room for all.
    """
    shares = shares if len(shares) <= _MOST_BARS else over_micro_batches(shares)
    rest = sum(each.bytes for each in shares[_MOST_BARS:])
    rows = [(plain(each.title, 60), each.bytes, each.values) for each in shares[:_MOST_BARS]]
    rows += [("everything else", rest, sum(each.values for each in shares[_MOST_BARS:]))] if rest else []
    return go.Bar(
        name="at the peak",
        orientation="h",
        x=[amount / divisor for _, amount, _ in rows],
        y=[title for title, _, _ in rows],
        marker={"color": HELD},
        customdata=[(show_memory(amount, "B"), values) for _, amount, values in rows],
        hovertemplate="%{y}: %{customdata[0]} in %{customdata[1]} values<extra></extra>",
        showlegend=False,
    )


def _share_lines(shares: tuple[MemoryShare, ...]) -> list[str]:
    lines = [f"{plain(each.title, 60)}: {show_memory(each.bytes, 'B')}" for each in shares[:_MOST_LISTED]]
    rest = sum(each.bytes for each in shares[_MOST_LISTED:])
    return [*lines, f"everything else: {show_memory(rest, 'B')}"] if rest else lines
