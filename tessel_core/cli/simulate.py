"""`tessel simulate`: time and live memory of a strategy, or of a program from a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, console, option, print_json, print_notes, table
from tessel_core.cli.simulation_problem import given_mesh, given_sizes, note_what_is_shared, semantics_of
from tessel_core.errors import InputError
from tessel_core.exports.simulation_files import SIMULATION_EXPORTS, simulation_export_for
from tessel_core.formats import write_file
from tessel_core.formats.files import check_place, read_bytes
from tessel_core.ir.program import Program
from tessel_core.ir.types import HOST
from tessel_core.model import DeviceMesh, Status
from tessel_core.networks.programs.program_file import open_sizes, read_program_file
from tessel_core.simulation import Trace
from tessel_core.simulation import simulate as simulated
from tessel_core.simulation.idle import ProgramIdle, idle_of
from tessel_core.simulation.trace import shortage, worker_peaks
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.orders import DEFAULT_ORDER, chain_schedulers
from tessel_core.strategies.strategy import Semantics, Strategy, simulate_strategy
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.messages.program import idle_sentence, pace

_Hidden = Annotated[int | None, typer.Option(help="Hidden size of a GPT. Default: as published.")]
_Heads = Annotated[int | None, typer.Option(help="Number of attention heads of a GPT. Default: as published.")]
_Vocabulary = Annotated[int | None, typer.Option(help="Vocabulary size of a GPT. Default: as published.")]
_Sequence = Annotated[int | None, typer.Option(help="Sequence length of a GPT. Default: as published.")]
_SUFFIXES = " or ".join(export.suffix for export in SIMULATION_EXPORTS.values())

_MOST_ROWS = 64


def _choices(family: str, name: str) -> str:
    return ", ".join(next(size.choices for size in FAMILIES[family].sizes if size.name == name))


def simulate(
    what: Annotated[
        str, typer.Argument(help=f"A family ({', '.join(FAMILIES)}), or a file: a program's text, or ONNX.")
    ],
    size: Annotated[str | None, typer.Option(help=f"Published size of a GPT: {_choices('gpt', 'size')}.")] = None,
    layers: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Numbers between layers of an MLP.")] = None,
    hidden: _Hidden = None,
    heads: _Heads = None,
    vocabulary: _Vocabulary = None,
    sequence: _Sequence = None,
    batch: Annotated[int | None, typer.Option(help="Samples of one step, over all replicas.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Number format: fp32, fp16, bf16 …")] = None,
    mode: Annotated[str | None, typer.Option(help=f"What a GPT does: {_choices('gpt', 'mode')}.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of the prompt, or before the one decoded.")] = None,
    data: Annotated[int, typer.Option(help="Number of replicas.")] = 1,
    tensor: Annotated[int, typer.Option(help="Number of devices that share each layer.")] = 1,
    pipeline: Annotated[int, typer.Option(help="Number of pipeline stages.")] = 1,
    micro_batches: Annotated[
        int, typer.Option(help="Number of micro-batches into which a replica's batch is cut.")
    ] = 1,
    schedule: Annotated[str, typer.Option(help=f"Order of the pipeline: {', '.join(chain_schedulers())}.")] = (
        DEFAULT_ORDER
    ),
    recompute: Annotated[bool, typer.Option("--recompute", help="Compute layers again for their backward.")] = False,
    zero: Annotated[bool, typer.Option("--zero", help="Replicas share the optimizer's state (ZeRO-1).")] = False,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=N", help="A size that an ONNX file leaves open; repeatable."),
    ] = None,
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
        check_place(out, Path(what))
    strategy = Strategy(data, tensor, pipeline, micro_batches, schedule, recompute, zero)
    given: dict[str, object] = {"layers": layers, "width": width, "hidden": hidden, "heads": heads}
    given |= {"vocabulary": vocabulary, "sequence": sequence, "batch": batch, "context": context}
    given |= {"size": size, "dtype": dtype, "mode": mode}
    if what in FAMILIES:
        if sizes:
            raise InputError("--set", f"is for the open sizes of ONNX files, and {what} is a family")
        family = find_family(what)
        spec = family.spec(**given_sizes(family, given))
        devices = given_mesh(mesh, uniform_mesh, strategy.devices, semantics)
        samples = spec.batch
        trace = simulate_strategy(
            family, spec, strategy, devices, semantics, overlap=overlap, link_sharing=link_sharing
        ).trace
    else:
        _check_for_file(strategy, given)
        program = _program_in(what, open_sizes(sizes or (), "--set"), data)
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


def _check_for_file(strategy: Strategy, sizes: Mapping[str, object]) -> None:
    """Raise InputError for options that a file does not take, which says itself what it is."""
    given = [name for name, value in sizes.items() if value is not None]
    given += [name for name in _OF_FAMILIES if getattr(strategy, name) != getattr(Strategy(), name)]
    if given:
        why = "is for families; of files, --data divides the batch of an ONNX model, and --set says its open sizes"
        raise InputError(option(given[0]), why)


_OF_FAMILIES = ("tensor", "pipeline", "micro_batches", "schedule", "recompute", "zero")


def _program_in(file: str, sizes: Mapping[str, int], replicas: int) -> Program:
    path = Path(file)
    if not path.suffix and not path.exists():
        raise InputError(file, f"is neither a file nor a family, which are {', '.join(FAMILIES)}")
    found = read_program_file(read_bytes(path), path.name, sizes, replicas)
    print_notes(file, found.warnings)
    return found.program


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
        devices.add_row(mesh.devices[device - 1].name, show_time(end, "s"), show_memory(peak, "B"))
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
