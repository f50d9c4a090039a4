"""`tessel check`: check files against all rules."""

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
    """Result of checking one file. It has a certificate only with `--channels`."""

    file: str
    violations: list[Violation]
    certificate: HangCertificate | None = None
    left_out: str = ""
    """Sentence about a check that was left out, and how to ask for it."""

    @property
    def bad(self) -> bool:
        """Whether the file breaks a rule or can hang."""
        return bool(self.violations) or (self.certificate is not None and not self.certificate.proceeds)


_MAX_VIOLATIONS_SHOWN = 20
_SENDS_NOT_CHECKED = (
    "only the actions in its cells were checked; add --channels to check whether its sends and receives can hang"
)


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Plans, schedules, measured runs, workspaces, graphs, meshes, programs, PyTorch schedules (CSV) and "
            "profiler traces of ranks. Give a placement or split together with its graph, and its mesh if it has one."
        ),
    ],
    channels: Annotated[
        Channels | None,
        typer.Option(
            help="Also check whether sends and receives can hang, with one queue of sent tensors per rank, per pair of "
            "ranks, per direction of a pair, or per edge of the plan and direction. Fewer queues hang more easily."
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            help="With --channels: sends per queue that may run ahead of their receives. Raising it can remove hangs. "
            "Default: 0, each send waits for its receive."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check files against all rules; exit with 1 if a file is invalid or its ranks can hang."""
    if channels is None and capacity is not None:
        raise InputError("--capacity", "is the capacity of queues, so it needs --channels")
    if capacity is not None and capacity < 0:
        raise InputError("--capacity", f"must be at least 0, got {capacity}")
    verdicts = _verdicts_on(files, channels, capacity or 0)
    _show(verdicts, as_json=json)
    raise typer.Exit(1 if any(each.bad for each in verdicts) else 0)


def _verdicts_on(files: Sequence[str], channels: Channels | None, capacity: int) -> list[_Verdict]:
    """Return one verdict per file.

    The graph and mesh of a placement are found among the files by their fingerprints.
    """
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
    """Convert files of PyTorch to schedules.

    All traces become one schedule. A CSV is not converted if its sends and receives are checked.
    """
    if isinstance(found, PipelineTrace):
        return foreign_schedule(traces)
    if isinstance(found, PyTorchCsv) and channels is None and not found.communicates:
        return foreign_schedule([found])
    return found


def _actions(found: Known | Program) -> RankActions:
    """Return the order of actions per rank. Raises InputError if the file has no order."""
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
    raise InputError("--channels", f"needs a schedule, a program or a PyTorch CSV, and this is {a_kind(found)}")


def _show(verdicts: Sequence[_Verdict], *, as_json: bool) -> None:
    if as_json:
        print_json([_row(each) for each in verdicts])
        return
    for each in verdicts:
        broken = each.violations
        valid = f"not valid, {counted(len(broken), 'violation')}" if broken else "valid"
        sys.stdout.write(f"{each.file}: {valid}\n")
        for violation in broken[:_MAX_VIOLATIONS_SHOWN]:
            sys.stdout.write(f"  {violation}\n")
        if len(broken) > _MAX_VIOLATIONS_SHOWN:
            sys.stdout.write(f"  … and {len(broken) - _MAX_VIOLATIONS_SHOWN} more\n")
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
    """Read a file of any known format. A file that begins with "program " is the text of a program."""
    data = read_bytes(path)
    if not data.startswith(b"program "):
        return with_graph(read_known(data, str(path)))
    return read_program_file(data, str(path)).program


def _violations(found: object, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> list[Violation]:
    """Return the broken rules and false claims of a file.

    A plan, graph or mesh has none, because reading it checks its rules.
    """
    if isinstance(found, WorkspaceFile):
        from tessel_core.workbench.workspace import workspace_of

        workspace_of(replace(found, opened=None), "")  # raises InputError if it is malformed
        return _violations(found.opened, graphs, meshes)
    if isinstance(found, ScheduleFile):
        return _schedule_violations(found)
    if isinstance(found, RunFile):
        return _schedule_violations(found.schedule) + check_run(found.run)
    if isinstance(found, PlacementFile):
        return _placement_violations(found, graphs, meshes)
    if isinstance(found, SplitFile):
        return _split_violations(found, graphs)
    return []


def _schedule_violations(found: ScheduleFile) -> list[Violation]:
    broken, report = check_schedule(found.schedule), found.report
    if report is None:
        return broken
    claims = check_claims(found.schedule, report.status, report.objective_name, report.objective, report.bound)
    return broken + list(claims)


def _placement_violations(
    found: PlacementFile, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]
) -> list[Violation]:
    placement, report = bind_placement(found, graphs, meshes), found.report
    without = () if report is None or report.contiguous else ("contiguous",)
    broken = [*check_placement(placement, without=without), *check_allowances(placement, found.terms.allowances)]
    broken += branches_apart(placement) if report is not None and report.branches_apart else ()
    if report is None or broken:
        return broken
    return list(check_placement_claims(placement, report.status, report.objective_name, report.objective, report.bound))


def _split_violations(found: SplitFile, graphs: Sequence[GraphFile]) -> list[Violation]:
    """Check a split made by hand, which need not be contiguous, against the only published graph among the files."""
    published = [each for each in graphs if each.pool is not None]
    if len(published) != 1:
        raise InputError("split", f"needs exactly one published graph among the files, got {len(published)}")
    (graph,) = published
    assert graph.pool is not None
    return check_placement(split_placement(found, graph.graph, graph.pool), without=("contiguous",))
