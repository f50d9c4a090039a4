"""Draw the memory of each device over time. Each device has one lane on a common scale, with its capacity as a line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.bars import Window
from tessel_core.charts.figure import LANE, plain
from tessel_core.charts.palette import HELD, LIMIT, STATIC
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import memory_scale, show_memory, show_time

Points = list[float | None]

_MAX_STEPS, _MIN_LANE_STEPS = 6_000, 200
"""Limit of steps per picture, and number of steps that each lane may have in any case.

If there are more steps, each drawn step is the maximum of several.
"""


@dataclass(frozen=True, slots=True)
class _Lane:
    """Memory of one device over time. It holds `level[i]` from `time[i]` to `time[i + 1]`."""

    device: int
    time: NDArray[np.int64]
    level: NDArray[np.int64]
    static: int
    limit: int | None

    @property
    def within(self) -> NDArray[np.int64]:
        """Memory level, limited to the capacity."""
        return self.level if self.limit is None else np.minimum(self.level, self.limit)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Vertical scale of the lanes.

    Lane d spans y = d - LANE/2 (largest peak or capacity of all devices) to y = d + LANE/2 (no memory held).
    """

    ticks: float
    fullest: int

    def height(self, lane: _Lane, level: NDArray[np.int64] | int) -> NDArray[np.float64]:
        return lane.device + LANE / 2 - LANE * np.asarray(level) / self.fullest


def memory_traces(schedule: Schedule, divisor: float, window: Window) -> list[go.Scatter]:
    """Return the traces of the lanes.

    They show static memory, memory of micro-batches, memory above the capacity, outlines with hover texts, and
    capacities.
    """
    profile = MemoryProfile.of(schedule)
    lanes = [_lane(profile, d, window) for d in range(len(schedule.plan.devices))]
    scale = _Scale(divisor, _fullest(profile))
    traces = [
        _filled("static", STATIC, scale, [(lane, 0 * lane.level, 0 * lane.level + lane.static) for lane in lanes]),
        _filled("held", HELD, scale, [(lane, np.minimum(lane.static, lane.within), lane.within) for lane in lanes]),
    ]
    if any(profile.excess):
        over = [(lane, lane.within, lane.level) for lane in lanes]
        traces.append(_filled("exceeds the capacity", LIMIT, scale, over))
    return [*traces, _outline(schedule, lanes, scale), _capacities(lanes, scale)]


def _fullest(profile: MemoryProfile) -> int:
    limits = (device.memory_capacity or 0 for device in profile.plan.devices)
    return max(1, *profile.peaks, *limits)


def lane_labels(schedule: Schedule) -> tuple[list[str], str]:
    """Return "name peak/capacity" for each device, and the unit of the numbers."""
    profile = MemoryProfile.of(schedule)
    scale, unit = memory_scale(_fullest(profile), schedule.plan.memory_unit)
    return [
        f"{plain(device.name, 12)}  {peak / scale:.3g}"
        + ("" if device.memory_capacity is None else f"/{device.memory_capacity / scale:.3g}")
        for device, peak in zip(schedule.plan.devices, profile.peaks, strict=True)
    ], unit


def _lane(profile: MemoryProfile, device: int, window: Window) -> _Lane:
    opens, closes = window
    inside = profile.times[device][(profile.times[device] > opens) & (profile.times[device] < closes)]
    starts = np.concatenate(([opens], inside))
    shown = profile.plan.devices[device]
    most = max(_MIN_LANE_STEPS, _MAX_STEPS // len(profile.plan.devices))
    if len(starts) > most:
        edges = np.linspace(opens, closes, most + 1).astype(np.int64)
        starts, level = edges[:-1], profile.most_between(device, edges)
    else:
        level = profile.at(device, starts)
    return _Lane(device, np.append(starts, closes), level, shown.static_memory, shown.memory_capacity)


def _filled(
    name: str, colour: str, scale: _Scale, areas: list[tuple[_Lane, NDArray[np.int64], NDArray[np.int64]]]
) -> go.Scatter:
    """Return filled areas between a lower and an upper step function of each lane, as one closed outline per lane."""
    x: Points = []
    y: Points = []
    for lane, low, high in areas:
        if (low == high).all():
            continue
        time = np.repeat(lane.time, 2)[1:-1] / scale.ticks
        x += [*time.tolist(), *time[::-1].tolist(), None]
        upper, lower = (np.repeat(scale.height(lane, level), 2) for level in (high, low))
        y += [*upper.tolist(), *lower[::-1].tolist(), None]
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        mode="lines",
        fill="toself",
        fillcolor=colour,
        opacity=0.55,
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )


def _outline(schedule: Schedule, lanes: list[_Lane], scale: _Scale) -> go.Scatter:
    """Return the thin outline of the lanes. Its steps have the hover texts."""
    plan = schedule.plan
    x: Points = []
    y: Points = []
    hover: list[tuple[str, str, str]] = []
    for lane in lanes:
        times = lane.time[:-1]
        heights = scale.height(lane, lane.level).tolist()
        x += [*(lane.time / scale.ticks).tolist(), None]
        y += [*heights, heights[-1], None]
        name = plain(plan.devices[lane.device].name)
        rows = [
            (name, show_memory(level, plan.memory_unit), show_time(time, plan.time_unit))
            for time, level in zip(times.tolist(), lane.level.tolist(), strict=True)
        ]
        hover += [*rows, rows[-1], ("", "", "")]
    return go.Scatter(
        name="memory held",
        x=x,
        y=y,
        mode="lines",
        line={"shape": "hv", "width": 1, "color": HELD},
        customdata=hover,
        hovertemplate="%{customdata[0]} holds %{customdata[1]} from %{customdata[2]}<extra></extra>",
        showlegend=False,
    )


def _capacities(lanes: list[_Lane], scale: _Scale) -> go.Scatter:
    points: list[tuple[float | None, float | None]] = []
    for lane in lanes:
        if lane.limit is not None:
            height = float(scale.height(lane, lane.limit))
            points += [(lane.time[0] / scale.ticks, height), (lane.time[-1] / scale.ticks, height), (None, None)]
    return go.Scatter(
        name="memory capacity",
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="lines",
        line={"width": 1.2, "color": LIMIT, "dash": "dot"},
        hoverinfo="skip",
        showlegend=bool(points),
    )
