"""A simulation on a time axis: computing and communication of each device, and what each device holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from tessel_core.charts.bars import MOST_BARS, MOST_LABELS, kind_bars, legend_bar
from tessel_core.charts.device_bars import cause_bars
from tessel_core.charts.figure import CLEAR, LANE, axis_title, lane_axis, plain
from tessel_core.charts.gantt import BETWEEN, finish_timeline, lane_pixels, time_axis, two_pictures
from tessel_core.charts.raster import columns, lane_shares, shares_trace
from tessel_core.charts.trace_memory import Seconds, device_name, lane_ticks, lane_titles, lane_traces, share_bars
from tessel_core.errors import InputError
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.model import BlockKind, DeviceMesh
from tessel_core.simulation import Trace, memory_shares
from tessel_core.simulation.costs import MeshCosts, formula
from tessel_core.simulation.idle import ProgramIdle
from tessel_core.simulation.trace import kind_of
from tessel_core.units import memory_scale, show_time, time_scale

_BAR_PIXELS = 22
_UPDATE = "update"
"""The phase of the optimizer and of what sums gradients for it."""
_TITLE = 12
"""Pixels between the numbers of an axis and its title."""
_HOVER = (
    "<b>%{customdata[0]}</b> · %{customdata[1]}<br>%{customdata[2]} – %{customdata[3]} (%{customdata[4]})<br>"
    "%{customdata[5]}<extra></extra>"
)
COMMUNICATION = "⇄"
"""Behind the name of a device, for its lane of communication."""


def trace_chart(
    trace: Trace,
    mesh: DeviceMesh | None = None,
    window: Seconds | None = None,
    *,
    by_mesh: bool = True,
) -> go.Figure:
    """Lanes of computing and communication above, live memory below, on one time axis.

    `mesh` gives devices their names and events their formulas, as `MeshCosts` counts them.  `window` (seconds) limits
    the picture; more events than a browser likes are drawn as shares of columns, as in `gantt`.  Not `by_mesh`: other
    costs than the mesh's made the times, so none has a formula.
    """
    window, lanes = window or percents(trace, 0, 100), TraceLanes.of(trace, mesh)
    if not window[0] < window[1]:
        raise InputError("window", f"must end after it begins, got {window[0]:g} s to {window[1]:g} s")
    divisor, unit = time_scale(max(trace.latency, 1e-12), "s")
    upper, lower = _pixels(len(lanes.names), 28), _pixels(len(trace.devices), 26)
    figure = two_pictures(upper, lower)
    events = lanes.within(trace, window)
    if len(events) > MOST_BARS:
        figure.add_trace(_event_shares(trace, lanes, events, divisor, window), row=1, col=1)
    else:
        priced = mesh if by_mesh else None
        bars = _event_bars(trace, lanes, events, divisor, priced, labels=len(events) <= MOST_LABELS)
        figure.add_traces(bars, rows=1, cols=1)
    figure.add_traces([legend_bar(kind, called_kind(trace, kind)) for kind in _kinds_in(lanes)], rows=1, cols=1)
    if any(name.endswith(COMMUNICATION) for name in lanes.names):
        name = f"{COMMUNICATION} communication"
        figure.add_trace(go.Bar(name=name, x=[None], y=[0], marker={"color": CLEAR}), row=1, col=1)
    lane_axis(figure, lanes.names, row=1)
    figure.add_traces(lane_traces(trace, trace.devices, divisor, window, mesh), rows=2, cols=1)
    lane_axis(figure, lane_titles(trace, mesh), row=2)
    shown = window[0] / divisor, window[1] / divisor
    time_axis(figure, shown, unit, last_row=2, standoff=_TITLE)
    return finish_timeline(figure, upper + lower + BETWEEN)


def called_kind(trace: Trace, kind: BlockKind) -> str:
    """In the legend; where all that is neither forward nor backward changes weights, it is called so."""
    rest = {op.tag.phase for op in trace.program.ops if kind_of(op) is BlockKind.OTHER}
    return _UPDATE if kind is BlockKind.OTHER and rest == {_UPDATE} else str(kind)


def memory_chart(trace: Trace, device: int, mesh: DeviceMesh | None = None) -> go.Figure:
    """The memory of a device over time, and the shares of its peak.

    Raises InputError for a device that the program does not use.
    """
    window = percents(trace, 0, 100)
    divisor, unit = time_scale(window[1], "s")
    shares = memory_shares(trace, device)
    scale, memory_unit = memory_scale(shares[0].bytes if shares else 1, "B")
    bars = share_bars(shares, scale)
    upper, lower = 160, _BAR_PIXELS * max(1, len(bars.y)) + 30
    gap = 60 / (upper + lower + 60)
    figure = make_subplots(rows=2, row_heights=[upper, lower], vertical_spacing=gap)
    figure.add_traces(lane_traces(trace, [device], divisor, window, mesh), rows=1, cols=1)
    lane_axis(figure, [""], row=1)
    figure.update_yaxes(**lane_ticks(trace, device, mesh), tickfont={"size": 11}, showgrid=True, row=1, col=1)
    time_axis(figure, (0, window[1] / divisor), unit, last_row=1, standoff=_TITLE)
    figure.add_trace(bars, row=2, col=1)
    figure.update_yaxes(autorange="reversed", row=2, col=1)
    figure.update_xaxes(title=axis_title(f"held at the peak ({memory_unit})", _TITLE), row=2, col=1)
    return finish_timeline(figure, upper + lower + 60)


def trace_cause_chart(trace: Trace, idle: ProgramIdle, mesh: DeviceMesh | None = None) -> go.Figure:
    """Per device, the shares of the latency: busy computing, and idle by cause."""
    names = [device_name(device, mesh) for device in trace.devices]
    return cause_bars(idle.causes, names, lambda ticks: show_time(ticks * idle.tick, "s"))


def _pixels(lanes: int, most: int) -> int:
    """Room for one lane where a program, which may use the host only, has none."""
    return max(1, lanes) * lane_pixels(max(1, lanes), most)


def percents(trace: Trace, first: float, last: float) -> Seconds:
    """The window from one percentage of the trace's time to another."""
    whole = max(trace.latency, 1e-12)
    return whole * (first / 100), whole * (last / 100)


