"""The scheduler `tessel`: a two-phase search for the shortest schedule and for the schedule of shortest period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.options import Option, option
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.reports import caveat, no_schedule, report_on
from tessel_core.scheduling.schedulers import Scheduler

if TYPE_CHECKING:
    from tessel_core.cpsat import Effort
    from tessel_core.scheduling.search.completion import Completion
    from tessel_core.scheduling.search.incumbent import Incumbent
    from tessel_core.scheduling.search.period_search import FoundPeriod, PeriodSearch
    from tessel_core.scheduling.search.portfolio import Portfolio

_REPETEND_SHARE, _COMPLETION_SHARE = 0.35, 0.2
"""Largest shares of the time limit for phase 1 and phase 2. The rest of the time shortens the makespan."""
_MIN_LOADING_S = 2.0
"""Least seconds to wait for the kernels. Kernels that are already compiled load in less time."""
_LAST_SHARE = 0.1
"""Share of the time limit for turning long list schedules into schedules that repeat, if no period is proved yet."""


@dataclass(frozen=True, slots=True)
class TesselConfig:
    """Options of the two-phase search."""

    objective: str = option(
        MAKESPAN,
        Option(
            "Objective",
            "makespan: shortest schedule of these micro-batches. period: least time from one micro-batch to the next. "
            "One search finds both.",
            choices=(MAKESPAN, PERIOD),
            selects=True,
        ),
    )
    max_unroll: int = option(
        6,
        Option(
            "Largest repeat",
            "Largest number of micro-batches per period that the exact models try. Raise it when memory is tight. "
            "List scheduling may still find longer periods.",
            1,
            16,
        ),
    )
    time_limit: float = option(20.0, Option("Time limit", "For the whole search.", 0.1, 3600, "s"))
    polish: float = option(
        1.0,
        Option(
            "Polish",
            "Longest time to shorten warmup and cooldown further, once a complete schedule is found.",
            0,
            3600,
            "s",
        ),
    )
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer.", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of the solver's random choices.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: TesselConfig, control: Control) -> ScheduleReport:
    """Search for the shortest period and the shortest makespan, each with a schedule and a bound.

    The objective does not affect the search. It only selects the schedule that the report describes.

    The method is that of [Lin et al., Tessel, HPCA 2024], with modulo scheduling by CP-SAT in place of the enumeration
    in phase 1.
    """
    from tessel_core.cpsat import Effort
    from tessel_core.scheduling.search.capacity import find_fitting_order
    from tessel_core.scheduling.search.completion import Completion
    from tessel_core.scheduling.search.incumbent import Incumbent
    from tessel_core.scheduling.search.period_search import PeriodSearch
    from tessel_core.scheduling.search.quick import greedy_starts
    from tessel_core.scheduling.search.runs_model import minimise_all_runs

    control = control.part(config.time_limit)
    effort = Effort(config.time_limit, config.workers, config.seed, repeatable=config.workers == 1)
    verdict, order = find_fitting_order(plan, effort, control)
    if order is None:
        return no_schedule(plan, micro_batches, verdict, config.objective, effort, control)
    began = control.elapsed_s
    sequential = one_after_the_other(plan, order).expand(micro_batches)
    incumbent = Incumbent(plan, sequential.starts, makespan_bound(plan, micro_batches), control)
    incumbent.offer(greedy_starts(plan, micro_batches), "list")
    search = PeriodSearch(plan, micro_batches, order, config.max_unroll, effort, control)
    search.begin()
    lists, portfolio, phase = partial(_portfolio, incumbent, order, effort), None, control
    if not search.over:
        minimise_all_runs(incumbent, effort, control)
        phase = control.part(config.time_limit * _REPETEND_SHARE)
        portfolio = _shorten_period(search, lists, phase, control)
    found = search.result
    repetend_s = control.elapsed_s - began
    completion = Completion(found.kept, incumbent, effort, control)
    completion.begin()
    completing = control if incumbent.proved else control.part(config.time_limit * _COMPLETION_SHARE)
    completion.go_on(config.polish, completing, proved=found.settled)
    cut_short = completion.cut_short
    minimise_all_runs(incumbent, replace(effort, seed=effort.seed + 1), control)
    if not (incumbent.proved and found.settled) and _kernels_ready(control):
        last_s = 0.0 if found.settled or effort.repeatable else _LAST_SHARE * config.time_limit
        _shorten_all(portfolio or lists(), search, last_s, control)
    if not found.settled:
        search.repeat(incumbent.starts)
        found = search.result
        if found.kept is not completion.repetend:
            completion = Completion(found.kept, incumbent, effort, control)
            completion.begin()
    shortest, steady = _shortest_and_steady(completion, found, sequential.makespan)
    phases = [phase] if incumbent.proved else [phase, completing]
    return replace(
        report_on(shortest, incumbent.bound, caveat(config.workers, control, *phases, cut_short=cut_short)),
        shortest=shortest,
        steady=steady,
        repetend=found.repetend,
        period_bound=found.bound,
        period_infimum=found.infimum,
        repetend_s=repetend_s,
        completion_s=control.elapsed_s - began - repetend_s,
    ).about(config.objective)


def _shorten_period(
    search: PeriodSearch, lists: Callable[[], Portfolio], phase: Control, control: Control
) -> Portfolio | None:
    """Run phase 1, also with list schedules if the compiled kernels load in time.

    Return the portfolio of list searches, or None if the kernels do not load in time.
    """
    if search.settled or not _kernels_ready(control.part(max(phase.remaining_s, _MIN_LOADING_S))):
        search.go_on(phase, ready=False)
        return None
    portfolio = lists()
    portfolio.begin(control)
    for each in portfolio.lists:
        search.offer_steady(each.starts)
    search.go_on(phase, ready=True)
    return portfolio


def _shorten_all(portfolio: Portfolio, search: PeriodSearch, last_s: float, control: Control) -> None:
    """Spend the remaining time on the makespan.

    When `last_s` seconds are left, look for a shorter period by repeating long list schedules.
    """
    portfolio.run(control.part(control.remaining_s - last_s))
    search.close_long(portfolio.lists, control)
    if last_s:
        portfolio.run(control)


def _shortest_and_steady(
    completion: Completion, found: FoundPeriod, sequential: int
) -> tuple[Schedule, Schedule | None]:
    """Return the shortest schedule and the steady schedule, which are the same schedule if possible.

    The steady schedule keeps the repetend of shortest period that it can repeat. It is None if there are too few
    micro-batches for it. This is also the case if repeating the whole shortest schedule is faster, or if the sequential
    schedule is as short as the steady one.
    """
    completion.keep_shortest()
    incumbent, steady = completion.incumbent, completion.steady
    shortest = Schedule.from_starts(incumbent.plan, incumbent.starts)
    over_and_over = Fraction(shortest.makespan, incumbent.micro_batches)
    if found.kept is not found.repetend and found.kept.period_per_micro_batch > over_and_over:
        steady = None
    if steady is not None and steady.makespan >= sequential and steady.makespan > shortest.makespan:
        steady = None
    return (steady, steady) if steady is not None and steady.makespan <= shortest.makespan else (shortest, steady)


def _kernels_ready(control: Control) -> bool:
    from tessel_core.scheduling.kernels.warm import warm_in_time

    return not control.stopped and warm_in_time(control)


def _portfolio(incumbent: Incumbent, order: Sequence[int], effort: Effort) -> Portfolio:
    """Build the portfolio. The import is here because the compiled kernels take a moment to load."""
    from tessel_core.scheduling.search.portfolio import Portfolio

    return Portfolio(incumbent, order, effort)


TESSEL = Scheduler(
    "tessel",
    "Tessel search",
    "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269; modulo scheduling after Rau 1994",
    solve,
    TesselConfig,
)
