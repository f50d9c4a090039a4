"""Lanes of a simulation's picture: each device's computing, and where there is any, its communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.bars import kind_bars
from tessel_core.charts.figure import CLEAR, LANE, plain
from tessel_core.charts.palette import TRANSFER
from tessel_core.charts.raster import columns, lane_shares, shares_trace
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.model import BlockKind, DeviceMesh
from tessel_core.simulation import MeshCosts, Trace, formula, kind_of
from tessel_core.units import show_time

Seconds = tuple[float, float]
"""The part of the time that a picture shows."""

_HOVER = (
    "<b>%{customdata[0]}</b> · %{customdata[1]}<br>%{customdata[2]} – %{customdata[3]} (%{customdata[4]})<br>"
    "%{customdata[5]}<extra></extra>"
)
COMMUNICATION_MARK = "⇄"
"""Behind the name of a device, for its lane of communication."""
_OPERATION = 6
"""Where the data of a bar has the number of its operation."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Which lane each event is in, and what the lanes are called; events without duration have none."""

    names: tuple[str, ...]
    lane: NDArray[np.int64]
    """Per event; -1 for none."""
    kind: NDArray[np.int64]
    """Per event, the place of its kind in `BlockKind`."""

    @classmethod
    def of(cls, trace: Trace, mesh: DeviceMesh | None) -> Lanes:
        """Devices in order, computing above communication."""
        called = [device_name(device, mesh) for device in trace.devices]
        place = np.full(max((*trace.devices, *trace.device.tolist(), 0)) + 1, -1)
        place[list(trace.devices)] = np.arange(len(trace.devices))
        row = 2 * place[trace.device] + trace.communicates
        shown = (place[trace.device] >= 0) & (trace.seconds > 0)
        used = np.unique(np.concatenate((row[shown], 2 * np.arange(len(trace.devices)))))
        names = tuple(
            f"{called[each // 2]} {COMMUNICATION_MARK}" if each % 2 else called[each // 2] for each in used.tolist()
        )
        kinds = list(BlockKind)
        kind = np.array([kinds.index(kind_of(op)) for op in trace.program.ops], np.int64)
        return cls(names, np.where(shown, np.searchsorted(used, row), -1), kind[trace.op])

    def within(self, trace: Trace, window: Seconds) -> NDArray[np.int64]:
        """The events in the window, in order of start."""
        inside = (trace.start < window[1]) & (trace.start + trace.seconds > window[0]) & (self.lane >= 0)
        found = np.flatnonzero(inside)
        ordered: NDArray[np.int64] = found[np.argsort(trace.start[found], kind="stable")]
        return ordered


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """Worker w is device w - 1 of the mesh."""
    return plain(mesh.devices[device - 1].name) if mesh and 0 < device <= len(mesh.devices) else f"device {device}"


def event_bars(
    trace: Trace, lanes: Lanes, events: NDArray[np.int64], divisor: float, mesh: DeviceMesh | None, *, labels: bool
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


def event_shares(trace: Trace, lanes: Lanes, events: NDArray[np.int64], divisor: float, window: Seconds) -> go.Heatmap:
    """What share of each column lanes spend on what."""
    count = len(lanes.names)
    edges = np.linspace(*window, columns(count) + 1)
    shares = lane_shares(
        lanes.lane[events], lanes.kind[events], trace.start[events], trace.seconds[events], count, edges
    )
    return shares_trace(shares, edges / divisor, kinds_in(lanes))


def kinds_in(lanes: Lanes) -> list[BlockKind]:
    """The kinds of the events that are drawn."""
    there = set(np.unique(lanes.kind[lanes.lane >= 0]).tolist())
    return [kind for k, kind in enumerate(BlockKind) if k in there]


def marks(trace: Trace, lanes: Lanes, op: int, divisor: float) -> go.Bar:
    """A frame around each event of an operation."""
    rows = np.flatnonzero((trace.op == op) & (lanes.lane >= 0))
    return go.Bar(
        name="selected",
        orientation="h",
        base=trace.start[rows] / divisor,
        x=trace.seconds[rows] / divisor,
        y=lanes.lane[rows],
        width=1,
        marker={"color": CLEAR, "line": {"width": 2.5, "color": TRANSFER}},
        hoverinfo="skip",
        showlegend=False,
    )


def selected_operation(points: Sequence[Mapping[str, Any]]) -> int | None:
    """The operation of the bar that was clicked, by its place in the program; None where none was."""
    for point in points:
        data = point.get("customdata")
        if isinstance(data, list | tuple) and len(data) > _OPERATION:
            return int(data[_OPERATION])
    return None


def _hover_texts(trace: Trace, events: NDArray[np.int64], mesh: DeviceMesh | None) -> list[tuple[str | int, ...]]:
    """The parts of the hover text of each event, and the number of its operation."""
    costs, program = None if mesh is None else MeshCosts(mesh), trace.program
    formulas: dict[object, str] = {}
    found = list[tuple[str | int, ...]]()
    for event in events.tolist():
        number = int(trace.op[event])
        op = program.ops[number]
        key = (op.kind, op.attributes, *map(id, program.types_of(op.inputs)))
        if key not in formulas:
            formulas[key] = formula(program, op, costs)
        start, seconds = float(trace.start[event]), float(trace.seconds[event])
        when = (show_time(each, "s") for each in (start, start + seconds, seconds))
        found.append((_called(trace, op), _place(op), *when, plain(formulas[key], 200), number))
    return found


def _called(trace: Trace, op: Op) -> str:
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
