"""Answers that outlive the process: kept by question, and judged again when they come back."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import answer_text, plan_document, read_answer
from tessel_core.model import Repetend, ScheduleReport
from tessel_core.options import options_of
from tessel_core.rules import Violation, check_claims, check_schedule
from tessel_core.scheduling import Question
from tessel_core.store import Answers

_LOG = logging.getLogger(__name__)


def digest(question: Question) -> str:
    """The same for equal questions, in every process and on every machine."""
    document = {
        "scheduler": question.scheduler,
        "plan": plan_document(question.plan),
        "micro_batches": question.micro_batches,
        "options": {name: value for name, (_, value) in options_of(question.config).items()},
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def solve_and_keep(question: Question, control: Control, answers: Answers) -> ScheduleReport:
    """The answer to a question, which is kept as well where it can be: the store says itself when it cannot.

    A search that was stopped leaves an earlier answer where it is.
    """
    report, name = question.solve(control), digest(question)
    with suppress(InputError):
        if not control.cancelled or (report.solution is not None and answers.find(name) is None):
            answers.keep(name, answer_text(report))
    return report


def recall(question: Question, answers: Answers) -> ScheduleReport | None:
    """The answer that was kept, None where there is none that can be trusted: the referee judges it again."""
    try:
        found = answers.find(digest(question))
        report = None if found is None else read_answer(found, question.plan)
    except InputError as error:
        _LOG.warning("an answer that was kept cannot be read: %s", error)
        return None
    if report is None:
        return None
    broken = next(_violations(report, question), None)
    if broken is not None:
        _LOG.warning("an answer that was kept is not valid: %s", broken)
        return None
    return replace(report, config=question.config)


def _violations(report: ScheduleReport, question: Question) -> Iterator[Violation]:
    """What is wrong with an answer: of its schedule, of its steady state, of what it claims."""
    drawn = report.drawable
    if report.solver != question.scheduler or (drawn and drawn.micro_batches != question.micro_batches):
        yield Violation("claims", "answer", "is to another question")
    if drawn is not None:
        yield from check_schedule(drawn, without=() if report.solution is not None else ("memory",))
        claimed = (None if value is None else float(value) for value in (report.objective, report.bound))
        yield from check_claims(drawn, report.status, report.objective_name, *claimed)
    if report.repetend is not None:
        yield from check_schedule(report.repetend.expand(_enough(report.repetend)))
    if report.objective_name == "period" and report.objective != report.period_per_micro_batch:
        yield Violation("claims", "report.objective", "is not the period of the steady state")


def _enough(repetend: Repetend) -> int:
    """Micro-batches until the first has ended: then every pair that can meet has met."""
    return repetend.unroll * (repetend.latency // repetend.period + 2)
