"""A schedule that came from elsewhere, judged as our own are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile
from tessel_core.model import Schedule, ScheduleReport, Status
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound


def evaluate(schedule: Schedule, maker: str, wall_s: float = 0.0) -> ScheduleReport:
    """What is true of a finished schedule, with bounds of our own; nothing is taken from what its file claims.

    Speaks of the makespan, or of the period where that is what can be proved.

    Raises
    ------
    InputError
        With the first rule that it breaks.
    """
    violations = check_schedule(schedule)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    shortest, fastest = makespan_bound(schedule.plan, schedule.micro_batches), period_bound(schedule.plan)
    steady = schedule.repetend
    period = None if steady is None else Fraction(steady.period, steady.unroll)
    of_period = period == fastest and schedule.makespan != shortest
    return ScheduleReport(
        status=Status.PROVED_OPTIMAL if of_period or schedule.makespan == shortest else Status.FEASIBLE,
        solution=schedule,
        objective_name="period" if of_period else "makespan",
        objective=period if of_period else Fraction(schedule.makespan),
        bound=fastest if of_period else Fraction(shortest),
        wall_s=wall_s,
        solver=maker,
        period_bound=fastest,
        makespan_bound=shortest,
    )


def evaluate_file(found: ScheduleFile) -> ScheduleReport:
    """As `judge`; where its file claims a proof that takes a search to repeat, the report's `reason` says so."""
    claim = found.report
    report = evaluate(found.schedule, found.scheduler, claim.wall_s if claim else 0.0)
    if claim is None or claim.status is not Status.PROVED_OPTIMAL or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, reason=f"the file says that its {claim.objective_name} is proved optimal; not proved anew")
