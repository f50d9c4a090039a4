"""Stored answers of schedule searches, each found by its search question.

The referee checks an answer again when it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import suppress

from tessel_core.bundle import BUNDLE
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats.answer_file import answer_text, read_answer
from tessel_core.formats.plan_file import PLAN
from tessel_core.model import MAKESPAN, PERIOD, Repetend, Schedule, ScheduleReport
from tessel_core.options import search_options
from tessel_core.rules import Violation, check_claims, check_schedule
from tessel_core.scheduling import Question
from tessel_core.workbench.store import Answers

ANSWER_FOLDER = BUNDLE / "sample_models" / "answers"

_LOG = logging.getLogger(__name__)


def digest(question: Question) -> str:
    """Return the name under which the answer to a search question is stored.

    The name is the same in every process. Questions that differ only in their objective have the same name.
    """
    document = {
        "scheduler": question.scheduler,
        "plan": PLAN.write(question.plan.unlabelled),
        "micro_batches": question.micro_batches,
        "options": search_options(question.config),
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def solve_and_keep(question: Question, control: Control, answers: Answers) -> ScheduleReport:
    """Solve a search question and store its answer.

    If the answer cannot be stored, the store gives the reason. A cancelled search does not replace a stored answer.
    """
    report, name = question.solve(control), digest(question)
    with suppress(InputError):
        if not control.cancelled or (report.solution is not None and answers.find(name) is None):
            answers.keep(name, answer_text(report))
    return report


def recall(question: Question, answers: Answers) -> ScheduleReport | None:
    """Return the stored answer to a search question, or else the answer that ships with the samples.

    Return None if there is no answer, or if the referee rejects it.
    """
    name = digest(question)
    try:
        found = answers.find(name) or _shipped(name)
        report = None if found is None else read_answer(found, question.plan)
    except InputError as error:
        _LOG.warning("a stored answer cannot be read: %s", error)
        return None
    if report is None:
        return None
    broken = next(_violations(report, question), None)
    if broken is not None:
        _LOG.warning("a stored answer is not valid: %s", broken)
        return None
    return question.answered_by(report)


def _shipped(name: str) -> bytes | None:
    """Return the shipped answer with this name, or None. `tools/make_answers.py` makes these files."""
    path = ANSWER_FOLDER / f"{name}.json"
    return path.read_bytes() if path.is_file() else None


def _violations(report: ScheduleReport, question: Question) -> Iterator[Violation]:
    """Yield the rules that a stored answer violates.

    Check its schedules, its steady state, and the values it claims for both objectives.
    """
    found = report.schedules or (() if report.drawable is None else (report.drawable,))
    if report.solver != question.scheduler or any(each.micro_batches != question.micro_batches for each in found):
        yield Violation("claims", "answer", "is to another question")
    for schedule in found:
        yield from check_schedule(schedule, without=() if report.solution is not None else ("memory",))
    for spoken in (report.about(MAKESPAN), report.about(PERIOD)):
        if spoken.drawable is not None:
            claimed = (None if value is None else float(value) for value in (spoken.objective, spoken.bound))
            yield from check_claims(spoken.drawable, spoken.status, spoken.objective_name, *claimed)
        if spoken.objective_name == PERIOD and spoken.objective != spoken.kept_period:
            yield Violation("claims", "report.objective", "is not the period of the steady state")
    if report.repetend is not None:
        # Expand the repetend until the first micro-batch has ended. By then, any two runs that can overlap in time have
        # overlapped.
        enough = report.repetend.unroll * (report.repetend.latency // report.repetend.period + 2)
        yield from check_schedule(report.repetend.expand(enough))
    if report.steady is not None and not _keeps(report.steady, report.repetend):
        yield Violation("claims", "steady", "does not keep the repetend, although it has enough micro-batches")
    if report.shortest and report.steady and report.shortest.makespan > report.steady.makespan:
        yield Violation("claims", "shortest", "is longer than the schedule that keeps the repetend")


def _keeps(schedule: Schedule, repetend: Repetend | None) -> bool:
    """Return whether a schedule repeats with the repetend's period.

    If it has too few micro-batches to repeat, a longer period is accepted too.
    """
    kept = schedule.repetend
    if kept is None or repetend is None:
        return False
    slower = kept.period_per_micro_batch - repetend.period_per_micro_batch
    return slower == 0 or (slower > 0 and schedule.micro_batches <= repetend.unroll)
