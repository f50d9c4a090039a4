"""`tessel`: the two-phase search; one run finds the steadiest and the shortest schedule."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, ScheduleReport, Status
from tessel_core.options import Option, option
from tessel_core.scheduling.bounds import makespan_bound, period_bound
from tessel_core.scheduling.problem import Scheduler

_REPETEND_SHARE = 0.5
"""Of the time limit, what phase 1 may use when it cannot prove its period."""


@dataclass(frozen=True, slots=True)
class TesselConfig:
    """Options of the two-phase search."""

    objective: str = option(
        MAKESPAN,
        Option(
            "Objective",
            "makespan: the shortest schedule of these micro-batches. period: the steadiest, with the least time from "
            "one micro-batch to the next. One search finds both.",
            choices=(MAKESPAN, PERIOD),
            selects=True,
        ),
    )
    max_unroll: int = option(
        6, Option("Largest unroll", "Micro-batches in one period, at most. More help where memory is tight.", 1, 16)
    )
    time_limit: float = option(20.0, Option("Time limit", "For both phases together.", 0.1, 3600, "s"))
    polish: float = option(
        1.0, Option("Polish", "Time to shorten warmup and cooldown; less is used when the bound is met.", 0, 3600, "s")
    )
    workers: int = option(2, Option("Workers", "Solver threads. With one, the same seed gives the same answer.", 1, 64))
    seed: int = option(0, Option("Seed", "Of the solver's random choices.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: TesselConfig, control: Control) -> ScheduleReport:
    """Least period per micro-batch and least makespan, each with its bound and a schedule.

    The search does not know the objective: the report speaks of the one asked, and may speak of the other.

    [Lin et al., Tessel, HPCA 2024], with modulo scheduling by CP-SAT for the enumeration of phase 1.
    """
    from tessel_core.cpsat import Effort
    from tessel_core.scheduling.search.capacity import find_fitting_order
    from tessel_core.scheduling.search.completion import complete
    from tessel_core.scheduling.search.period_search import search_period

    control = control.part(config.time_limit)
    effort = Effort(config.time_limit, config.workers, config.seed, repeatable=config.workers == 1)
    verdict, order = find_fitting_order(plan, effort, control)
    if order is None:
        return no_schedule(plan, micro_batches, verdict, config.objective, effort, control)
    began = control.elapsed_s
    phase = control.part(config.time_limit * _REPETEND_SHARE)
    search = search_period(plan, order, config.max_unroll, effort, phase)
    repetend_s = control.elapsed_s - began
    bound = makespan_bound(plan, micro_batches)
    found = complete(search.repetend, micro_batches, bound, config.polish, effort, control)
    proved = found.shortest.makespan == found.bound
    return ScheduleReport(
        status=Status.PROVED_OPTIMAL if proved else Status.FEASIBLE,
        solution=found.shortest,
        objective_name=MAKESPAN,
        objective=Fraction(found.shortest.makespan),
        bound=Fraction(found.bound),
        wall_s=0.0,
        solver="",
        reason=caveat(config.workers, control, phase if not search.proved else control),
        shortest=found.shortest,
        steady=found.steady,
        repetend=search.repetend,
        period_bound=search.bound,
        makespan_bound=found.bound,
        repetend_s=repetend_s,
        completion_s=control.elapsed_s - began - repetend_s,
    ).about(config.objective)


def caveat(workers: int, *controls: Control) -> str:
    """What a reader must know of an answer: stopped early, or by the clock and so not repeatable."""
    if any(control.cancelled for control in controls):
        return "cancelled: the best so far"
    if workers == 1 and any(control.stopped for control in controls):
        return "the time limit struck: not reproducible"
    return ""


def no_schedule(
    plan: MicroBatchPlan, micro_batches: int, verdict: object, objective_name: str, effort: object, control: Control
) -> ScheduleReport:
    """The report when no order of one micro-batch's blocks was found that fits: infeasible, or not settled in time."""
    from tessel_core.cpsat import Effort, Verdict
    from tessel_core.scheduling.search.capacity import least_capacity

    assert isinstance(effort, Effort)
    infeasible = verdict is Verdict.IMPOSSIBLE
    least = least_capacity(plan, effort, control) if infeasible else None
    reason = "one micro-batch alone does not fit the devices' memory" if infeasible else "no order was found in time"
    stopped = Status.CANCELLED if control.cancelled else Status.NOTHING_FOUND
    least_period, least_makespan = period_bound(plan), makespan_bound(plan, micro_batches)
    bound = least_period if objective_name == PERIOD else Fraction(least_makespan)
    return ScheduleReport(
        status=Status.INFEASIBLE if infeasible else stopped,
        objective_name=objective_name,
        bound=None if infeasible else bound,
        wall_s=0.0,
        solver="",
        reason=reason,
        period_bound=least_period,
        makespan_bound=least_makespan,
        least_capacity=least,
    )


TESSEL = Scheduler(
    "tessel",
    "Tessel search",
    "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269; modulo scheduling after Rau 1994",
    solve,
    TesselConfig,
)
