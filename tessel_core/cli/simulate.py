"""`tessel simulate`: time and live memory of a strategy, or of a program from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.network import AskedNetwork
from tessel_core.cli.output import Json, console, print_json, print_notes, table
from tessel_core.cli.simulation_problem import given_mesh, note_what_is_shared, semantics_of
from tessel_core.exports.simulation_files import SIMULATION_EXPORTS, simulation_export_for
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place
from tessel_core.ir.types import HOST
from tessel_core.model import DeviceMesh, Status
from tessel_core.simulation import Trace
from tessel_core.simulation import simulate as simulated
from tessel_core.simulation.idle import ProgramIdle, idle_of
from tessel_core.simulation.trace import device_name, shortage, worker_peaks
from tessel_core.strategies.strategy import Semantics, simulate_strategy
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.program import idle_sentence, pace

_SUFFIXES = " or ".join(export.suffix for export in SIMULATION_EXPORTS.values())

_MOST_ROWS = 64


@options.field_by_field
def simulate(
    asked: AskedNetwork,
    mesh: options.MeshOrH200s = None,
    uniform_mesh: options.UniformMesh = None,
    compat: options.Compat = None,
    overlap: options.Overlap = True,
    link_sharing: options.LinkSharing = False,
    out: Annotated[Path | None, typer.Option(help=f"File for the whole trace, or the program: {_SUFFIXES}.")] = None,
    json: Json = False,
) -> None:
    """Time and live memory of a network under a strategy, or of a program."""
    semantics, samples = semantics_of(compat), None
    if out is not None:
        simulation_export_for(out.name)
        check_place(out, Path(asked.what))
    if asked.in_family:
        family, spec = asked.network
        devices = given_mesh(mesh, uniform_mesh, asked.strategy.devices, semantics)
        samples = spec.batch
        trace = simulate_strategy(
            family, spec, asked.strategy, devices, semantics, overlap=overlap, link_sharing=link_sharing
        ).trace
    else:
        program = asked.file().program
        devices = given_mesh(mesh, uniform_mesh, max((*program.devices, HOST + 1)), semantics)
        trace = simulated(program, devices, compat=semantics.compat, overlap=overlap, link_sharing=link_sharing)
    if out is not None:
        by_mesh = semantics is Semantics.DEFAULT
        write_file(out, simulation_export_for(out.name).made(trace, devices, by_mesh))
    note_what_is_shared(devices, trace.devices, semantics, link_sharing=link_sharing)
    missing = shortage(worker_peaks(trace), devices)
    _show(trace, devices, missing, samples, as_json=json)
    if missing:
        sys.stderr.write(f"does not fit: {missing}\n")
    raise typer.Exit(1 if missing else 0)


def _show(trace: Trace, mesh: DeviceMesh, missing: str, samples: int | None, *, as_json: bool) -> None:
    """For people, or as one JSON document; `samples` of a step where they are known."""
    print_notes(trace.program.name, trace.warnings)
    if as_json:
        print_json(_document(trace, missing, samples))
        return
    screen = console(f"{trace.program.name} on {len(trace.devices)} of {mesh.name}'s devices")
    time = show_time(trace.latency, "s") if samples is None else pace(trace.latency, samples)
    screen.print(f"{time}, {trace.events:,} events")
    if idle := idle_of(trace):
        screen.print(idle_sentence(idle), soft_wrap=True)
    devices = table("device", "ends", "peak memory", header_style="bold")
    for device, end, peak in list(zip(trace.devices, trace.device_end, trace.peak_memory, strict=True))[:_MOST_ROWS]:
        devices.add_row(device_name(device, mesh), show_time(end, "s"), show_memory(peak, "B"))
    screen.print(devices)
    if len(trace.devices) > _MOST_ROWS:
        screen.print(f"… and {len(trace.devices) - _MOST_ROWS} more devices")


def _document(trace: Trace, missing: str, samples: int | None) -> dict[str, object]:
    """Lists are of workers 1 to the last that the program uses; idle time is of those that it uses."""
    ends, peaks = (dict(zip(trace.devices, column, strict=True)) for column in (trace.device_end, trace.peak_memory))
    workers = range(1, max(trace.devices, default=0) + 1)
    return {
        **({"status": str(Status.INFEASIBLE), "reason": missing} if missing else {}),
        "latency_s": trace.latency,
        "device_end_s": [ends.get(worker, 0.0) for worker in workers],
        "peak_memory": [peaks.get(worker, 0) for worker in workers],
        "events": trace.events,
        "seconds_per_sample": None if samples is None else trace.latency / samples,
        **_idle(idle_of(trace)),
    }


def _idle(found: ProgramIdle | None) -> dict[str, object]:
    """Idle time by its parts, and by its causes, as shares that add up to it."""
    rates = {f"{part}_rate": found and float(getattr(found.split, part)) for part in ("idle", "imbalance", "bubble")}
    return {**rates, "idle_causes": found and {str(c): float(s) for c, s in found.causes.shares.items()}}
