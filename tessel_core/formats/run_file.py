"""tessel-run, version 1: a schedule, and what became of it when it ran."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tessel_core.formats.fields import Fields, header, read_with
from tessel_core.formats.record import AMOUNT, COUNT, Record, list_of, or_null
from tessel_core.formats.schedule_file import ScheduleFile, schedule_document, schedule_from
from tessel_core.model import MeasuredRun

FORMAT = "tessel-run"


@dataclass(frozen=True, slots=True)
class RunFile:
    """A measured run, and its schedule as it was kept."""

    schedule: ScheduleFile
    run: MeasuredRun


_RUN = Record(
    MeasuredRun,
    without=("schedule",),
    start_ns=list_of(list_of(COUNT)),
    end_ns=list_of(list_of(COUNT)),
    peak_bytes=list_of(COUNT),
    difference=or_null(AMOUNT),
    tick_ns=or_null(AMOUNT),
    unit_bytes=or_null(AMOUNT),
)


def read_run(data: bytes, name: str = "run") -> RunFile:
    """A run from the bytes of a tessel-run file; InputError says the place and the reason, `name` first."""
    return read_with(run_from, data, name)


def run_from(fields: Fields) -> RunFile:
    """A run from a parsed document."""
    header(fields, FORMAT)
    kept = schedule_from(fields.fields("schedule"))
    return RunFile(kept, _RUN.from_fields(fields, "format", "version", "schedule", schedule=kept.schedule))


def run_text(file: RunFile) -> str:
    """The text of a tessel-run file; its schedule has a report."""
    head = {"format": FORMAT, "version": 1, "schedule": schedule_document(file.schedule)}
    return json.dumps(head | _RUN.write(file.run), ensure_ascii=False) + "\n"
