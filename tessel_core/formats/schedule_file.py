"""The format tessel-schedule, version 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_number, header, read_with
from tessel_core.formats.plan_file import PLAN
from tessel_core.formats.record import COUNT, Codec, Record, at_least, or_null
from tessel_core.model import Schedule, SolveReport, Status, SteadyState
from tessel_core.model.schedule import check_size, runs_in_order

FORMAT = "tessel-schedule"


def plain_number(value: Fraction | float | None) -> int | float | None:
    """Convert a number for JSON: an integer if it is whole, otherwise a float."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(value)


NUMBER_OR_NULL = Codec(or_null(Codec(as_number)).read, plain_number).unless_absent(None)


@dataclass(frozen=True, slots=True)
class ScheduleFileReport:
    """Claims of a schedule file about its schedule.  They are not checked on reading."""

    status: Status
    objective_name: str
    objective: Annotated[float | None, NUMBER_OR_NULL]
    bound: Annotated[float | None, NUMBER_OR_NULL]
    wall_s: float

    @classmethod
    def of(cls, report: SolveReport[Any], **more: object) -> Self:
        """Build the claims from a report. `more` has the additional fields of a subclass."""
        objective, bound = (None if value is None else float(value) for value in (report.objective, report.bound))
        return cls(report.status, report.objective_name, objective, bound, round(report.wall_s, 6), **more)


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A schedule with the name of its scheduler and its report, if the file has one."""

    schedule: Schedule
    scheduler: str
    report: ScheduleFileReport | None


_REPORT = Record(ScheduleFileReport)
_STEADY = Record(SteadyState, period=at_least(1), unroll=at_least(1), first_micro_batch=COUNT, last_micro_batch=COUNT)


def read_schedule(data: bytes, name: str = "schedule") -> ScheduleFile:
    """Read the bytes of a tessel-schedule file.  The referee has not checked the schedule yet.

    Raises InputError with `name`, the place and the reason.
    """
    return read_with(schedule_from, data, name)


def schedule_from(fields: Fields) -> ScheduleFile:
    """Read a schedule from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "plan", "scheduler", "micro_batches", "runs", "repetend", "report")
    plan = PLAN.from_fields(fields.fields("plan"))
    blocks, micro_batches, starts = [], [], []
    for run in fields.objects("runs"):
        run.only("block", "micro_batch", "start")
        name = run.text("block")
        try:
            blocks.append(plan.block_index(name))
        except KeyError:
            raise InputError(run.place("block"), f"unknown block {name!r}") from None
        micro_batches.append(run.integer("micro_batch", least=0))
        starts.append(run.integer("start", least=0))
    count = fields.integer("micro_batches", least=1)
    check_size(plan, count, "micro_batches")
    repetend = None if fields.is_null("repetend") else _STEADY.from_fields(fields.fields("repetend"))
    block, micro_batch, start = np.array((blocks, micro_batches, starts), dtype=np.int64)
    schedule = Schedule(plan, count, block, micro_batch, start, repetend)
    return ScheduleFile(schedule, fields.text("scheduler"), _REPORT.from_fields(fields.fields("report")))


def schedule_text(schedule: Schedule, report: SolveReport[Schedule]) -> str:
    """Return the text of a tessel-schedule file."""
    return schedule_file_text(schedule_file(schedule, report))


def schedule_file_text(file: ScheduleFile) -> str:
    """Return the text of a tessel-schedule file for a schedule that was read from a file."""
    return json.dumps(schedule_document(file), ensure_ascii=False) + "\n"


def schedule_file(schedule: Schedule, report: SolveReport[Schedule]) -> ScheduleFile:
    """Build the file of a schedule from its report."""
    return ScheduleFile(schedule, report.solver, ScheduleFileReport.of(report))


def schedule_document(file: ScheduleFile) -> dict[str, object]:
    """Return the schedule as a JSON-ready document, alone or inside a workspace.  `file` must have a report."""
    schedule = file.schedule
    assert file.report is not None, "only files in foreign formats have no report"
    names = [block.name for block in schedule.plan.blocks]
    return {
        "format": FORMAT,
        "version": 1,
        "plan": PLAN.write(schedule.plan),
        "scheduler": file.scheduler,
        "micro_batches": schedule.micro_batches,
        "runs": [{"block": names[b], "micro_batch": m, "start": s} for b, m, s in runs_in_order(schedule)],
        "repetend": None if schedule.repetend is None else _STEADY.write(schedule.repetend),
        "report": _REPORT.write(file.report),
    }
