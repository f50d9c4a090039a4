"""`tessel joint`: schedule the best placements, and rank them by period."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, console, print_json, print_notes, table
from tessel_core.cli.problem import PlacementArguments
from tessel_core.cli.solving import solve
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, schedule_text, write_file
from tessel_core.formats.files import check_place
from tessel_core.formats.schedule_file import plain_number
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.samples import sample_or_file
from tessel_core.units import show_time

if TYPE_CHECKING:
    from tessel_core.planning import JointReport


@options.field_by_field
def joint(
    graph: options.Graph,
    asked: PlacementArguments,
    contiguous: options.Contiguous = True,
    placements: Annotated[
        int,
        typer.Option(
            help="Number of placements to schedule. More can find a shorter period, and share the time limit."
        ),
    ] = 6,
    time_limit: Annotated[
        float,
        typer.Option(help="Time limit in seconds for the whole search. Raising it can improve answers and bounds."),
    ] = 60.0,
    workers: Annotated[int, typer.Option(help="Solver threads. With 1, the same seed gives the same answer.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of random choices.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File for the best schedule.")] = None,
    placement_out: Annotated[Path | None, typer.Option(help="File for the placement of the best schedule.")] = None,
    json: Json = False,
) -> None:
    """Search placement and schedule together: schedule the best placements, and rank them by period."""
    from tessel_core.planning import JointConfig
    from tessel_core.workbench.placement_files import answer_text
    from tessel_core.workbench.planning import joint_question

    source = sample_or_file(graph)
    for path in (out, placement_out):
        check_place(path, source)
    if out is not None and out == placement_out:
        raise InputError("--placement-out", "names the same file as --out")
    file = read_graph_file(source, graph)
    placing = replace(asked.posed_on(file), contiguous=contiguous)
    question = joint_question(placing, JointConfig(placements, placing.costs.micro_batches, time_limit, workers, seed))
    report = solve(question.solve, "ns")
    best = report.best
    if best is not None and out is not None and best.report.solution is not None:
        write_file(out, schedule_text(best.report.solution, best.report))
    if best is not None and placement_out is not None:
        write_file(placement_out, answer_text(placing, report.placement_report(best)))
    print_notes(graph, file.warnings)
    _show(file, report, as_json=json)
    raise typer.Exit(0 if best is not None else 1)


def _show(file: GraphFile, report: JointReport, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(report))
        return
    screen = console(f"{file.graph.name}, placement and schedule together")
    if report.best is None:
        screen.print(report.placement.reason or "None of the best placements could be scheduled", soft_wrap=True)
    elif report.proved:
        screen.print("Proved: no placement of this kind has a shorter period with any schedule")
    elif report.bound is not None:
        screen.print(f"No placement of this kind has a period below {show_time(float(report.bound), 'ns')}")
    rows = table("placement", "largest load", "period", "bound", "makespan")
    for entry in report.entries:
        load = show_time(entry.candidate.load, file.graph.time_unit)
        period = "none" if entry.period is None else show_time(float(entry.period), "ns")
        makespan = "" if entry.report.makespan is None else show_time(entry.report.makespan, "ns")
        rows.add_row(entry.candidate.origin, load, period, show_time(float(entry.report.period_bound), "ns"), makespan)
    if report.entries:
        screen.print(rows)


def _document(report: JointReport) -> dict[str, object]:
    """Return the `--json` document. Best entries come first. Times are in ns, loads in the time unit of the graph."""
    return {
        "status": str(report.best.report.status) if report.best else str(report.placement.status),
        "proved": report.proved,
        "period_per_micro_batch": plain_number(report.best.period) if report.best else None,
        "bound_per_micro_batch": plain_number(report.bound),
        "wall_s": report.wall_s,
        "reason": report.placement.reason,
        "entries": [
            {
                "placement": entry.candidate.origin,
                "largest_load": entry.candidate.load,
                "period_per_micro_batch": plain_number(entry.period),
                "bound_per_micro_batch": plain_number(entry.report.period_bound),
                "makespan": entry.report.makespan,
                "status": str(entry.report.status),
            }
            for entry in report.entries
        ],
    }
