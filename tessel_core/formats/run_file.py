"""The format tessel-run, version 1: a schedule and the times measured when it ran."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tessel_core.formats.fields import Fields, header
from tessel_core.formats.record import AMOUNT, COUNT, Record, list_of, or_null
from tessel_core.formats.schedule_file import ScheduleFile, ScheduleFileReport, schedule_document, schedule_from
from tessel_core.model import MAKESPAN, Expected, MeasuredRun, Status

FORMAT = "tessel-run"


@dataclass(frozen=True, slots=True)
class RunFile:
    """A measured run, and the file of its schedule."""

    schedule: ScheduleFile
    run: MeasuredRun


_COUNTS = list_of(COUNT)
_EXPECTED = Record(Expected, block_ns=_COUNTS, turn_ns=_COUNTS, lag_ns=_COUNTS, peak_bytes=_COUNTS)
_RUN = Record(
    MeasuredRun,
    without=("schedule",),
    start_ns=list_of(list_of(COUNT)),
    end_ns=list_of(list_of(COUNT)),
    peak_bytes=_COUNTS,
    difference=or_null(AMOUNT),
    tick_ns=or_null(AMOUNT),
    unit_bytes=or_null(AMOUNT),
    expected=or_null(_EXPECTED),
)


def run_file(run: MeasuredRun, kept: ScheduleFile | None = None) -> RunFile:
    """Build the file of a run.  The report of its schedule comes from the schedule's own file, if there is one."""
    claims = kept.report if kept is not None else None
    claims = claims or ScheduleFileReport(Status.FEASIBLE, MAKESPAN, run.schedule.makespan, None, 0.0)
    return RunFile(ScheduleFile(run.schedule, "" if kept is None else kept.scheduler, claims), run)


def run_from(fields: Fields) -> RunFile:
    """Read a run from a parsed document."""
    header(fields, FORMAT)
    kept = schedule_from(fields.fields("schedule"))
    return RunFile(kept, _RUN.from_fields(fields, "format", "version", "schedule", schedule=kept.schedule))


def run_document(file: RunFile) -> dict[str, object]:
    """Return the run as a JSON-ready object.  Its schedule must have a report."""
    head = {"format": FORMAT, "version": 1, "schedule": schedule_document(file.schedule)}
    return head | _RUN.write(file.run)


def run_text(file: RunFile) -> str:
    """Return the text of a tessel-run file."""
    return json.dumps(run_document(file), ensure_ascii=False) + "\n"
