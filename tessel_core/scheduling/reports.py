"""Reports on schedules from searches, published orders and files, and on the absence of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile
from tessel_core.model import MAKESPAN, PERIOD, STOPPED, MemoryProfile, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound, period_bound
from tessel_core.scheduling.steady import find_steady_state
from tessel_core.units import show_memory

if TYPE_CHECKING:
    from tessel_core.cpsat import Effort, Verdict

_MAX_NAMED_GROUPS = 4
"""Largest number of groups of devices named in one sentence."""


def report_on(schedule: Schedule, bound: int, reason: str = "") -> ScheduleReport:
    """Return the report on a valid schedule. `bound` is a lower bound on the makespan in ticks."""
    return ScheduleReport(
        status=Status.PROVED_OPTIMAL if schedule.makespan <= bound else Status.FEASIBLE,
        solution=schedule,
        objective_name=MAKESPAN,
        objective=Fraction(schedule.makespan),
        bound=Fraction(bound),
        reason=reason,
        period_bound=period_bound(schedule.plan),
        makespan_bound=bound,
    )


def report_baseline(plan: MicroBatchPlan, starts: IntColumn) -> ScheduleReport:
    """Return the report on a published schedule. It is infeasible if the schedule exceeds the memory of a device."""
    schedule = Schedule.from_starts(plan, starts, find_steady_state(starts - starts.min()))
    profile = MemoryProfile.of(schedule)
    if not any(profile.excess):
        return report_on(schedule, makespan_bound(plan, schedule.micro_batches))
    # A schedule that exceeds the capacities is compared with the bounds without capacities.
    free = plan.with_capacity(None)
    return replace(
        report_on(schedule, makespan_bound(free, schedule.micro_batches)),
        status=Status.INFEASIBLE,
        solution=None,
        relaxed_solution=schedule,
        objective=None,
        reason=f"does not fit: the order exceeds the memory of {_over(plan, profile.excess)}",
        period_bound=period_bound(free),
        least_capacity=max(profile.peaks),
    )


def _over(plan: MicroBatchPlan, excess: Sequence[int]) -> str:
    """Return a text that lists the devices that exceed their capacity, and by how much.

    `excess` has one value per device. Consecutive devices with equal excess form a group. The first groups are named,
    and all other devices are only counted.
    """
    shown = [show_memory(more, plan.memory_unit) if more else "" for more in excess]
    groups = [list(alike) for amount, alike in groupby(range(len(shown)), key=shown.__getitem__) if amount]
    texts = []
    for first, *others in groups[:_MAX_NAMED_GROUPS]:
        last, each = (f"–{plan.devices[others[-1]].name}", " each") if others else ("", "")
        texts.append(f"{plan.devices[first].name}{last} by {shown[first]}{each}")
    rest = [excess[d] for group in groups[_MAX_NAMED_GROUPS:] for d in group]
    if rest:
        texts.append(f"{len(rest)} more by at most {show_memory(max(rest), plan.memory_unit)}")
    return ", ".join(texts)


def evaluate(schedule: Schedule, maker: str, wall_s: float = 0.0, bound: int = 0) -> ScheduleReport:
    """Return a report on a finished schedule with newly computed bounds.

    A status or bounds from the schedule's file are ignored. The objective is the makespan, or the period if only the
    period is proved. `bound` is a lower bound on the makespan that an earlier search proved.

    Raises InputError with the first rule that the schedule breaks.
    """
    violations = check_schedule(schedule)
    if violations:
        raise InputError(violations[0].where, f"{violations[0].why} (rule: {violations[0].rule})")
    shortest = max(bound, makespan_bound(schedule.plan, schedule.micro_batches))
    fastest = period_bound(schedule.plan)
    report = replace(report_on(schedule, shortest), solver=maker, wall_s=wall_s)
    period = None if schedule.repetend is None else schedule.repetend.period_per_micro_batch
    if period != fastest or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, status=Status.PROVED_OPTIMAL, objective_name=PERIOD, objective=period, bound=fastest)


def evaluate_file(file: ScheduleFile) -> ScheduleReport:
    """Evaluate the schedule of a file. `reason` mentions a claimed proof that only a search could repeat."""
    claim = file.report
    report = evaluate(file.schedule, file.scheduler, claim.wall_s if claim else 0.0)
    if claim is None or claim.status is not Status.PROVED_OPTIMAL or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, reason=f"the file says that its {claim.objective_name} is proved optimal; not proved here")


def caveat(workers: int, *controls: Control, cut_short: bool = False) -> str:
    """Return a note if the search was cancelled, or if its result depends on the speed of the machine.

    The note is empty otherwise. The first of `controls` belongs to the whole search, the others to its phases.
    `cut_short` is true if the clock stopped a part of a phase.
    """
    if any(control.cancelled for control in controls):
        return STOPPED
    if workers == 1 and (cut_short or any(control.stopped for control in controls)):
        what = "the time limit was reached" if controls[0].stopped else "a phase used up its share of the time limit"
        return f"{what}: not reproducible"
    return ""


def no_schedule(
    plan: MicroBatchPlan, micro_batches: int, verdict: Verdict, objective_name: str, effort: Effort, control: Control
) -> ScheduleReport:
    """Return the report for a plan of which not even one micro-batch is known to fit: infeasible or nothing found."""
    from tessel_core.cpsat import Verdict
    from tessel_core.scheduling.search.capacity import least_capacity

    infeasible = verdict is Verdict.IMPOSSIBLE
    stopped = Status.CANCELLED if control.cancelled else Status.NOTHING_FOUND
    least_period, least_makespan = period_bound(plan), makespan_bound(plan, micro_batches)
    bound = least_period if objective_name == PERIOD else Fraction(least_makespan)
    return ScheduleReport(
        status=Status.INFEASIBLE if infeasible else stopped,
        objective_name=objective_name,
        bound=None if infeasible else bound,
        reason="one micro-batch alone does not fit the devices' memory" if infeasible else "no order was found in time",
        period_bound=least_period,
        makespan_bound=least_makespan,
        least_capacity=least_capacity(plan, effort, control) if infeasible else None,
    )
