"""`tessel place`: place the operators of a graph on devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, Out, config_of, console, print_json, print_notes, table
from tessel_core.cli.problem import PlacementArguments
from tessel_core.cli.solving import solve
from tessel_core.errors import InputError, find
from tessel_core.formats import GraphFile, write_file
from tessel_core.formats.files import check_place, read_any
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.formats.megatron_layout import layout_text, read_layout
from tessel_core.formats.placement_file import assignment_document
from tessel_core.formats.schedule_file import plain_number
from tessel_core.model import (
    FORWARD_BACKWARD,
    LATENCY,
    THROUGHPUT,
    Latency,
    LayoutShape,
    Placement,
    PlacementLoads,
    PlacementReport,
    StageLayout,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS, PlacementProblem, default_placer, find_placer, solve_placement
from tessel_core.placement.by_layer import place_by_layer, stage_letters, stages_by_layer
from tessel_core.samples import sample_or_file
from tessel_core.units import show_memory, show_time
from tessel_core.workbench.placing import Placing

_KNOWN = ", ".join(PLACERS)
_OBJECTIVES = (
    "Quantity to minimise. throughput: the largest load of a device; forward-backward: the largest forward load plus "
    "the largest backward load; latency: the time of one sample."
)
_MEASURES = {
    THROUGHPUT: "Largest load",
    FORWARD_BACKWARD: "Largest forward and largest backward load",
    LATENCY: "Latency",
}


@options.with_options(PLACERS.added.values())
@options.field_by_field
def place(
    graph: options.Graph,
    asked: PlacementArguments,
    objective: Annotated[str, typer.Option(help=_OBJECTIVES)] = THROUGHPUT,
    placer: Annotated[
        str | None, typer.Option(help=f"Algorithm: {_KNOWN}. Default: chosen by objective, stages and devices.")
    ] = None,
    contiguous: options.Contiguous = True,
    branches_apart: Annotated[
        bool,
        typer.Option(
            "--branches-apart", help="Let no device hold operators of two branches, such as the two encoders of CLIP."
        ),
    ] = False,
    subgraphs: Annotated[
        int | None,
        typer.Option(
            help="With --objective latency: subgraphs that a device may run one after the other. More can lower the "
            "latency and take longer to search. Default: the placer's own."
        ),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            help="File with a split to evaluate instead of searching, as in the published device-placement code "
            "(JSON with `fpgas` and `cpus`)."
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="Megatron-LM layout of whole layers to evaluate, such as Et*2|(t*2|)*4,tL."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="megatron: write the layout as arguments of Megatron-LM, to --out or stdout.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Time limit in seconds. Raising it can improve the answer and its bound. Default: the placer's own."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Solver threads. With 1, the same seed gives the same answer. Default: the placer's own."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random choices. Default: the placer's own.")] = None,
    out: Out = None,
    json: Json = False,
    **given: Any,
) -> None:
    """Place the operators of a graph on devices, with one or more pipeline stages per device."""
    source = sample_or_file(graph)
    check_place(out, source)
    find(_MEASURES, objective, "--objective")
    file = read_graph_file(source, graph)
    placing = asked.posed_on(file)
    if to is not None:
        _check_target(to, placing)
    placing = replace(placing, objective=objective, contiguous=contiguous, branches_apart=branches_apart)
    placing, problem = _problem(file, placing, split, layout)
    name = _placer_of(problem, placer)
    given |= {"time_limit": time_limit, "workers": workers, "seed": seed, "subgraphs": subgraphs}
    config = config_of(find_placer(name).config, given, f"placer {name}")
    report = solve(lambda control: solve_placement(name, problem, config, control), file.graph.time_unit)
    print_notes(graph, file.warnings)
    _deliver(file, placing, report, to, out, as_json=json)
    raise typer.Exit(0 if report.solution is not None else 1)


def _problem(
    file: GraphFile, placing: Placing, split: Path | None, layout: str | None
) -> tuple[Placing, PlacementProblem]:
    """Return question and problem. If `--split` or `--layout` was given, the problem has that placement."""
    if layout is None:
        by_hand = None if split is None else _by_hand(split, file, placing)
        return placing, replace(placing.problem, by_hand=by_hand)
    if split is not None:
        raise InputError("--layout", "places all operators, and so does --split: give only one of them")
    if placing.layout is not None:
        raise InputError("--layout", "has stages of its own, so leave out --stages-per-device")
    return _by_layer(layout, placing)


def _deliver(
    file: GraphFile, placing: Placing, report: PlacementReport, to: str | None, out: Path | None, *, as_json: bool
) -> None:
    """Write the answer to `out`, if given, and print it.

    With `--to megatron`, print or write arguments of Megatron-LM instead.
    """
    arguments = None
    if report.solution is not None and to is not None:
        from tessel_core.exports.megatron import layout_arguments

        arguments = layout_arguments(report.solution)
    if out is not None and report.solution is not None:
        from tessel_core.workbench.placement_files import answer_text

        write_file(out, answer_text(placing, report) if arguments is None else arguments)
    if arguments is not None and out is None and not as_json:
        typer.echo(arguments, nl=False)
    else:
        _show(file, report, as_json=as_json)


def _check_target(to: str, placing: Placing) -> None:
    if to != "megatron":
        raise InputError("--to", f"unknown format {to!r}; the only format is megatron")
    if placing.layout is None:
        raise InputError("--to", "needs several stages per device, so give --stages-per-device too")
    if placing.layout.shape is not LayoutShape.LOOP:
        raise InputError("--to", "needs a loop of stages, because Megatron-LM runs no --layout-shape v")


def _placer_of(problem: PlacementProblem, asked: str | None) -> str:
    """Return the placer that the user named, or the default.

    Raises InputError if a search is named together with a placement made by hand, or a placer that only evaluates is
    named without one.
    """
    name = asked or ("expert" if problem.by_hand else default_placer(problem))
    judges = find_placer(name).judges
    if problem.by_hand is None and judges:
        raise InputError("--placer", f"{name} evaluates a placement made by hand, so give --split or --layout")
    if problem.by_hand is not None and not judges:
        raise InputError(
            "--placer", f"{name} searches, but --split and --layout already place all operators: leave it out"
        )
    return name


def _by_hand(path: Path, file: GraphFile, placing: Placing) -> tuple[tuple[int, ...], ...]:
    found = read_any(path)
    if not isinstance(found, SplitFile):
        raise InputError(str(path), "is not a split; a split lists its parts in `fpgas` and `cpus`")
    if placing.on_mesh:
        raise InputError("--split", "is a placement on numbered devices, so leave out --mesh")
    return split_placement(found, file.graph, placing.pool).assignment


def _by_layer(layout: str, placing: Placing) -> tuple[Placing, PlacementProblem]:
    """Return question and problem with a layout of whole layers. Stages are assigned to the devices in turn."""
    accelerators = [i for i, device in enumerate(placing.problem.devices) if not device.is_host]
    try:
        stages = read_layout(layout)
        by_hand = place_by_layer(placing.problem.graph, stages, accelerators)
        rounds = len(stages) // len(accelerators)
        if rounds < 2 or not all(stages):  # a plan cannot hold the empty stages of a layout
            placing = replace(placing, contiguous=placing.contiguous and rounds < 2)
            return placing, replace(placing.problem, by_hand=by_hand)
        placing = replace(placing, layout=StageLayout(rounds))
        stage_of = stages_by_layer(placing.problem.graph, stages)
        return placing, replace(placing.problem, by_hand=by_hand, stages_by_hand=stage_of)
    except InputError as error:
        raise error.within("--layout") from None


def _document(file: GraphFile, report: PlacementReport) -> dict[str, object]:
    """Return the `--json` document. Unknown values are null. Loads are in the time unit of the graph."""
    placement = report.solution
    return {
        "status": str(report.status),
        "objective_name": report.objective_name,
        "objective": plain_number(report.objective),
        "bound": plain_number(report.bound),
        "gap": report.gap,
        "time_unit": file.graph.time_unit,
        "loads": None if placement is None else _loads(placement),
        **({"assignment": None} if placement is None else assignment_document(placement)),
        **({} if placement is None or placement.stages is None else {"layout": _layout_string(placement)}),
        "wall_s": report.wall_s,
        "reason": report.reason,
        "least_memory": report.least_memory,
        "least_accelerators": report.least_accelerators,
    }


def _layout_string(placement: Placement) -> str | None:
    """Return the layout in the notation of Megatron-LM. None if that notation cannot express it."""
    try:
        return layout_text(stage_letters(placement))
    except InputError:
        return None


def _loads(placement: Placement) -> dict[str, float]:
    groups, busy = placement.transfers.groups, _busy(placement)
    if groups is None:
        return {device.name: load for device, load in zip(placement.devices, busy, strict=True)}
    loads = {each: load for members, load in zip(groups.members, busy, strict=True) for each in members}
    return {device.name: loads[i] for i, device in enumerate(groups.mesh.devices)}


def _busy(placement: Placement) -> tuple[float, ...]:
    """Return the load of each device. For latency, the load is the time that the device works on one sample."""
    if placement.subgraphs is None:
        return PlacementLoads.of(placement).load
    latency = Latency.of(placement)
    return tuple(latency.busy(device) for device in range(len(placement.devices)))


def _show(file: GraphFile, report: PlacementReport, *, as_json: bool) -> None:
    """Print a report as text or JSON."""
    if as_json:
        print_json(_document(file, report))
        return
    screen = console(f"{file.graph.name}, {report.solver}")
    for line in _verdict(file, report):
        screen.print(line, soft_wrap=True)
    if report.solution is None:
        return
    if report.solution.stages is not None and (letters := _layout_string(report.solution)) is not None:
        screen.print(f"Layout {letters}", soft_wrap=True, markup=False)
    replicated = report.solution.replicated
    more = ("reductions", "replica") if replicated else ()
    devices = table("device", "kind", "operators", "load", "transfers", "memory", "capacity", *more)
    loads, busy, unit = PlacementLoads.of(report.solution), _busy(report.solution), file.graph.time_unit
    for i, device in enumerate(report.solution.devices):
        count = len(report.solution.operators_on[i])
        reduction = loads.reduction[i]
        times = (show_time(each, unit) for each in (busy[i], max(0.0, busy[i] - loads.work[i] - reduction)))
        stage = report.solution.stage_at(i)
        shares = (show_time(reduction, unit), f"{stage.index(i) + 1} of {len(stage)}") if replicated else ()
        room = "unlimited" if device.memory_capacity is None else show_memory(device.memory_capacity, "B")
        devices.add_row(device.name, device.kind, str(count), *times, show_memory(loads.memory[i], "B"), room, *shares)
    screen.print(devices)


def _verdict(file: GraphFile, report: PlacementReport) -> list[str]:
    unit, lines = file.graph.time_unit, list[str]()
    if report.objective is not None and report.bound is not None:
        proof = "proved optimal" if report.gap == 0 else f"bound {show_time(float(report.bound), unit)}"
        lines.append(f"{_MEASURES[report.objective_name]} {show_time(float(report.objective), unit)}, {proof}")
    if report.reason:
        lines.append(f"{str(report.status).replace('_', ' ').capitalize()}: {report.reason}")
    if report.least_memory is not None:
        lines.append(f"Smallest sufficient memory: {report.least_memory:,} bytes per accelerator")
    if report.least_accelerators is not None:
        lines.append(f"Smallest sufficient number of accelerators: {report.least_accelerators}")
    return lines
