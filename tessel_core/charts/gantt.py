"""Gantt chart of a schedule: one lane per device, and memory lanes below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tessel_core.charts.bars import MAX_BARS, MAX_LABELS, Window, bar_count, bar_traces, legend_traces
from tessel_core.charts.figure import CLEAR, LANE, STILL_LEGEND, axis_title, finish, lane_axis, plain
from tessel_core.charts.memory_lanes import lane_labels, memory_traces
from tessel_core.charts.palette import FAINT, MISFIT, QUIET
from tessel_core.charts.raster import raster_trace
from tessel_core.model import MemoryProfile, MicroBatchPlan, Phase, Schedule
from tessel_core.units import many, show_memory, show_time, time_scale

_TOP, _BOTTOM = 58, 50
_BETWEEN = 12
"""Distance between schedule and memory lanes, in pixels."""
_MIN_LABELLED_SHARE = 0.07
"""Share of the window's width that a phase needs to show its name."""
EVERYTHING = "Everything"
_PERIODS_SHOWN = 3
"""Number of periods in the window of the repetend."""


def gantt(schedule: Schedule, *, window: Window | None = None) -> go.Figure:
    """Draw the schedule above its memory lanes, on one time axis.

    `window` limits the picture to some ticks. If the window has too many blocks for a browser, they are drawn as shares
    of columns (see `detail_of`). A schedule that exceeds a capacity is marked "does not fit".
    """
    axis = TimeAxis.of([schedule])
    window = window or (0, schedule.makespan)
    lanes = len(schedule.plan.devices)
    upper, lower = (lanes * lane_pixels(lanes, most) for most in (34, 26))
    gap = _BETWEEN / (upper + lower + _BETWEEN)
    figure = make_subplots(rows=2, shared_xaxes=True, row_heights=[upper, lower], vertical_spacing=gap)
    detail = detail_of([schedule], window)
    figure.add_traces(phase_traces(schedule, axis.divisor), rows=1, cols=1)
    figure.add_traces(block_traces(schedule, axis.divisor, window, detail), rows=1, cols=1)
    figure.add_traces(legend_traces([schedule.plan]), rows=1, cols=1)
    figure.add_traces(memory_traces(schedule, axis.divisor, window), rows=2, cols=1)
    labels, memory_unit = lane_labels(schedule)
    lane_axis(figure, device_names(schedule.plan), row=1)
    lane_axis(figure, labels, row=2, title=f"peak/capacity ({plain(many(memory_unit))})")
    _mark_phases(figure, schedule, axis.divisor, window)
    _mark_misfit(figure, schedule)
    time_axis(figure, axis.shown(window), axis.unit, last_row=2)
    return finish_timeline(figure, upper + lower + _BETWEEN)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Time axis that several schedules share, from 0 to the last end, with its named windows.

    The schedules have the same time unit.
    """

    longest: int
    divisor: float
    """Ticks per unit of the axis."""
    unit: str
    windows: dict[str, Window]
    """Window of the whole axis and, if a schedule repeats, windows of warmup, repetend and cooldown."""

    @classmethod
    def of(cls, schedules: Sequence[Schedule]) -> TimeAxis:
        """Build the axis for `schedules`, of which there must be at least one."""
        longest = max(schedule.makespan for schedule in schedules)
        divisor, unit = time_scale(longest, schedules[0].plan.time_unit)
        named = {EVERYTHING: (0, longest), **_phase_windows(schedules, longest)}
        return cls(longest, divisor, many(unit), named)

    @property
    def step(self) -> float:
        """Step of a slider over the whole axis, in units of the axis."""
        return self.longest / self.divisor / 1_000

    def shown(self, window: Window) -> tuple[float, float]:
        """Convert a window from ticks to units of the axis."""
        return window[0] / self.divisor, window[1] / self.divisor

    def window(self, shown: tuple[float, float]) -> Window:
        """Convert a window from units of the axis to ticks. It is never empty."""
        opens = min(round(shown[0] * self.divisor), self.longest - 1)
        return opens, max(round(shown[1] * self.divisor), opens + 1)


def _phase_windows(schedules: Sequence[Schedule], longest: int) -> dict[str, Window]:
    """Return the window of each phase. It covers all devices of all schedules that repeat."""
    repeating = [schedule for schedule in schedules if schedule.repetend is not None]
    if not repeating:
        return {}
    opens = [[first for first, _ in schedule.repetend_windows] for schedule in repeating]
    closes = [[last for _, last in schedule.repetend_windows] for schedule in repeating]
    periods = [schedule.repetend.period for schedule in repeating if schedule.repetend is not None]
    last_shown = max(
        min(max(last), min(first) + _PERIODS_SHOWN * period)
        for first, last, period in zip(opens, closes, periods, strict=True)
    )
    found = {
        "Warmup": (0, max(map(max, opens))),
        Phase.REPETEND.capitalize(): (min(map(min, opens)), last_shown),
        "Cooldown": (min(map(min, closes)), longest),
    }
    return {name: window for name, window in found.items() if window[1] > window[0]}


class Detail(Enum):
    """Level of detail of a picture. A picture has the finest level that a browser draws without delay."""

    SHARES = "what share of each column is spent on what"
    BARS = "a bar for every block"
    LABELLED = "a bar with its label for every block"


SHARES_CAPTION = (
    "Too many blocks for a bar each: a column shows what its time is spent on, fainter where devices are idle."
)


def detail_of(schedules: Sequence[Schedule], window: Window) -> Detail:
    """Return the level of detail for a picture of all `schedules` in the window."""
    bars = sum(bar_count(schedule, window) for schedule in schedules)
    return Detail.SHARES if bars > MAX_BARS else Detail.BARS if bars > MAX_LABELS else Detail.LABELLED


def block_traces(schedule: Schedule, divisor: float, window: Window, detail: Detail) -> list[go.Bar | go.Heatmap]:
    """Return the runs in the window as bars.

    If there are too many, return columns that show how devices divide their time.
    """
    if detail is Detail.SHARES:
        return [raster_trace(schedule, divisor, window)]
    return bar_traces(schedule, divisor, window, labelled=detail is Detail.LABELLED)


def time_axis(figure: go.Figure, shown: tuple[float, float], unit: str, *, last_row: int) -> None:
    """Set the time axis of all subplots to the range `shown`, in units of the axis.

    The subplot `last_row` gets the title.
    """
    for row in range(1, last_row + 1):
        figure.update_xaxes(range=shown, row=row, col=1)
    figure.update_xaxes(title=axis_title(f"time ({plain(unit)})"), row=last_row, col=1)


def finish_timeline(figure: go.Figure, pixels: int) -> go.Figure:
    """Set the size, margins, legend and background that all time pictures share."""
    figure.update_xaxes(showgrid=True, gridcolor=FAINT, zeroline=False, showline=False)
    text = {"minsize": 7, "mode": "hide"}
    return finish(figure, pixels, _TOP, _BOTTOM, barmode="overlay", legend=STILL_LEGEND, uniformtext=text)


def phase_traces(schedule: Schedule, divisor: float, *, legend: bool = True) -> list[go.Bar]:
    """Return hatched backgrounds of two phases.

    The warmup ends at a device's first repetend block, and the cooldown begins after its last.
    """
    if schedule.repetend is None:
        return []
    windows = schedule.repetend_windows
    opens = np.array([first for first, _ in windows]) / divisor
    closes = np.array([last for _, last in windows]) / divisor
    cooled = schedule.makespan / divisor - closes
    return [
        _ground("warmup", np.zeros_like(opens), opens, "/", legend),
        _ground("cooldown", closes, cooled, "\\", legend),
    ]


def _ground(name: str, base: NDArray[np.float64], width: NDArray[np.float64], hatch: str, legend: bool) -> go.Bar:
    return go.Bar(
        name=name,
        orientation="h",
        base=base,
        x=width,
        y=np.arange(len(base)),
        width=LANE,
        marker={
            "color": FAINT,
            "line": {"width": 0},
            "pattern": {"shape": hatch, "size": 7, "solidity": 0.12, "fgcolor": QUIET, "bgcolor": CLEAR},
        },
        hoverinfo="skip",
        showlegend=legend,
        legendrank=2000,
    )


def lane_pixels(lanes: int, most: int) -> int:
    """Return the height of a lane in pixels.

    About eight lanes and their memory lanes fit a small screen. More lanes make the figure taller.
    """
    return max(12, min(most, 5 * most // lanes))


def device_names(plan: MicroBatchPlan) -> list[str]:
    """Return the names of the lanes, which are names of devices."""
    return [plain(device.name) for device in plan.devices]


def _mark_phases(figure: go.Figure, schedule: Schedule, divisor: float, window: tuple[int, int]) -> None:
    """Add the names of the phases above the lanes, and a line where each phase begins on its first device."""
    steady = schedule.repetend
    if steady is None:
        return
    repeats = schedule.phase == Phase.REPETEND
    opens, closes = int(schedule.start[repeats].min()), int(schedule.end[repeats].max())
    per = f" for {steady.unroll} micro-batches" if steady.unroll > 1 else ""
    every = f"{Phase.REPETEND}: every {show_time(steady.period, schedule.plan.time_unit)}{per}"
    for name, first, last in (("warmup", 0, opens), (every, opens, closes), ("cooldown", closes, schedule.makespan)):
        left, right = max(first, window[0]), min(last, window[1])
        if right - left < _MIN_LABELLED_SHARE * (window[1] - window[0]):
            continue
        middle = (left + right) / 2 / divisor
        figure.add_annotation(
            x=middle, y=1, yref="y domain", yanchor="bottom", text=plain(name, 60), showarrow=False, font={"size": 12}
        )
    for tick in (opens, closes):
        if window[0] < tick < window[1]:
            line = {"width": 1, "dash": "dot", "color": QUIET}
            at = tick / divisor
            figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1.04, yref="y domain", line=line)


def _mark_misfit(figure: go.Figure, schedule: Schedule) -> None:
    profile = MemoryProfile.of(schedule)
    over = [d for d, excess in enumerate(profile.excess) if excess]
    if not over:
        return
    worst = max(over, key=lambda d: profile.excess[d])
    device, unit = schedule.plan.devices[worst], schedule.plan.memory_unit
    held, may = show_memory(profile.peaks[worst], unit), show_memory(device.memory_capacity or 0, unit)
    figure.add_annotation(
        x=0.5,
        xref="paper",
        y=1,
        yref="paper",
        yshift=_TOP - 4,
        xanchor="center",
        yanchor="top",
        text=f'<b style="color:{MISFIT}">does not fit</b>: {plain(device.name)} would hold {held} of {may}',
        font={"size": 13},
        showarrow=False,
    )
