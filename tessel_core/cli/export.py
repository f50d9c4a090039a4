"""`tessel export`: write a schedule as a file for another program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tessel_core.cli.output import print_json, print_notes
from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS, Export, export_for, export_schedule, find_export
from tessel_core.exports.pytorch_csv import NO_TORCHTITAN, PYTORCH_CSV, torchrun_script, torchtitan_settings
from tessel_core.formats import ScheduleFile, write_file
from tessel_core.formats.files import check_place, foreign_schedule, read_any, reading_of, refused
from tessel_core.formats.pytorch_csv import PyTorchCsv
from tessel_core.formats.pytorch_trace import PipelineTrace
from tessel_core.formats.run_file import RunFile
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.scheduling import evaluate_file
from tessel_core.workbench.as_written import hang_of

_KINDS = ", ".join(EXPORTS)
_SUFFIXES = ", ".join(export.suffix for export in EXPORTS.values())


def export(
    schedule: Annotated[
        list[Path],
        typer.Argument(
            help="Schedule: a tessel-schedule file, a JSON file of the published Tessel code, a PyTorch CSV file, or "
            "traces of the PyTorch profiler, one file per rank."
        ),
    ],
    to: Annotated[str | None, typer.Option(help=f"Format: {_KINDS}. Default: given by the suffix of --out.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help=f"File to write. Known suffixes are {_SUFFIXES}. Default: print text formats to stdout."),
    ] = None,
    script: Annotated[
        bool,
        typer.Option(
            "--script",
            help="With --to pytorch-csv: also write a torchrun script beside the file, and print torchtitan settings.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document about the file to stdout in place of text.")
    ] = False,
) -> None:
    """Export a schedule as a report, a picture, a trace or a table."""
    kind = _kind(to, out)
    beside = _script_place(kind, out) if script else None
    if out is None:
        _check_stdout(kind, json)
    else:
        for source in schedule:
            check_place(out, source)
    report = _report_in(schedule)
    assert report.solution is not None, "an invalid schedule raised when it was read"
    data = export_schedule(kind.name, report.solution, report)
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    write_file(out, data)
    about: dict[str, object] = {"file": str(out), "format": kind.name, "bytes": len(data)}
    lines = [f"{out}: {kind.title}, {len(data):,} bytes"]
    if beside is not None:
        more, said = _write_script(report.solution, out, beside)
        about, lines = about | more, lines + said
    if json:
        print_json(about)
    else:
        sys.stdout.write("\n".join(lines) + "\n")


def _write_script(schedule: Schedule, out: Path, beside: Path) -> tuple[dict[str, object], list[str]]:
    """Write the torchrun script. Return a description of it as JSON fields and as lines of text."""
    text, ranks = torchrun_script(schedule, out.name, beside.name), len(schedule.plan.devices)
    write_file(beside, text)
    settings = torchtitan_settings(schedule, str(out))
    lines = [f"{beside}: script, {len(text):,} bytes: torchrun --nproc-per-node {ranks} {beside}"]
    lines += ["torchtitan:", *(f"  {each}" for each in settings)] if settings else [NO_TORCHTITAN]
    return {"script": str(beside), "torchtitan": settings}, lines


def _script_place(kind: Export, out: Path | None) -> Path:
    """Return the path of the script. Raises InputError if it exists, because it may hold the user's model."""
    if kind.name != PYTORCH_CSV:
        raise InputError("--script", f"is for {PYTORCH_CSV}, not {kind.name}")
    if out is None:
        raise InputError("--script", "is written beside a file, so it needs --out")
    beside = out.with_suffix(".py")
    if beside.exists():
        raise InputError(
            str(beside),
            "exists and may hold your model, so it is not replaced. Leave out --script: the "
            "script runs the new file too",
        )
    check_place(beside)
    return beside


def _kind(to: str | None, out: Path | None) -> Export:
    if to is not None:
        return find_export(to)
    if out is None:
        raise InputError("tessel export", f"needs --out FILE, or --to with one of {_KINDS}")
    return export_for(out.name)


def _check_stdout(kind: Export, json: bool) -> None:
    if json:
        raise InputError("--json", "describes the written file, so it needs --out")
    if not kind.is_text:
        raise InputError("--out", f"is missing: {kind.name} is a binary format and is not printed to stdout")


def _report_in(paths: Sequence[Path]) -> ScheduleReport:
    """Read a schedule from a file or from traces of its ranks. Raises InputError with the first rule that it breaks."""
    path, read = paths[0], [read_any(each) for each in paths]
    traces = [each for each in read if isinstance(each, PipelineTrace)]
    if len(read) > 1 and len(traces) < len(read):
        raise InputError(str(paths[1]), "is one file too many: only traces of ranks can be combined")
    (found, *_), foreign = read, [each for each in read if isinstance(each, PyTorchCsv | PipelineTrace)]
    if isinstance(found, MicroBatchPlan):
        raise InputError(str(path), "is a plan, not a schedule; `tessel schedule` with --out writes a schedule of it")
    if isinstance(found, RunFile):
        found = found.schedule
    if not foreign and not isinstance(found, ScheduleFile):
        raise refused(found, str(path), "a schedule")
    try:
        if foreign:
            found = foreign_schedule(foreign)
        assert isinstance(found, ScheduleFile)
        report = evaluate_file(found)
    except InputError as error:
        raise error.within(str(path)) from None
    for each in foreign[:1]:
        hang = hang_of(each, found.schedule.plan) if isinstance(each, PyTorchCsv) else None
        print_notes(str(path), [reading_of(each), *([hang.sentence] if hang else [])])
    return report
