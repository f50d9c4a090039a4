"""tessel-run, version 1: a schedule, and what became of it when it ran."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tessel_core.formats.fields import Fields, header, read_with
from tessel_core.formats.record import AMOUNT, COUNT, Record, list_of, or_null
from tessel_core.formats.schedule_file import ScheduleFile, ScheduleFileReport, schedule_document, schedule_from
from tessel_core.model import MAKESPAN, Expected, MeasuredRun, Status

FORMAT = "tessel-run"


@dataclass(frozen=True, slots=True)
class RunFile:
    """A measured run, and its schedule as it was kept."""

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
    """The run as it is kept; what is claimed of its schedule stands in the file that it came from."""
    claims = kept.report if kept is not None else None
    claims = claims or ScheduleFileReport(Status.FEASIBLE, MAKESPAN, run.schedule.makespan, None, 0.0)
    return RunFile(ScheduleFile(run.schedule, "" if kept is None else kept.scheduler, claims), run)


def read_run(data: bytes, name: str = "run") -> RunFile:
    """A run from the bytes of a tessel-run file; InputError says the place and the reason, `name` first."""
    return read_with(run_from, data, name)


def run_from(fields: Fields) -> RunFile:
    """A run from a parsed document."""
    header(fields, FORMAT)
    kept = schedule_from(fields.fields("schedule"))
    return RunFile(kept, _RUN.from_fields(fields, "format", "version", "schedule", schedule=kept.schedule))


def run_document(file: RunFile) -> dict[str, object]:
    """The run as a JSON-ready object; its schedule has a report."""
    head = {"format": FORMAT, "version": 1, "schedule": schedule_document(file.schedule)}
    return head | _RUN.write(file.run)


def run_text(file: RunFile) -> str:
    """The text of a tessel-run file."""
    return json.dumps(run_document(file), ensure_ascii=False) + "\n"
