"""`tessel place`: operators of a graph onto devices."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli_output import print_json, print_notes
from tessel_core.cli_problem import (
    CommunicationOption,
    CostWords,
    DeviceWords,
    Dtype,
    Forbid,
    InFlight,
    Mesh,
    Optimizer,
    Pin,
    asked_problem,
)
from tessel_core.cli_solving import solving
from tessel_core.errors import InputError
from tessel_core.formats import (
    GraphFile,
    assignment_document,
    check_place,
    placement_text,
    plain_number,
    read_graph_file,
    write_file,
)
from tessel_core.model import PlacementLoads, PlacementReport
from tessel_core.placement import DEFAULT_PLACER, PLACERS, THROUGHPUT, find_placer, solve_placement
from tessel_core.units import show_memory, show_time

_KNOWN = ", ".join(PLACERS)


def place(
    graph: Annotated[Path, typer.Argument(help="A tessel-graph file, the published device-placement JSON, or ONNX.")],
    mesh: Mesh = None,
    accelerators: Annotated[int | None, typer.Option(help="How many; else what a published graph says.")] = None,
    cpus: Annotated[int | None, typer.Option(help="How many; else what a published graph says, else none.")] = None,
    memory: Annotated[float | None, typer.Option(help="Bytes of one accelerator; else as published, or all.")] = None,
    communication: CommunicationOption = None,
    dtype: Dtype = None,
    optimizer: Optimizer = None,
    in_flight: InFlight = None,
    pin: Pin = None,
    forbid: Forbid = None,
    objective: Annotated[str, typer.Option(help="throughput: the least largest load of a device.")] = THROUGHPUT,
    placer: Annotated[str, typer.Option(help=f"One of {_KNOWN}.")] = DEFAULT_PLACER,
    contiguous: Annotated[bool, typer.Option("--contiguous", help="Stages follow each other; so they do.")] = True,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds; the dynamic program's default is 60.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; nothing is written without a solution.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Place the operators of a graph on devices, a pipeline stage each."""
    if out is not None:
        check_place(out, graph)
    if objective != THROUGHPUT:
        raise InputError("--objective", f"{objective!r} is not known, known are {THROUGHPUT}")
    file = read_graph_file(graph)
    devices = DeviceWords(mesh, accelerators, cpus, memory)
    costs = CostWords(communication, dtype, optimizer, in_flight)
    asked, config = asked_problem(file, devices, costs, pin or (), forbid or ()), _config(placer, time_limit)
    with solving(file.graph.time_unit) as solve:
        report = solve(lambda control: solve_placement(placer, asked.problem, config, control))
    if out is not None and report.solution is not None:
        write_file(out, placement_text(report, file, asked.devices, asked.terms, contiguous=contiguous))
    print_notes(str(graph), file.warnings)
    _show(file, report, as_json=json)
    raise typer.Exit(0 if report.solution is not None else 1)


def _config(placer: str, time_limit: float | None) -> object:
    kind = find_placer(placer).config
    if time_limit is None:
        return kind()
    if any(field.name == "time_limit" for field in fields(kind)):
        return kind(time_limit=time_limit)
    sys.stderr.write(f"note: --time-limit has no effect on placer {placer}\n")
    return kind()


def place_document(file: GraphFile, report: PlacementReport) -> dict[str, object]:
    """The `--json` of `tessel place`; unknown values are null, loads in the graph's time unit."""
    placement = report.solution
    return {
        "status": str(report.status),
        "objective_name": report.objective_name,
        "objective": plain_number(report.objective),
        "bound": plain_number(report.bound),
        "gap": report.gap,
        "time_unit": file.graph.time_unit,
        "loads": None if placement is None else _loads(report),
        "assignment": None if placement is None else assignment_document(placement),
        "wall_s": report.wall_s,
        "reason": report.reason,
        "least_memory": report.least_memory,
        "least_accelerators": report.least_accelerators,
    }


def _loads(report: PlacementReport) -> dict[str, float]:
    assert report.solution is not None
    loads = PlacementLoads.of(report.solution)
    return {device.name: load for device, load in zip(report.solution.devices, loads.load, strict=True)}


def _show(file: GraphFile, report: PlacementReport, *, as_json: bool) -> None:
    """A report for people, or as JSON."""
    if as_json:
        print_json(place_document(file, report))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"{file.graph.name}, {report.solver}", style="bold")
    for line in _verdict(file, report):
        console.print(line, soft_wrap=True)
    if report.solution is None:
        return
    headings = ("device", "kind", "operators", "load", "of it transfers", "memory", "capacity")
    table = Table(*headings, box=None, padding=(0, 2, 0, 0))
    loads, unit = PlacementLoads.of(report.solution), file.graph.time_unit
    for i, device in enumerate(report.solution.devices):
        count = len(report.solution.operators_on[i])
        times = (show_time(each, unit) for each in (loads.load[i], loads.communication[i]))
        room = "unlimited" if device.memory_capacity is None else show_memory(device.memory_capacity, "B")
        table.add_row(device.name, device.kind, str(count), *times, show_memory(loads.memory[i], "B"), room)
    console.print(table)


def _verdict(file: GraphFile, report: PlacementReport) -> list[str]:
    unit, lines = file.graph.time_unit, list[str]()
    if report.objective is not None and report.bound is not None:
        proof = "proved optimal" if report.gap == 0 else f"bound {show_time(float(report.bound), unit)}"
        lines.append(f"Largest load {show_time(float(report.objective), unit)}, {proof}")
    if report.reason:
        lines.append(f"{report.status}: {report.reason}")
    if report.least_memory is not None:
        lines.append(f"Least memory that would do: {report.least_memory:,} bytes an accelerator")
    if report.least_accelerators is not None:
        lines.append(f"Least number of accelerators that would do: {report.least_accelerators}")
    return lines
