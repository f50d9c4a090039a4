"""`tessel check`: the referee on any file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli.output import Json, print_json, print_notes
from tessel_core.cli.problem import bind_placement
from tessel_core.deadlock import (
    Channels,
    HangCertificate,
    RankActions,
    check_channels,
    csv_actions,
    program_actions,
    schedule_actions,
)
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile, PlacementFile, ScheduleFile, WorkspaceFile
from tessel_core.formats.files import Known, a_kind, foreign_schedule, read_bytes, read_known
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.formats.pytorch_csv import PyTorchCsv
from tessel_core.formats.pytorch_trace import PipelineTrace
from tessel_core.formats.run_file import RunFile
from tessel_core.ir.program import Program
from tessel_core.networks.graphs.files import with_graph
from tessel_core.networks.programs.program_file import read_program_file
from tessel_core.placement.branches import branches_apart
from tessel_core.rules import (
    Violation,
    check_allowances,
    check_claims,
    check_placement,
    check_placement_claims,
    check_run,
    check_schedule,
)
from tessel_core.samples import sample_or_file
from tessel_core.units import counted


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is found of a file; the certificate only where channels were asked for."""

    file: str
    violations: list[Violation]
    certificate: HangCertificate | None = None
    left_out: str = ""
    """What was not asked and can be wrong."""

    @property
    def bad(self) -> bool:
        return bool(self.violations) or (self.certificate is not None and not self.certificate.proceeds)


