"""`tessel check`: the referee on any file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli.output import Json, print_json, print_notes
from tessel_core.cli.problem import bind_placement
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile, PlacementFile, ScheduleFile, WorkspaceFile
from tessel_core.formats.files import Known, read_bytes, read_known
from tessel_core.formats.graph_file import SplitFile, split_placement
from tessel_core.ir.program import Program
from tessel_core.networks.programs.program_file import read_program_file
from tessel_core.rules import (
    Violation,
    check_allowances,
    check_claims,
    check_placement,
    check_placement_claims,
    check_schedule,
)

Verdict = tuple[str, list[Violation]]

_MOST_SHOWN = 20


def check(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Plans, schedules, workspaces, graphs, meshes, programs, and placements or splits with theirs."
        ),
    ],
    json: Json = False,
) -> None:
    """Ask the referee about any tessel file; exit 1 where one is not valid."""
    verdicts = _verdicts_on(files)
    _show(verdicts, as_json=json)
    raise typer.Exit(1 if any(violations for _, violations in verdicts) else 0)


def _verdicts_on(files: Sequence[Path]) -> list[Verdict]:
    """Per file, the rules that it breaks; placements find graph and mesh among the files by their fingerprints."""
    found = [(str(path), _read(path)) for path in files]
    graphs = [each for _, each in found if isinstance(each, GraphFile)]
    meshes = [each for _, each in found if isinstance(each, MeshFile)]
    for name, each in found:
        if isinstance(each, GraphFile):
            print_notes(name, each.warnings)
    verdicts = list[Verdict]()
    for name, each in found:
        try:
            verdicts.append((name, _violations(each, graphs, meshes)))
        except InputError as error:
            raise error.within(name) from None
    return verdicts


def _show(verdicts: Sequence[Verdict], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {"file": name, "valid": not broken, "violations": list(map(asdict, broken))} for name, broken in verdicts
        ]
        print_json(rows)
        return
    for name, violations in verdicts:
        sys.stdout.write(f"{name}: {'valid' if not violations else f'not valid, {len(violations)} violation(s)'}\n")
        for violation in violations[:_MOST_SHOWN]:
            sys.stdout.write(f"  {violation}\n")
        if len(violations) > _MOST_SHOWN:
            sys.stdout.write(f"  … and {len(violations) - _MOST_SHOWN} more\n")


def _read(path: Path) -> Known | Program:
    """Any file of ours; what begins as a program's text is one, and is well-formed when it could be read."""
    data = read_bytes(path)
    if not data.startswith(b"program "):
        return read_known(data, str(path))
    return read_program_file(data, str(path)).program


def _violations(found: object, graphs: Sequence[GraphFile], meshes: Sequence[MeshFile]) -> list[Violation]:
    """A plan, graph or mesh that could be read is valid; the others have rules to keep and claims to live up to."""
    if isinstance(found, WorkspaceFile):
        from tessel_core.workbench.workspace import workspace_of

        workspace_of(replace(found, opened=None), "")  # InputError for what is not known
        return _violations(found.opened, graphs, meshes)
    if isinstance(found, ScheduleFile):
        return _of_schedule(found)
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
