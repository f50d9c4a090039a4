"""A schedule that came from elsewhere, judged as our own are."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.errors import InputError
from tessel_core.model import Schedule, ScheduleReport, Status
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound


def judge(schedule: Schedule, maker: str, wall_s: float = 0.0) -> ScheduleReport:
    """What is true of a finished schedule, with bounds of our own; nothing is taken from what its file claims.

    Raises
    ------
    InputError
        With the first rule that it breaks.
    """
    violations = check_schedule(schedule)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    bound = makespan_bound(schedule.plan, schedule.micro_batches)
    return ScheduleReport(
        status=Status.PROVED_OPTIMAL if schedule.makespan == bound else Status.FEASIBLE,
        solution=schedule,
        objective_name="makespan",
        objective=Fraction(schedule.makespan),
        bound=Fraction(bound),
        wall_s=wall_s,
        solver=maker,
        period_bound=period_bound(schedule.plan),
        makespan_bound=bound,
    )
