"""Draw runs of a schedule as horizontal bars, one trace per kind of block."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go

from tessel_core.charts.figure import LANE, listed, plain
from tessel_core.charts.palette import KIND_COLOURS, ink, shade
from tessel_core.model import BlockKind, MemoryProfile, MicroBatchPlan, Phase, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.units import show_memory, show_time

Window = tuple[int, int]
"""Time window of a picture in ticks: start (included) and end (excluded)."""

MAX_BARS = 4_000
"""Largest number of bars in a picture. A browser draws this many in about half a second."""
MAX_LABELS = 1_000
"""Largest number of bars with labels in a picture."""
_MAX_LISTED = 8
"""Number of devices of a block that the hover text names."""

_HOVER = (
    "<b>%{customdata[0]}</b> · micro-batch %{customdata[1]}<br>%{customdata[2]} – %{customdata[3]} "
    "(%{customdata[4]})<br>on %{customdata[5]}<br>memory after: %{customdata[6]}<br>%{customdata[7]}<extra></extra>"
)
"""Template of the hover text.

All values come from customdata, because plotly's `%{x}` is the end of a bar, not its length.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """Lanes `first` to `last` of neighbouring devices of one block. They are drawn as one bar."""

    first: int
    last: int

    @property
    def middle(self) -> float:
        """Vertical centre of the bar, in lanes."""
        return (self.first + self.last) / 2

    @property
    def height(self) -> float:
        """Height of the bar, in lanes."""
        return self.last - self.first + LANE


def spans_of(devices: tuple[int, ...]) -> tuple[Span, ...]:
    """Return the groups of neighbouring devices.

    >>> spans_of((2, 0, 1, 5))
    (Span(first=0, last=2), Span(first=5, last=5))
    """
    ordered = sorted(devices)
    cuts = [i for i, (before, after) in enumerate(pairwise(ordered), 1) if after != before + 1]
    parts = (ordered[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(ordered)], strict=True))
    return tuple(Span(part[0], part[-1]) for part in parts)


def runs_in(schedule: Schedule, window: Window) -> IntColumn:
    """Return the row numbers of the runs that overlap the window."""
    return np.flatnonzero((schedule.start < window[1]) & (schedule.end > window[0]))


def bar_count(schedule: Schedule, window: Window) -> int:
    """Return the number of bars in a picture of the window."""
    bars = np.array([len(spans_of(block.devices)) for block in schedule.plan.blocks])
    return int(bars[schedule.block[runs_in(schedule, window)]].sum())


def bar_traces(schedule: Schedule, divisor: float, window: Window, *, labelled: bool = True) -> list[go.Bar]:
    """Return one trace per kind of block in the window, with bars in order of start.

    Parameters
    ----------
    divisor
        Ticks per unit of the time axis.
    window
        Draw only runs that overlap this window, in ticks.
    labelled
        Whether to write the micro-batch into each bar that has room for it.
    """
    rows = runs_in(schedule, window)
    hover = _hover_texts(schedule, rows)
    kinds = [schedule.plan.blocks[b].kind for b in schedule.block[rows].tolist()]
    traces = []
    for kind in BlockKind:
        found = {row: hover[row] for row, its in zip(rows.tolist(), kinds, strict=True) if its is kind}
        if found:
            traces.append(_trace(schedule, kind, found, divisor, labelled=labelled))
    return traces


def _trace(
    schedule: Schedule, kind: BlockKind, hover: dict[int, tuple[str, ...]], divisor: float, *, labelled: bool
) -> go.Bar:
    """Return the trace of one kind of block. The keys of `hover` are the row numbers of its runs in the schedule."""
    plan = schedule.plan
    bars = [(row, span) for row in hover for span in spans_of(plan.blocks[schedule.block[row]].devices)]
    at = [row for row, _ in bars]
    micro_batches = [int(m) for m in schedule.micro_batch[at]]
    colours = [shade(kind, micro_batch) for micro_batch in micro_batches]
    return go.Bar(
        name=str(kind),
        orientation="h",
        base=schedule.start[at] / divisor,
        x=schedule.duration[at] / divisor,
        y=[span.middle for _, span in bars],
        width=[span.height for _, span in bars],
        marker={"color": colours, "line": {"width": 0.5 if labelled else 0, "color": "rgba(0, 0, 0, 0.3)"}},
        unselected={"marker": {"opacity": 1}},
        text=micro_batches if labelled else None,
        textfont={"color": [ink(colour) for colour in colours]},
        textposition="inside" if labelled else "none",
        insidetextanchor="middle",
        textangle=0,
        customdata=[hover[row] for row in at],
        hovertemplate=_HOVER,
        legendgroup=str(kind),
        showlegend=False,
    )


def legend_traces(plans: list[MicroBatchPlan]) -> list[go.Bar]:
    """Return empty bars that show each kind's base colour in the legend."""
    kinds = {block.kind for plan in plans for block in plan.blocks}
    return [
        go.Bar(
            name=str(kind),
            orientation="h",
            x=[None],
            y=[0],
            marker={"color": KIND_COLOURS[kind]},
            legendgroup=str(kind),
        )
        for kind in BlockKind
        if kind in kinds
    ]


def _hover_texts(schedule: Schedule, rows: IntColumn) -> dict[int, tuple[str, ...]]:
    """Return the parts of the hover text of each run, by row."""
    plan = schedule.plan
    names = [plain(device.name) for device in plan.devices]
    held = _memory_after(schedule, rows)
    phases = schedule.phase if schedule.repetend else None
    texts = {}
    for row in rows.tolist():
        block, start, end = plan.blocks[schedule.block[row]], int(schedule.start[row]), int(schedule.end[row])
        when = (show_time(tick, plan.time_unit) for tick in (start, end, end - start))
        on = listed([names[d] for d in block.devices], _MAX_LISTED)
        after = listed([f"{names[d]} {show_memory(level, plan.memory_unit)}" for d, level in held[row]], _MAX_LISTED)
        phase = "nothing repeats" if phases is None else str(Phase(phases[row]))
        texts[row] = (plain(block.name, 60), str(schedule.micro_batch[row]), *when, on, after, phase)
    return texts


def _memory_after(schedule: Schedule, rows: IntColumn) -> dict[int, list[tuple[int, int]]]:
    """Return the devices of each run, and the memory that each device holds after the run has ended."""
    profile = MemoryProfile.of(schedule)
    held: dict[int, list[tuple[int, int]]] = {row: [] for row in rows.tolist()}
    for d in range(len(schedule.plan.devices)):
        there = rows[np.isin(schedule.block[rows], schedule.plan.blocks_on[d])]
        for row, level in zip(there.tolist(), profile.after_runs(schedule, d, there).tolist(), strict=True):
            held[row].append((d, level))
    return held