@dataclass(frozen=True, slots=True)
class TraceLanes:
    """The lane of each event, and the lanes' names; events without duration have none."""

    names: tuple[str, ...]
    lane: NDArray[np.int64]
    """Per event; -1 for none."""
    kind: NDArray[np.int64]
    """Per event, the place of its kind in `BlockKind`."""

    @classmethod
    def of(cls, trace: Trace, mesh: DeviceMesh | None) -> TraceLanes:
        """Devices in order, computing above communication."""
        called = [device_name(device, mesh) for device in trace.devices]
        place = np.full(max((*trace.devices, *trace.device.tolist(), 0)) + 1, -1)
        place[list(trace.devices)] = np.arange(len(trace.devices))
        row = 2 * place[trace.device] + trace.communicates
        shown = (place[trace.device] >= 0) & (trace.seconds > 0)
        used = np.unique(np.concatenate((row[shown], 2 * np.arange(len(trace.devices)))))
        names = tuple(
            f"{called[each // 2]} {COMMUNICATION}" if each % 2 else called[each // 2] for each in used.tolist()
        )
        lane = np.where(shown, np.searchsorted(used, row), -1)
        return cls(names, lane, cls.kinds(trace)[trace.op])

    @staticmethod
    def kinds(trace: Trace) -> NDArray[np.int64]:
        """Per operation, the place of its kind in `BlockKind`."""
        kinds = list(BlockKind)
        return np.array([kinds.index(kind_of(op)) for op in trace.program.ops], np.int64)

    def within(self, trace: Trace, window: Seconds) -> NDArray[np.int64]:
        """The events in the window, in order of start."""
        inside = (trace.start < window[1]) & (trace.start + trace.seconds > window[0]) & (self.lane >= 0)
        found = np.flatnonzero(inside)
        ordered: NDArray[np.int64] = found[np.argsort(trace.start[found], kind="stable")]
        return ordered


def _event_bars(
    trace: Trace, lanes: TraceLanes, events: NDArray[np.int64], divisor: float, mesh: DeviceMesh | None, *, labels: bool
) -> list[go.Bar]:
    """A bar an event, a trace a kind; labels are micro-batches."""
    hover = _hover_texts(trace, events, mesh)
    traces = []
    for k, kind in enumerate(BlockKind):
        mine = np.flatnonzero(lanes.kind[events] == k)
        if not len(mine):
            continue
        rows = events[mine]
        micro_batches = [trace.program.ops[op].tag.micro_batch for op in trace.op[rows].tolist()]
        texts = ["" if each is None else str(each) for each in micro_batches] if labels else None
        bars = kind_bars(kind, [each or 0 for each in micro_batches], texts)
        bars.update(
            base=trace.start[rows] / divisor,
            x=trace.seconds[rows] / divisor,
            y=lanes.lane[rows],
            width=LANE,
            customdata=[hover[i] for i in mine.tolist()],
            hovertemplate=_HOVER,
        )
        traces.append(bars)
    return traces


def _event_shares(
    trace: Trace, lanes: TraceLanes, events: NDArray[np.int64], divisor: float, window: Seconds
) -> go.Heatmap:
    """The share of each column that lanes spend on each kind."""
    count = len(lanes.names)
    edges = np.linspace(*window, columns(count) + 1)
    shares = lane_shares(
        lanes.lane[events], lanes.kind[events], trace.start[events], trace.seconds[events], count, edges
    )
    return shares_trace(shares, edges / divisor, _kinds_in(lanes))


def _kinds_in(lanes: TraceLanes) -> list[BlockKind]:
    """The kinds of the events that are drawn."""
    there = set(np.unique(lanes.kind[lanes.lane >= 0]).tolist())
    return [kind for k, kind in enumerate(BlockKind) if k in there]


def _hover_texts(trace: Trace, events: NDArray[np.int64], mesh: DeviceMesh | None) -> list[tuple[str, ...]]:
    """The parts of the hover text of each event."""
    costs, program = None if mesh is None else MeshCosts(mesh), trace.program
    formulas: dict[object, str] = {}
    found = list[tuple[str, ...]]()
    for event in events.tolist():
        op = program.ops[int(trace.op[event])]
        key = (op.kind, op.attributes, *map(id, program.types_of(op.inputs)))
        if key not in formulas:
            formulas[key] = formula(program, op, costs)
        start, seconds = float(trace.start[event]), float(trace.seconds[event])
        when = (show_time(each, "s") for each in (start, start + seconds, seconds))
        found.append((_op_name(trace, op), _place(op), *when, plain(formulas[key], 200)))
    return found


def _op_name(trace: Trace, op: Op) -> str:
    """Its kind, and of what: the name of its first output where it has one."""
    made: Sequence[int] = op.outputs
    name = trace.program.names.get(made[0], "") if made else ""
    what = f"{op.kind} {name}" if name else op.kind
    return plain(what, 60)


def _place(op: Op) -> str:
    pattern = "communication" if find_operator(op.kind).pattern else ""
    stage = "" if op.tag.stage is None else f"stage {op.tag.stage}"
    micro_batch = "" if op.tag.micro_batch is None else f"micro-batch {op.tag.micro_batch}"
    return " · ".join(filter(None, (stage, micro_batch, op.tag.phase, pattern))) or "no stage"
