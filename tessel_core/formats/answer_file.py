"""tessel-answer, version 1: all that a search said, so that the same page can be shown again.

Fractions are text, `"16/3"`, since they are exact.  `schedule` is the one that the report speaks of; `shortest` and
`steady` are documents of their own, null, or `"schedule"` where they are that one.  Answers from before there were two
have neither: their search kept its repetend at any price, so the one schedule is both.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np

from tessel_core.control import Progress
from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, as_items, as_text, header, read_inside, read_with
from tessel_core.formats.schedule_file import schedule_document, schedule_file, schedule_from, status_from
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Repetend, Schedule, ScheduleReport

FORMAT = "tessel-answer"
_THE_SAME = "schedule"
_FRACTION = re.compile(r"-?[0-9]{1,200}(/0*[1-9][0-9]{0,200})?")


def read_answer(data: bytes, plan: MicroBatchPlan, name: str = "answer") -> ScheduleReport:
    """The answer to a question about `plan`, without its config; the referee has not judged it yet.

    InputError says the place and the reason, `name` first.
    """
    return read_with(lambda fields: _answer_from(fields, plan), data, name)


def _answer_from(fields: Fields, plan: MicroBatchPlan) -> ScheduleReport:
    header(fields, FORMAT)
    fields.only(
        *("format", "version", "scheduler", "status", "objective_name", "objective", "bound", "period_bound"),
        *("makespan_bound", "least_capacity", "wall_s", "repetend_s", "completion_s", "reason", "fits", "schedule"),
        *("shortest", "steady", "repetend", "history"),
    )
    schedule, fits = _schedule(fields, plan), fields.truth("fits")
    repetend = None if fields.is_null("repetend") else _repetend(fields.fields("repetend"), plan)
    shortest, steady = (_other(fields, key, plan, schedule) for key in ("shortest", "steady"))
    if not fields.has("shortest") and repetend is not None and schedule is not None:
        shortest, steady = schedule, schedule if schedule.repetend is not None else None
    return ScheduleReport(
        status=status_from(fields),
        solution=schedule if fits else None,
        relaxed_solution=None if fits else schedule,
        objective_name=fields.text("objective_name"),
        objective=_optional_fraction(fields, "objective"),
        bound=_optional_fraction(fields, "bound"),
        wall_s=fields.number("wall_s"),
        solver=fields.text("scheduler"),
        history=tuple(_progress(each) for each in fields.objects("history")),
        reason=fields.text("reason"),
        shortest=shortest,
        steady=steady,
        repetend=repetend,
        period_bound=_fraction(fields, "period_bound"),
        makespan_bound=fields.integer("makespan_bound", least=0),
        repetend_s=None if fields.is_null("repetend_s") else fields.number("repetend_s"),
        completion_s=None if fields.is_null("completion_s") else fields.number("completion_s"),
        least_capacity=None if fields.is_null("least_capacity") else fields.integer("least_capacity", least=0),
    )


def _schedule(fields: Fields, plan: MicroBatchPlan, key: str = "schedule") -> Schedule | None:
    if fields.is_null(key):
        return None
    schedule = read_inside(schedule_from, fields.fields(key)).schedule
    if schedule.plan != plan:
        raise InputError(fields.place(key), "is of another plan than the question's")
    return schedule


def _other(fields: Fields, key: str, plan: MicroBatchPlan, schedule: Schedule | None) -> Schedule | None:
    """The schedule under `key`, which may say that it is `schedule`."""
    if fields.has(key) and fields.take(key) == _THE_SAME:
        return schedule
    return _schedule(fields, plan, key)


def _repetend(fields: Fields, plan: MicroBatchPlan) -> Repetend:
    fields.only("period", "first_start")
    rows = [as_items(row, place) for row, place in fields.items("first_start")]
    starts = [[as_integer(value, place, least=0) for value, place in row] for row in rows]
    if {len(row) for row in starts} != {len(plan.blocks)}:
        raise InputError(fields.place("first_start"), f"must have one start for each of {len(plan.blocks)} block(s)")
    return Repetend(plan, fields.integer("period", least=1), np.array(starts, dtype=np.int64))


def _progress(fields: Fields) -> Progress:
    fields.only("wall_s", "phase", "objective", "bound", "by")
    return Progress(
        fields.number("wall_s"),
        fields.text("phase"),
        _optional_fraction(fields, "objective"),
        _optional_fraction(fields, "bound"),
        fields.text("by", default=""),
    )


def _optional_fraction(fields: Fields, key: str) -> Fraction | None:
    return None if fields.is_null(key) else _fraction(fields, key)


def _fraction(fields: Fields, key: str) -> Fraction:
    text = as_text(fields.take(key), fields.place(key))
    if not _FRACTION.fullmatch(text):
        raise InputError(fields.place(key), f'must be a fraction like "16/3", got {text[:40]!r}')
    return Fraction(text)


def answer_text(report: ScheduleReport) -> str:
    """The text of a tessel-answer file."""
    drawn = report.drawable
    document: dict[str, object] = {
        "format": FORMAT,
        "version": 1,
        "scheduler": report.solver,
        "status": str(report.status),
        "objective_name": report.objective_name,
        "objective": _text(report.objective),
        "bound": _text(report.bound),
        "period_bound": _text(report.period_bound),
        "makespan_bound": report.makespan_bound,
        "least_capacity": report.least_capacity,
        "wall_s": report.wall_s,
        "repetend_s": report.repetend_s,
        "completion_s": report.completion_s,
        "reason": report.reason,
        "fits": report.solution is not None,
        "schedule": None if drawn is None else schedule_document(schedule_file(drawn, report)),
        "shortest": _other_document(report, report.shortest, MAKESPAN),
        "steady": _other_document(report, report.steady, PERIOD),
        "repetend": None if report.repetend is None else _repetend_document(report.repetend),
        "history": [_progress_document(news) for news in report.history],
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _other_document(report: ScheduleReport, schedule: Schedule | None, objective: str) -> object:
    """The shortest or the steady schedule, best for `objective`, as the file says it."""
    if schedule is None:
        return None
    return (
        _THE_SAME
        if schedule is report.solution
        else schedule_document(schedule_file(schedule, report.about(objective)))
    )


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _repetend_document(repetend: Repetend) -> dict[str, object]:
    return {"period": repetend.period, "first_start": repetend.first_start.tolist()}


def _progress_document(news: Progress) -> dict[str, object]:
    return {
        "wall_s": news.wall_s,
        "phase": news.phase,
        "objective": _text(news.objective),
        "bound": _text(news.bound),
        "by": news.by,
    }
