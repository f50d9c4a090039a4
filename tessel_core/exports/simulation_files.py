"""The file formats for simulations. The command line and the pages offer them."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.exports.simulation_trace import simulation_trace, too_much_for_a_trace
from tessel_core.exports.table import EXPORTS, Export
from tessel_core.ir.text import program_text
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace
from tessel_core.simulation.trace import device_name

COLUMNS = (
    *("device", "stream", "operation", "kind", "stage", "micro_batch", "phase"),
    *("start_s", "end_s", "memory_after"),
)


def simulation_csv(trace: Trace, mesh: DeviceMesh | None = None) -> str:
    """Return a CSV file with one line per operation and device, ordered by device and start.

    `operation` is the index in the program. `memory_after` is the memory of the device in bytes after the operation has
    ended.
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
        for number, communicates, begins, ends, after in zip(*(each.tolist() for each in columns), strict=True):
            op = trace.program.ops[number]
            tag = (op.tag.stage, op.tag.micro_batch, op.tag.phase)
            stream = "communication" if communicates else "computing"
            writer.writerow((name, stream, number, op.kind, *tag, begins, ends, after))
    return text.getvalue()


def _held(trace: Trace, device: int, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the memory of the device at each of `times` in bytes. Changes at this time are included."""
    here = trace.memory_device == device
    levels = np.concatenate(([0], trace.memory_bytes[here]))
    return np.asarray(levels[np.searchsorted(trace.memory_time[here], times, side="right")])


SIMULATION_EXPORTS: dict[str, Export] = {
    export.name: export
    for export in (
        replace(EXPORTS["chrome-trace"], write=simulation_trace, objection=too_much_for_a_trace),
        replace(
            EXPORTS["csv"],
            about="one line per operation and worker, for spreadsheets",
            write=lambda trace, mesh, by_mesh: simulation_csv(trace, mesh).encode(),
        ),
        Export(
            "program",
            "Program",
            "its operations as text",
            ".txt",
            "text/plain",
            lambda trace, mesh, by_mesh: program_text(trace.program).encode(),
        ),
    )
}
"""File formats by name, in the order of menus.

`write` has three arguments: a trace, the mesh of its devices, and whether the durations come from the costs of that
mesh.
"""


def simulation_export_for(file_name: str) -> Export:
    """Return the format for the suffix of a file name. If there is none, raise InputError with the known suffixes.

    >>> simulation_export_for("step.trace.json").name
    'chrome-trace'
    """
    for export in SIMULATION_EXPORTS.values():
        if file_name.lower().endswith(export.suffix):
            return export
    known = " or ".join(export.suffix for export in SIMULATION_EXPORTS.values())
    raise InputError("--out", f"must end in {known}, got {file_name!r}")
