"""A simulation as a table for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace

COLUMNS = (
    *("device", "stream", "operation", "kind", "stage", "micro_batch", "phase"),
    *("start_s", "end_s", "memory_after"),
)


def simulation_csv(trace: Trace, mesh: DeviceMesh | None = None) -> str:
    """One line an operation and worker, ordered by device and by start.

    `operation` is its place in the program, `memory_after` what the device holds when it has ended, in bytes.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    end = trace.start + trace.seconds
    for device in trace.devices:
        name, events = device_name(device, mesh), np.flatnonzero(trace.device == device)
        events = events[np.argsort(trace.start[events], kind="stable")]
        held = _held(trace, device, end[events])
        columns = trace.op[events], trace.communicates[events], trace.start[events], end[events], held
        for number, talks, begins, ends, after in zip(*(each.tolist() for each in columns), strict=True):
            op = trace.program.ops[number]
            tag = (op.tag.stage, op.tag.micro_batch, op.tag.phase)
            stream = "communication" if talks else "computing"
            writer.writerow((name, stream, number, op.kind, *tag, begins, ends, after))
    return text.getvalue()


def device_name(device: int, mesh: DeviceMesh | None) -> str:
    """As the mesh calls a worker; without one by its number."""
    return f"device {device}" if mesh is None else mesh.devices[device - 1].name


def _held(trace: Trace, device: int, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Bytes that the device holds after all steps up to each time."""
    mine = trace.memory_device == device
    levels = np.concatenate(([0], trace.memory_bytes[mine]))
    return np.asarray(levels[np.searchsorted(trace.memory_time[mine], times, side="right")])
