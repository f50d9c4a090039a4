"""A simulation as data for the timeline: every operation on its device's stream, and the memory of devices.

A lane is a stream, and a run is an operation on it. Durations and memory have separate columns, because no plan gives
them. Times are rounded to whole nanoseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.charts.timeline import Look, block_entry, colours_of, framed, heights, misfit, narrow
from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op
from tessel_core.model import BlockKind, DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.trace import device_name, kind_of
from tessel_core.units import TICKS_PER_SECOND

_UNIT = "ns"
_COMMUNICATION = "⇄"
"""Suffix that a device's name gets as the name of its communication lane."""
_UPDATE = "update"
"""Name of the phase of the optimizer and of the reduction of gradients."""


def trace_data(trace: Trace, mesh: DeviceMesh | None = None, look: Look | None = None) -> bytes:
    """Return the data of a simulation for the timeline, in the format of `timeline_data`.

    `mesh` gives devices their names and capacities. Operations that take no time are left out.
    """
    names = [device_name(device, mesh) for device in trace.devices]
    lanes, lane = _lanes(trace, names)
    shown = np.flatnonzero(lane >= 0)
    shown = shown[np.argsort(trace.start[shown], kind="stable")]
    op = trace.op[shown]
    blocks, block_of = _blocks(trace)
    lasts, duration = np.unique(_ticks(trace.seconds[shown]), return_inverse=True)
    steps, memory = _memory(trace)
    batches = np.array([each.tag.micro_batch or 0 for each in trace.program.ops], np.int64)
    columns = {
        "block": narrow(block_of[op]),
        "micro_batch": narrow(batches[op]),
        "operation": narrow(op.astype(np.int64)),
        "lane": narrow(lane[shown]),
        "start": narrow(np.diff(_ticks(trace.start[shown]), prepend=0)),
        "duration": narrow(duration.astype(np.int64)),
        **memory,
    }
    limits = [mesh.devices[device - 1].memory_capacity if mesh else None for device in trace.devices]
    header = {
        "devices": [
            {"name": name, "capacity": limit, "static": 0, "steps": count}
            for name, limit, count in zip(names, limits, steps, strict=True)
        ],
        "lanes": lanes,
        "blocks": blocks,
        "durations": lasts.tolist(),
        "dependencies": [],
        "operations": len(trace.program.ops),
        "microBatches": int(batches.max(initial=0)) + 1,
        "makespan": int(_ticks(np.array([trace.latency]))[0]),
        "timeUnit": _UNIT,
        "memoryUnit": "B",
        "steady": None,
        "misfit": misfit(zip(names, trace.peak_memory, limits, strict=True)),
        **colours_of(lambda kind: _called(trace, kind)),
    }
    shape = {"title": "", **heights(len(lanes), len(trace.devices)), **(look or Look()).header(0)}
    return framed(header, columns, shape)


def _ticks(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * TICKS_PER_SECOND[_UNIT]).astype(np.int64)


def _lanes(trace: Trace, names: list[str]) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """Return the lanes, and the lane of each event.

    Each device has a computing lane above its communication lanes. The lane is -1 for events that take no time or run
    on the host.
    """
    place = np.full(max((*trace.devices, *trace.device.tolist(), 0)) + 1, -1)
    place[list(trace.devices)] = np.arange(len(names))
    most = 1 + int(trace.lane.max(initial=0))
    stream = most * place[trace.device] + trace.lane
    shown = (place[trace.device] >= 0) & (trace.seconds > 0)
    used = np.unique(np.concatenate((stream[shown], most * np.arange(len(names)))))
    lanes = [
        {"name": names[d] + f" {_COMMUNICATION}" * (lane > 0), "device": d, "communicates": lane > 0}
        for d, lane in (divmod(each, most) for each in used.tolist())
    ]
    return lanes, np.where(shown, np.searchsorted(used, stream), -1)


def _called(trace: Trace, kind: BlockKind) -> str:
    """Return the name of a kind of operation in the legend.

    If all its operations belong to the optimizer's phase, the name is "update".
    """
    rest = {op.tag.phase for op in trace.program.ops if kind_of(op) is BlockKind.OTHER}
    return _UPDATE if kind is BlockKind.OTHER and rest == {_UPDATE} else str(kind)


def _blocks(trace: Trace) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """Return groups of operations with the same name, kind and stage, and the group of each operation."""
    numbers: dict[tuple[str, BlockKind, int | None, bool], int] = {}
    block_of = np.empty(len(trace.program.ops), np.int64)
    for i, op in enumerate(trace.program.ops):
        key = _name(trace, op), kind_of(op), op.tag.stage, op.tag.micro_batch is None
        block_of[i] = numbers.setdefault(key, len(numbers))
    return [
        {
            **block_entry(name, kind, stage or 0),
            **({} if stage is None else {"label": f"stage {stage}"}),
            **({"alone": True} if alone else {}),
        }
        for name, kind, stage, alone in numbers
    ], block_of


def _name(trace: Trace, op: Op) -> str:
    """Return the name of an operation.

    It is the name of a schedule's block, if the operation's first value carries one, or else the operation's kind.
    """
    if not (find_operator(op.kind).stated and op.outputs):
        return op.kind
    return trace.program.names.get(op.outputs[0], op.kind).removesuffix(f".m{op.tag.micro_batch}")


def _memory(trace: Trace) -> tuple[list[int], dict[str, NDArray[Any]]]:
    """Return the number of memory steps of each device, and all steps.

    If a device has several steps within a nanosecond, only the last one counts.
    """
    counts, gaps, held = list[int](), list[NDArray[np.int64]](), list[NDArray[np.int64]]()
    for device in trace.devices:
        on_device = trace.memory_device == device
        time = np.concatenate(([0], _ticks(trace.memory_time[on_device])))
        level = np.concatenate(([0], trace.memory_bytes[on_device]))
        last = np.append(np.diff(time) > 0, True)
        counts.append(int(last.sum()))
        gaps.append(np.diff(time[last], prepend=0))
        held.append(level[last])
    empty = np.empty(0, np.int64)
    return counts, {
        "memory_time": narrow(np.concatenate([empty, *gaps])),
        "memory_held": np.concatenate([empty, *held]).astype(np.float32),
    }
