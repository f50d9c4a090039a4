"""The format tessel-answer, version 1: the whole report of a schedule search, so that its page can be shown again.

Fractions are exact and therefore text, such as `"16/3"`. `schedule` is the schedule of the report. `shortest` and
`steady` are documents of their own, null, or `"schedule"` if they are the same schedule. Older files have neither key.
Their only schedule contains the repetend, and is read as both.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import numpy as np

from tessel_core.control import Progress
from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, as_items, as_text, read_inside, read_with
from tessel_core.formats.record import COUNT, TEXT, Codec, Record, list_of, or_null
from tessel_core.formats.schedule_file import schedule_document, schedule_file, schedule_from
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, PeriodInfimum, Repetend, Schedule, ScheduleReport
from tessel_core.units import counted

_SAME_AS_SCHEDULE = "schedule"
_FRACTION = re.compile(r"-?[0-9]{1,200}(/0*[1-9][0-9]{0,200})?")


def _fraction_from(value: object, where: str) -> Fraction:
    text = as_text(value, where)
    if not _FRACTION.fullmatch(text):
        raise InputError(where, f'must be a fraction like "16/3", got {text[:40]!r}')
    return Fraction(text)


_EXACT = Codec(_fraction_from, str)
_EXACT_OR_NULL = or_null(_EXACT).unless_absent(None)
_PROGRESS = Record(Progress, objective=_EXACT_OR_NULL, bound=_EXACT_OR_NULL)
_INFIMUM = Record(PeriodInfimum, per_micro_batch=_EXACT, excess=_EXACT, micro_batches=COUNT)
_SCHEDULES = ("solution", "relaxed_solution", "shortest", "steady", "repetend")
"""Fields of the report that need the plan when they are read, or that are whole tessel-schedule documents."""
_REPORT = Record(
    ScheduleReport,
    *("solver", "status", "objective_name", "objective", "bound", "period_bound", "period_infimum", "makespan_bound"),
    *("least_capacity", "wall_s", "repetend_s", "completion_s", "reason"),
    format="tessel-answer",
    without=("config", *_SCHEDULES),
    solver=TEXT.under("scheduler"),
    objective=_EXACT_OR_NULL,
    bound=_EXACT_OR_NULL,
    period_bound=_EXACT,
    period_infimum=or_null(_INFIMUM).sparse(),
    makespan_bound=COUNT,
    least_capacity=or_null(COUNT),
    reason=TEXT.required(),
    history=list_of(_PROGRESS).required(),
)


def read_answer(data: bytes, plan: MicroBatchPlan, name: str = "answer") -> ScheduleReport:
    """Read the answer to a question about `plan`, without its config.  The referee has not checked it yet.

    Raises InputError with `name`, the place and the reason.
    """
    return read_with(lambda fields: _answer_from(fields, plan), data, name)


def _answer_from(fields: Fields, plan: MicroBatchPlan) -> ScheduleReport:
    schedule, fits = _schedule(fields, plan), fields.truth("fits")
    repetend = None if fields.is_null("repetend") else _repetend(fields.fields("repetend"), plan)
    shortest, steady = (_other(fields, key, plan, schedule) for key in ("shortest", "steady"))
    if not fields.has("shortest") and repetend is not None and schedule is not None:
        shortest, steady = schedule, schedule if schedule.repetend is not None else None
    return _REPORT.from_fields(
        fields,
        *("fits", "schedule", "shortest", "steady", "repetend"),
        solution=schedule if fits else None,
        relaxed_solution=None if fits else schedule,
        shortest=shortest,
        steady=steady,
        repetend=repetend,
    )


def _schedule(fields: Fields, plan: MicroBatchPlan, key: str = "schedule") -> Schedule | None:
    if fields.is_null(key):
        return None
    schedule = read_inside(schedule_from, fields.fields(key)).schedule
    if schedule.plan != plan:
        raise InputError(fields.place(key), "belongs to another plan than the question")
    return schedule


def _other(fields: Fields, key: str, plan: MicroBatchPlan, schedule: Schedule | None) -> Schedule | None:
    """Read the schedule under `key`. The text `"schedule"` refers to the schedule `schedule`."""
    if fields.has(key) and fields.take(key) == _SAME_AS_SCHEDULE:
        return schedule
    return _schedule(fields, plan, key)


def _repetend(fields: Fields, plan: MicroBatchPlan) -> Repetend:
    fields.only("period", "first_start")
    rows = [as_items(row, place) for row, place in fields.items("first_start")]
    starts = [[as_integer(value, place, least=0) for value, place in row] for row in rows]
    if {len(row) for row in starts} != {len(plan.blocks)}:
        raise InputError(
            fields.place("first_start"), f"must have one start for each of {counted(len(plan.blocks), 'block')}"
        )
    return Repetend(plan, fields.integer("period", least=1), np.array(starts, dtype=np.int64))


def answer_text(report: ScheduleReport) -> str:
    """Return the text of a tessel-answer file."""
    drawn, repetend, known = report.drawable, report.repetend, _REPORT.write(report)
    history = known.pop("history")
    document: dict[str, Any] = {
        **known,
        "fits": report.solution is not None,
        "schedule": None if drawn is None else schedule_document(schedule_file(drawn, report)),
        "shortest": _other_document(report, report.shortest, MAKESPAN),
        "steady": _other_document(report, report.steady, PERIOD),
        "repetend": repetend and {"period": repetend.period, "first_start": repetend.first_start.tolist()},
        "history": history,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _other_document(report: ScheduleReport, schedule: Schedule | None, objective: str) -> object:
    """Return the document of the shortest or the steady schedule, whichever `objective` selects."""
    if schedule is None:
        return None
    if schedule is report.solution:
        return _SAME_AS_SCHEDULE
    return schedule_document(schedule_file(schedule, report.about(objective)))
