"""Every kind of file that a simulation is handed on as; command line and page follow this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.exports.simulation_csv import simulation_csv
from tessel_core.exports.simulation_trace import simulation_trace, too_much_for_a_trace
from tessel_core.ir import program_text
from tessel_core.model import DeviceMesh
from tessel_core.simulation import Trace


@dataclass(frozen=True, slots=True)
class SimulationExport:
    """One entry of the table; `write` may assume a simulation to which `objection` has nothing to say."""

    name: str
    title: str
    suffix: str
    media_type: str
    write: Callable[[Trace, DeviceMesh | None, bool], bytes]
    """Of a trace, the mesh that its devices are of, and whether that mesh's own costs made the times."""
    objection: Callable[[Trace], str] = lambda trace: ""
    """Why this file cannot be made, as one sentence without its full stop; empty where it can."""


SIMULATION_EXPORTS: dict[str, SimulationExport] = {
    export.name: export
    for export in (
        SimulationExport(
            "chrome-trace",
            "Chrome trace",
            ".trace.json",
            "application/json",
            lambda trace, mesh, by_mesh: simulation_trace(trace, mesh, by_mesh=by_mesh),
            too_much_for_a_trace,
        ),
        SimulationExport(
            "csv", "CSV", ".csv", "text/csv", lambda trace, mesh, by_mesh: simulation_csv(trace, mesh).encode()
        ),
        SimulationExport(
            "program",
            "Program",
            ".txt",
            "text/plain",
            lambda trace, mesh, by_mesh: program_text(trace.program).encode(),
        ),
    )
}
"""By name, in the order in which people are offered them."""


def simulation_export_for(file_name: str) -> SimulationExport:
    """The export that a file's name asks for; InputError with the known endings where none does.

    >>> simulation_export_for("step.trace.json").name
    'chrome-trace'
    """
    for export in SIMULATION_EXPORTS.values():
        if file_name.lower().endswith(export.suffix):
            return export
    known = " or ".join(export.suffix for export in SIMULATION_EXPORTS.values())
    raise InputError("--out", f"must end in {known}, got {file_name!r}")


def export_simulation(name: str, trace: Trace, mesh: DeviceMesh | None = None, *, by_mesh: bool = True) -> bytes:
    """The file that a simulation becomes; InputError with the objection of one that cannot be made."""
    export = SIMULATION_EXPORTS[name]
    objection = export.objection(trace)
    if objection:
        raise InputError(f"export {name}", objection)
    return export.write(trace, mesh, by_mesh)