_MOST_SHOWN = 20
_SENDS_NOT_CHECKED = "only its cells were checked; --channels says whether its sends and receives can hang"


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Plans, schedules, measured runs, workspaces, graphs, meshes, programs, PyTorch's schedules (CSV) and "
            "the traces of its ranks, and placements or splits with theirs."
        ),
    ],
    channels: Annotated[
        Channels | None,
        typer.Option(help="Whether sends and receives can hang, with one queue for each of these."),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            help="Number of sends that may be outstanding in a queue. Default: 0, each waits for its receive."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Ask the referee about any file; exit 1 where one is not valid, or can hang."""
    if channels is None and capacity is not None:
        raise InputError("--capacity", "is of queues, so it needs --channels")
    if capacity is not None and capacity < 0:
        raise InputError("--capacity", f"must be at least 0, got {capacity}")
    verdicts = _verdicts_on(files, channels, capacity or 0)
    _show(verdicts, as_json=json)
    raise typer.Exit(1 if any(each.bad for each in verdicts) else 0)


def _verdicts_on(files: Sequence[str], channels: Channels | None, capacity: int) -> list[_Verdict]:
    """Per file, what is found; placements find graph and mesh among the files by their fingerprints."""
    found = [(name, _read(sample_or_file(name))) for name in files]
    graphs = [each for _, each in found if isinstance(each, GraphFile)]
    meshes = [each for _, each in found if isinstance(each, MeshFile)]
    for name, each in found:
        if isinstance(each, GraphFile):
            print_notes(name, each.warnings)
    traces = [each for _, each in found if isinstance(each, PipelineTrace)]
    verdicts = list[_Verdict]()
    for name, read in found:
        try:
            each = _schedule_in(read, traces, channels)
            violations = _violations(each, graphs, meshes)
            certificate = None if channels is None else check_channels(_actions(each), channels, capacity)
            own = channels is None and isinstance(each, PyTorchCsv)
            verdicts.append(_Verdict(name, violations, certificate, _SENDS_NOT_CHECKED if own else ""))
        except InputError as error:
            raise error.within(name) from None
    return verdicts


def _schedule_in(found: Known | Program, traces: Sequence[PipelineTrace], channels: Channels | None) -> Known | Program:
    """What PyTorch's files hold as a schedule, traces all together; a CSV's cells are kept where channels matter."""
    if isinstance(found, PipelineTrace):
        return foreign_schedule(traces)
    if isinstance(found, PyTorchCsv) and channels is None and not found.communicates:
        return foreign_schedule([found])
    return found


def _actions(found: Known | Program) -> RankActions:
    """What each rank does in turn; InputError of files without an order."""
    if isinstance(found, WorkspaceFile) and found.opened is not None:
        found = found.opened
    if isinstance(found, RunFile):
        found = found.schedule
    if isinstance(found, ScheduleFile):
        return schedule_actions(found.schedule)
    if isinstance(found, Program):
        return program_actions(found)
    if isinstance(found, PyTorchCsv):
        return csv_actions(found)
    raise InputError(
        "--channels", f"needs an order: a schedule, a program or a PyTorch CSV, and this is {a_kind(found)}"
    )


def _show(verdicts: Sequence[_Verdict], *, as_json: bool) -> None:
    if as_json:
        print_json([_row(each) for each in verdicts])
        return
    for each in verdicts:
        broken = each.violations
        valid = f"not valid, {counted(len(broken), 'violation')}" if broken else "valid"
        sys.stdout.write(f"{each.file}: {valid}\n")
        for violation in broken[:_MOST_SHOWN]:
            sys.stdout.write(f"  {violation}\n")
        if len(broken) > _MOST_SHOWN:
            sys.stdout.write(f"  … and {len(broken) - _MOST_SHOWN} more\n")
        for line in filter(None, (each.left_out, each.certificate and each.certificate.sentence)):
            sys.stdout.write(f"  {line}\n")


def _row(each: _Verdict) -> dict[str, object]:
    row = {"file": each.file, "valid": not each.violations, "violations": list(map(asdict, each.violations))}
    if each.certificate is None:
        return row
    found = each.certificate
    return row | {
        "channels": found.channels,
        "capacity": found.capacity,
        "verdict": found.verdict,
        "actions": [place._asdict() for place in found.places],
        "sentence": found.sentence,
    }


def _read(path: Path) -> Known | Program:
    """Any file of ours; what begins as a program's text is one, and is well-formed when it could be read."""
    data = read_bytes(path)
    if not data.startswith(b"program "):
        return with_graph(read_known(data, str(path)))
    return read_program_file(data, str(path)).program


def _violations(found: object, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> list[Violation]:
    """A plan, graph or mesh that could be read is valid; the others have rules to keep and claims to live up to."""
    if isinstance(found, WorkspaceFile):
        from tessel_core.workbench.workspace import workspace_of

        workspace_of(replace(found, opened=None), "")  # InputError for what is not known
        return _violations(found.opened, graphs, meshes)
    if isinstance(found, ScheduleFile):
        return _of_schedule(found)
    if isinstance(found, RunFile):
        return _of_schedule(found.schedule) + check_run(found.run)
    if isinstance(found, PlacementFile):
        return _of_placement(found, graphs, meshes)
    if isinstance(found, SplitFile):
        return _of_split(found, graphs)
    return []


def _of_schedule(found: ScheduleFile) -> list[Violation]:
    broken, report = check_schedule(found.schedule), found.report
    if report is None:
        return broken
    claims = check_claims(found.schedule, report.status, report.objective_name, report.objective, report.bound)
    return broken + list(claims)


def _of_placement(found: PlacementFile, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> list[Violation]:
    placement, report = bind_placement(found, graphs, meshes), found.report
    without = () if report is None or report.contiguous else ("contiguous",)
    broken = [*check_placement(placement, without=without), *check_allowances(placement, found.terms.allowances)]
    broken += branches_apart(placement) if report is not None and report.branches_apart else ()
    if report is None or broken:
        return broken
    return list(check_placement_claims(placement, report.status, report.objective_name, report.objective, report.bound))


def _of_split(found: SplitFile, graphs: Sequence[GraphFile]) -> list[Violation]:
    """A split by hand need not be contiguous; it belongs to the one published graph among the files."""
    published = [each for each in graphs if each.pool is not None]
    if len(published) != 1:
        raise InputError("split", f"needs its published graph among the files, there are {len(published)}")
    (graph,) = published
    assert graph.pool is not None
    return check_placement(split_placement(found, graph.graph, graph.pool), without=("contiguous",))
