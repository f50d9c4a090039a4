"""`tessel simulate`: time and live memory of a strategy, or of a program from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli_output import print_json
from tessel_core.cli_problem import find_mesh_file
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError
from tessel_core.formats.files import read_bytes
from tessel_core.ir import HOST, Program, read_program
from tessel_core.model import DeviceMesh
from tessel_core.strategies import (
    DEFAULT_ORDER,
    FAMILIES,
    Semantics,
    Simulated,
    Strategy,
    chain_schedulers,
    equal_devices,
    find_family,
    simulate_program,
    simulate_strategy,
)
from tessel_core.units import show_memory, show_time

Layers = Annotated[int, typer.Option(help="Layers of the network.")]
Width = Annotated[int, typer.Option(help="Numbers between its layers.")]
MeshWords = Annotated[
    str | None, typer.Option("--mesh", help="File, sample or preset (such as h200-16); else as many H200s as it takes.")
]
UniformMesh = Annotated[
    str | None,
    typer.Option(metavar="FLOPS,BYTES_PER_S,GBPS", help="Equal devices, equally linked; each in numbers like 1.4e13."),
]
Compat = Annotated[
    str | None, typer.Option(help="distir: times and memory as DistIR's published code counts them, faults included.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

_DISTIR_MESH = "1.4e13,9e11,25"
"""The devices of DistIR's experiments, which its semantics are asked about where no mesh is named."""
_PER_NODE = 8
_MOST_ROWS = 64


def simulate(
    what: Annotated[str, typer.Argument(help=f"A family ({', '.join(FAMILIES)}), or a file with a program's text.")],
    layers: Layers = 8,
    width: Width = 512,
    batch: Annotated[int, typer.Option(help="Samples of one step, over all replicas.")] = 256,
    dtype: Annotated[str, typer.Option(help="Number format: fp32, fp16, bf16 …")] = "fp16",
    data: Annotated[int, typer.Option(help="Replicas.")] = 1,
    tensor: Annotated[int, typer.Option(help="Devices that share each layer.")] = 1,
    pipeline: Annotated[int, typer.Option(help="Stages.")] = 1,
    micro_batches: Annotated[int, typer.Option(help="Parts of a replica's batch.")] = 1,
    schedule: Annotated[str, typer.Option(help=f"Order of the pipeline: {', '.join(chain_schedulers())}.")] = (
        DEFAULT_ORDER
    ),
    recompute: Annotated[bool, typer.Option("--recompute", help="Compute layers again for their backward.")] = False,
    mesh: MeshWords = None,
    uniform_mesh: UniformMesh = None,
    compat: Compat = None,
    json: _Json = False,
) -> None:
    """Time and live memory of a network under a strategy, or of a program."""
    semantics = semantics_of(compat)
    if what in FAMILIES:
        strategy = Strategy(data, tensor, pipeline, micro_batches, schedule, recompute)
        family = find_family(what)
        devices = asked_mesh(mesh, uniform_mesh, strategy.devices, semantics)
        found = simulate_strategy(family, family.spec(layers, width, batch, dtype), strategy, devices, semantics)
    else:
        program = _program_in(what)
        devices = asked_mesh(mesh, uniform_mesh, max((*program.devices, HOST + 1)), semantics)
        found = simulate_program(program, devices, semantics)
    _show(found, devices, as_json=json)
    raise typer.Exit(1 if found.shortage else 0)


def semantics_of(compat: str | None) -> Semantics:
    """What `--compat` says."""
    if compat not in (None, Semantics.DISTIR):
        raise InputError("--compat", f"{compat!r} is not known, known is {Semantics.DISTIR}")
    return Semantics.DISTIR if compat else Semantics.DEFAULT


def asked_mesh(named: str | None, uniform: str | None, count: int, semantics: Semantics) -> DeviceMesh:
    """The mesh that the options say; else `count` H200s, or of DistIR's devices under its semantics."""
    if named is not None and uniform is not None:
        raise InputError("--mesh", "says what the devices are, so leave out --uniform-mesh")
    if named is not None:
        return find_mesh_file(named).mesh
    if uniform is None and semantics is Semantics.DEFAULT:
        nodes = -(-count // _PER_NODE)
        return uniform_mesh("h200", nodes, _PER_NODE if nodes > 1 else count)
    words = (uniform or _DISTIR_MESH).split(",")
    try:
        flops, bytes_per_second, gigabits = map(float, words)
    except ValueError:
        raise InputError("--uniform-mesh", f"must be FLOPS,BYTES_PER_S,GBPS, got {uniform!r}") from None
    return equal_devices(count, flops, bytes_per_second, gigabits)


def _program_in(words: str) -> Program:
    path = Path(words)
    if not path.suffix and not path.exists():
        raise InputError(words, f"is neither a file nor a family, which are {', '.join(FAMILIES)}")
    try:
        return read_program(read_bytes(path).decode(), path.name)
    except UnicodeDecodeError:
        raise InputError(words, "is not text") from None


def _show(found: Simulated, mesh: DeviceMesh, *, as_json: bool) -> None:
    trace = found.trace
    if found.shortage:
        sys.stderr.write(f"does not fit: {found.shortage}\n")
    if as_json:
        ends, peaks = list(trace.device_end), list(trace.peak_memory)
        print_json({"latency_s": trace.latency, "device_end_s": ends, "peak_memory": peaks, "events": trace.events})
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{found.program.name} on {len(trace.devices)} of {mesh.name}'s devices", style="bold")
    console.print(f"{_time(trace.latency)}, {trace.events:,} events")
    table = Table("device", "ends", "peak memory", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for device, end, peak in list(zip(trace.devices, trace.device_end, trace.peak_memory, strict=True))[:_MOST_ROWS]:
        table.add_row(mesh.devices[device - 1].name, _time(end), show_memory(peak, "B"))
    console.print(table)
    if len(trace.devices) > _MOST_ROWS:
        console.print(f"… and {len(trace.devices) - _MOST_ROWS} more devices")


def _time(seconds: float) -> str:
    return show_time(seconds * 1e9, "ns")
