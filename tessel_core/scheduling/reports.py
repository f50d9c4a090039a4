"""Reports: on a schedule that a search found, a baseline built or a file holds, and where there is none."""

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

_NAMED = 4
"""Groups of devices that one sentence names."""


def report_on(schedule: Schedule, bound: int, reason: str = "") -> ScheduleReport:
    """The report on a schedule that keeps all rules, in which no makespan is below `bound`."""
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
    """The report of a schedule that was built, not searched: feasible, optimal by its bound, or too large."""
    schedule = Schedule.from_starts(plan, starts, find_steady_state(starts - starts.min()))
    profile = MemoryProfile.of(schedule)
    if not any(profile.excess):
        return report_on(schedule, makespan_bound(plan, schedule.micro_batches))
    # A schedule that breaks the capacities is held against what any schedule can do without them.
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
    """The devices that hold too much and by how much: equal neighbours are named together, the last of many counted."""
    shown = [show_memory(more, plan.memory_unit) if more else "" for more in excess]
    groups = [list(alike) for amount, alike in groupby(range(len(shown)), key=shown.__getitem__) if amount]
    texts = []
    for first, *others in groups[:_NAMED]:
        last, each = (f"–{plan.devices[others[-1]].name}", " each") if others else ("", "")
        texts.append(f"{plan.devices[first].name}{last} by {shown[first]}{each}")
    rest = [excess[d] for group in groups[_NAMED:] for d in group]
    if rest:
        texts.append(f"{len(rest)} more by at most {show_memory(max(rest), plan.memory_unit)}")
    return ", ".join(texts)


def evaluate(schedule: Schedule, maker: str, wall_s: float = 0.0, bound: int = 0) -> ScheduleReport:
    """The report on a finished schedule, with bounds of our own; no claim of its file is taken over.

    It speaks of the makespan, or of the period where that is what can be proved.  `bound` on the makespan of any
    schedule of this plan and as many micro-batches is one that a search has proved before.

    Raises InputError with the first rule that it breaks.
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


def evaluate_file(found: ScheduleFile) -> ScheduleReport:
    """As `evaluate`; where the file claims a proof that takes a search to repeat, the report's `reason` says so."""
    claim = found.report
    report = evaluate(found.schedule, found.scheduler, claim.wall_s if claim else 0.0)
    if claim is None or claim.status is not Status.PROVED_OPTIMAL or report.status is Status.PROVED_OPTIMAL:
        return report
    return replace(report, reason=f"the file says that its {claim.objective_name} is proved optimal; not proved anew")


def caveat(workers: int, *controls: Control, cut_short: bool = False) -> str:
    """The limits of an answer: stopped early, or by the clock and so not repeatable; empty where there are none.

    The first of `controls` is that of the whole search, the others are those of its phases; `cut_short` says that a
    part of one ended by the clock.
    """
    if any(control.cancelled for control in controls):
        return STOPPED
    if workers == 1 and (cut_short or any(control.stopped for control in controls)):
        what = "the time limit struck" if controls[0].stopped else "a phase used up its share of the time limit"
        return f"{what}: not reproducible"
    return ""


def no_schedule(
    plan: MicroBatchPlan, micro_batches: int, verdict: Verdict, objective_name: str, effort: Effort, control: Control
) -> ScheduleReport:
    """The report when no order of one micro-batch's blocks was found that fits: infeasible, or not settled in time."""
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
