"""`tessel simulate`: time and live memory of a strategy, or of a program from a file."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
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
from tessel_core.simulation import Trace, memory_parts
from tessel_core.simulation import simulate as simulated
from tessel_core.simulation.idle import ProgramIdle, idle_of
from tessel_core.simulation.trace import shortage, worker_peaks
from tessel_core.strategies.evaluation import Configuration, evaluate_quickly
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.rates import StepRates, step_rates
from tessel_core.strategies.strategy import (
    MAX_TRACED,
    Semantics,
    count_operations,
    refuse_impossible,
    simulate_strategy,
)
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.program import idle_sentence, pace
from tessel_core.workbench.messages.ranks import group_names, groups_of

_SUFFIXES = " or ".join(export.suffix for export in SIMULATION_EXPORTS.values())

_MAX_ROWS = 64


@dataclass(frozen=True)
class _Found:
    """Result of a simulation.

    Lists have one entry per worker, from worker 1 to the last worker that the program uses.
    """

    name: str
    latency: float
    ends: list[float]
    peaks: list[int]
    trace: Trace | None
    """Trace of all operations. None if the strategy was simulated by blocks."""
    samples: int | None = None
    rates: StepRates | None = None
    ranks: Ranks | None = None

    @classmethod
    def of(cls, trace: Trace, samples: int | None = None, *more: StepRates | Ranks | None) -> _Found:
        """Build the result from a trace. `more` has its rates and ranks."""
        ends = dict(zip(trace.devices, trace.device_end, strict=True))
        workers = range(1, max(trace.devices, default=0) + 1)
        known = [ends.get(worker, 0.0) for worker in workers], list(worker_peaks(trace))
        return cls(trace.program.name, trace.latency, *known, trace, samples, *more)  # type: ignore[arg-type]


@options.field_by_field
def simulate(
    asked: AskedNetwork,
    mesh: options.MeshOrH200s = None,
    per_node: options.PerNode = None,
    uniform_mesh: options.UniformMesh = None,
    compat: options.Compat = None,
    overlap: options.Overlap = True,
    link_sharing: options.LinkSharing = False,
    out: Annotated[
        Path | None, typer.Option(help=f"File for the trace or the program, which the suffix decides: {_SUFFIXES}.")
    ] = None,
    json: Json = False,
) -> None:
    """Simulate the time and live memory of a network under a strategy, or of a program."""
    semantics = semantics_of(compat)
    if out is not None:
        simulation_export_for(out.name)
        check_place(out, Path(asked.what))
    if asked.in_family:
        devices = given_mesh(mesh, uniform_mesh, asked.strategy.devices, semantics, per_node)
        quick = semantics is Semantics.DEFAULT and overlap and not link_sharing and out is None
        found = _simulate_strategy(asked, devices, semantics, quick=quick, overlap=overlap, link_sharing=link_sharing)
    else:
        program = asked.file().program
        devices = given_mesh(mesh, uniform_mesh, max((*program.devices, HOST + 1)), semantics, per_node)
        how = {"compat": semantics.compat, "overlap": overlap, "link_sharing": link_sharing}
        found = _Found.of(simulated(program, devices, **how))  # type: ignore[arg-type]
    if out is not None and found.trace is not None:
        by_mesh = semantics is Semantics.DEFAULT
        write_file(out, simulation_export_for(out.name).made(found.trace, devices, by_mesh))
    note_what_is_shared(devices, range(1, len(found.ends) + 1), semantics, link_sharing=link_sharing)
    missing = shortage(found.peaks, devices)
    _show(found, devices, missing, as_json=json)
    if missing:
        sys.stderr.write(f"does not fit: {missing}\n")
    raise typer.Exit(1 if missing else 0)


def _simulate_strategy(
    asked: AskedNetwork, mesh: DeviceMesh, semantics: Semantics, *, quick: bool, overlap: bool, link_sharing: bool
) -> _Found:
    """Simulate a strategy operation by operation.

    If it has too many operations and `quick` is set, simulate it by blocks.
    """
    (family, spec), strategy = asked.network, asked.strategy
    refuse_impossible(family, spec, strategy, mesh, semantics)
    ranks = strategy.ranks(semantics)
    operations = count_operations(family, spec, strategy) if quick else 0
    if operations > MAX_TRACED:
        outcome = evaluate_quickly(family, Configuration(spec, strategy), mesh)
        if outcome is not None:
            why = f"about {operations:,} operations are timed block by block, not one by one"
            print_notes(str(strategy), [f"{why}, so idle time and parts of memory are unknown"])
            rates = step_rates(family, spec, strategy, mesh, outcome.latency)
            spread = ranks.spread(outcome.ends), ranks.spread(outcome.peaks)
            return _Found(family.describe(spec), outcome.latency, *spread, None, spec.batch, rates, ranks)
    trace = simulate_strategy(family, spec, strategy, mesh, semantics, overlap=overlap, link_sharing=link_sharing).trace
    return _Found.of(trace, spec.batch, step_rates(family, spec, strategy, mesh, trace.latency), ranks)


def _show(found: _Found, mesh: DeviceMesh, missing: str, *, as_json: bool) -> None:
    """Print the result as text or JSON."""
    idle = None if found.trace is None else idle_of(found.trace)
    if found.trace is not None:
        print_notes(found.name, found.trace.warnings)
    if as_json:
        print_json(_document(found, mesh, missing, idle))
        return
    used = range(1, len(found.ends) + 1) if found.trace is None else found.trace.devices
    screen = console(f"{found.name} on {len(used)} of {mesh.name}'s devices")
    time = show_time(found.latency, "s") if found.samples is None else pace(found.latency, found.samples)
    screen.print(time if found.trace is None else f"{time}, {found.trace.events:,} events")
    for line in filter(None, (idle_sentence(idle) if idle else "", _rates(found.rates))):
        screen.print(line, soft_wrap=True)
    for each in groups_of(found.ranks, mesh) if found.ranks else []:
        screen.print(each.sentence, soft_wrap=True)
    devices = table("device", "ends", "peak memory", header_style="bold")
    for worker in list(used)[:_MAX_ROWS]:
        end, peak = found.ends[worker - 1], found.peaks[worker - 1]
        devices.add_row(mesh.devices[worker - 1].name, show_time(end, "s"), show_memory(peak, "B"))
    screen.print(devices)
    if len(used) > _MAX_ROWS:
        screen.print(f"… and {len(used) - _MAX_ROWS} more devices")


def _rates(rates: StepRates | None) -> str:
    """Return a line with tokens per second and device, and the model FLOPs utilisation, if known."""
    if rates is None:
        return ""
    tokens, share = rates.tokens_per_s_per_device, rates.model_flops_utilization
    words = [] if tokens is None else [f"{tokens:,.0f} tokens per second and device"]
    return ", ".join(words + ([] if share is None else [f"model FLOPs utilisation {share:.1%}"]))


def _document(found: _Found, mesh: DeviceMesh, missing: str, idle: ProgramIdle | None) -> dict[str, object]:
    """Return the `--json` document.

    Idle time is that of devices that the program uses. Parts of memory are those of the fullest device.
    """
    fullest = max(range(len(found.peaks)), key=found.peaks.__getitem__, default=None)
    parts = None if found.trace is None or fullest is None else memory_parts(found.trace, fullest + 1)
    rates = dict.fromkeys(StepRates.__dataclass_fields__) if found.rates is None else asdict(found.rates)
    return {
        **({"status": str(Status.INFEASIBLE), "reason": missing} if missing else {}),
        "latency_s": found.latency,
        "device_end_s": found.ends,
        "peak_memory": found.peaks,
        "events": None if found.trace is None else found.trace.events,
        "seconds_per_sample": None if found.samples is None else found.latency / found.samples,
        **rates,
        "memory_parts": parts,
        "rank_order": None if found.ranks is None else ",".join(found.ranks.order),
        "groups": None if found.ranks is None else group_names(found.ranks, mesh),
        **_idle(idle),
    }


def _idle(found: ProgramIdle | None) -> dict[str, object]:
    """Return idle time split by parts and by causes, as shares of all device time."""
    rates = {f"{part}_rate": found and float(getattr(found.split, part)) for part in ("idle", "imbalance", "bubble")}
    return {**rates, "idle_causes": found and {str(c): float(s) for c, s in found.causes.shares.items()}}
