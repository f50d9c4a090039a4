"""tessel-schedule, version 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, header, read_inside, read_with
from tessel_core.formats.plan_file import plan_document, plan_from
from tessel_core.model import Schedule, SolveReport, Status, SteadyState
from tessel_core.model.schedule import IntColumn, check_size, runs_in_order

FORMAT = "tessel-schedule"


@dataclass(frozen=True, slots=True)
class ScheduleFileReport:
    """What a schedule file claims about itself."""

    status: Status
    objective_name: str
    objective: float | None
    bound: float | None
    wall_s: float


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """A schedule as it was kept: who made it and what was claimed."""

    schedule: Schedule
    scheduler: str
    report: ScheduleFileReport | None


def read_schedule(data: bytes, name: str = "schedule") -> ScheduleFile:
    """A schedule from the bytes of a tessel-schedule file; the referee has not judged it yet.

    InputError says the place and the reason, `name` first.
    """
    return read_with(schedule_from, data, name)


def schedule_from(fields: Fields) -> ScheduleFile:
    """A schedule from a parsed document."""
    header(fields, FORMAT)
    fields.only("format", "version", "plan", "scheduler", "micro_batches", "runs", "repetend", "report")
    plan = read_inside(plan_from, fields.fields("plan"))
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
    wanted = fields.integer("micro_batches", least=1)
    check_size(plan, wanted, "micro_batches")
    schedule = Schedule(
        plan,
        wanted,
        _column(blocks),
        _column(micro_batches),
        _column(starts),
        _repetend(fields),
    )
    return ScheduleFile(schedule, fields.text("scheduler"), _report(fields.fields("report")))


def _column(values: list[int]) -> IntColumn:
    return np.array(values, dtype=np.int64)


def _repetend(fields: Fields) -> SteadyState | None:
    if fields.is_null("repetend"):
        return None
    steady = fields.fields("repetend")
    steady.only("period", "unroll", "first_micro_batch", "last_micro_batch")
    return SteadyState(
        steady.integer("period", least=1),
        steady.integer("unroll", least=1),
        steady.integer("first_micro_batch", least=0),
        steady.integer("last_micro_batch", least=0),
    )


def _report(fields: Fields) -> ScheduleFileReport:
    fields.only("status", "objective_name", "objective", "bound", "wall_s")
    return ScheduleFileReport(
        status_from(fields),
        fields.text("objective_name"),
        None if fields.is_null("objective") else fields.number("objective"),
        None if fields.is_null("bound") else fields.number("bound"),
        fields.number("wall_s"),
    )


def status_from(fields: Fields) -> Status:
    """How a search ended, under the key `status`."""
    status = fields.text("status")
    if status not in tuple(Status):
        raise InputError(fields.place("status"), f"must be one of {', '.join(Status)}, got {status!r}")
    return Status(status)


def schedule_text(schedule: Schedule, report: SolveReport[Schedule]) -> str:
    """The text of a tessel-schedule file."""
    return schedule_file_text(schedule_file(schedule, report))


def schedule_file_text(file: ScheduleFile) -> str:
    """As `schedule_text`, of what was kept before."""
    return json.dumps(schedule_document(file), ensure_ascii=False) + "\n"


def schedule_file(schedule: Schedule, report: SolveReport[Schedule]) -> ScheduleFile:
    """What is kept of a schedule and of the report that it comes with."""
    objective, bound = (None if value is None else float(value) for value in (report.objective, report.bound))
    claims = ScheduleFileReport(report.status, report.objective_name, objective, bound, round(report.wall_s, 6))
    return ScheduleFile(schedule, report.solver, claims)


def schedule_document(file: ScheduleFile) -> dict[str, object]:
    """The schedule as a JSON-ready document, alone or inside a workspace; `file` has a report."""
    schedule, steady, report = file.schedule, file.schedule.repetend, file.report
    assert report is not None, "only files in foreign formats have no report"
    names = [block.name for block in schedule.plan.blocks]
    return {
        "format": FORMAT,
        "version": 1,
        "plan": plan_document(schedule.plan),
        "scheduler": file.scheduler,
        "micro_batches": schedule.micro_batches,
        "runs": [{"block": names[b], "micro_batch": m, "start": s} for b, m, s in runs_in_order(schedule)],
        "repetend": None
        if steady is None
        else {
            "period": steady.period,
            "unroll": steady.unroll,
            "first_micro_batch": steady.first_micro_batch,
            "last_micro_batch": steady.last_micro_batch,
        },
        "report": {
            "status": str(report.status),
            "objective_name": report.objective_name,
            "objective": _plain(report.objective),
            "bound": _plain(report.bound),
            "wall_s": report.wall_s,
        },
    }


def _plain(value: float | None) -> int | float | None:
    """Whole numbers as JSON says them best."""
    return int(value) if value is not None and value.is_integer() else value


def plain_number(value: Fraction | None) -> int | float | None:
    """A fraction as JSON says it: an integer where it is whole, else a float."""
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)
