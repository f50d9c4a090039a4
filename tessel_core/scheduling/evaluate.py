"""Evaluation of a schedule that came from elsewhere, by the rules that hold for our own."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile
from tessel_core.model import PERIOD, Schedule, ScheduleReport, Status
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound
from tessel_core.scheduling.reports import report_on


def evaluate(schedule: Schedule, maker: str, wall_s: float = 0.0) -> ScheduleReport:
    """The report on a finished schedule, with bounds of our own; no claim of its file is taken over.

    It speaks of the makespan, or of the period where that is what can be proved.

    Raises
    ------
    InputError
        With the first rule that it breaks.
    """
    violations = check_schedule(schedule)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    shortest, fastest = makespan_bound(schedule.plan, schedule.micro_batches), period_bound(schedule.plan)
    report = replace(report_on(schedule, shortest), solver=maker, wall_s=wall_s)
    steady = schedule.repetend
    period = None if steady is None else Fraction(steady.period, steady.unroll)
    if period != fastest or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, status=Status.PROVED_OPTIMAL, objective_name=PERIOD, objective=period, bound=fastest)


def evaluate_file(found: ScheduleFile) -> ScheduleReport:
    """As `evaluate`; where the file claims a proof that takes a search to repeat, the report's `reason` says so."""
    claim = found.report
    report = evaluate(found.schedule, found.scheduler, claim.wall_s if claim else 0.0)
    if claim is None or claim.status is not Status.PROVED_OPTIMAL or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, reason=f"the file says that its {claim.objective_name} is proved optimal; not proved anew")
