"""The scheduler `time-optimal`: the shortest schedule of all micro-batches, by one CP-SAT model of all runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.model.schedule import IntColumn
from tessel_core.options import Option, option
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.reports import caveat, no_schedule, report_on
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.scheduling.search.incumbent import Incumbent, makespan_of
from tessel_core.scheduling.search.quick import quick_starts
from tessel_core.scheduling.search.timing import compacted, quanta, quantised
from tessel_core.scheduling.steady import find_steady_state
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.scheduling.tessel import solve as solve_two_phases

if TYPE_CHECKING:
    from tessel_core.cpsat import Effort

_MAX_EXACT_RUNS = 200
"""Largest number of runs for which CP-SAT works in ticks, so that its bound is valid.

With more runs, it works in coarser units.
"""
_MAX_PRESOLVED_RUNS = 1_000
"""Largest number of runs in a model with presolve and linear relaxations.

In larger models, presolve and relaxations take long, ignore a cancel, and gain nothing.
"""
_START_SHARE = 0.25
"""Share of the time limit for the two-phase search, which provides the first schedule."""
_REORDER_SHARE = 0.2
"""Share of the time limit for tabu search on the orders of runs."""


@dataclass(frozen=True, slots=True)
class TimeOptimalConfig:
    """Options of the search over all runs."""

    time_limit: float = option(20.0, Option("Time limit", "For the whole search.", 0.1, 3600, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With 1, the same seed gives the same answer.", 1, 64))
    seed: int = option(0, Option("Seed", "Seed of the solver's random choices.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: TimeOptimalConfig, control: Control) -> ScheduleReport:
    """Search for the least makespan, with its bound. The schedule need not have a steady state.

    This is the "time-optimal" search of [Lin et al., Tessel, HPCA 2024, section III]. Its model grows with the number
    of micro-batches.
    """
    from tessel_core.cpsat import Effort
    from tessel_core.scheduling.search.capacity import find_fitting_order

    control = control.part(config.time_limit)
    effort = Effort(config.time_limit, config.workers, config.seed, repeatable=config.workers == 1)
    verdict, order = find_fitting_order(plan, effort, control)
    if order is None:
        return no_schedule(plan, micro_batches, verdict, MAKESPAN, effort, control)
    share = config.time_limit * _START_SHARE
    quick = TesselConfig(max_unroll=2, time_limit=share, polish=share / 4, workers=config.workers, seed=config.seed)
    start = solve_two_phases(plan, micro_batches, quick, control.quiet())
    assert start.solution is not None, "an order that fits gives a schedule"
    starts = min([start.solution.starts, *quick_starts(plan, micro_batches)], key=partial(makespan_of, plan))
    bound = max(start.makespan_bound, makespan_bound(plan, micro_batches))
    incumbent = Incumbent(plan, starts, bound, control, by="two phases")
    _Search(incumbent, effort, control).run()
    schedule = Schedule.from_starts(plan, incumbent.starts, find_steady_state(incumbent.starts))
    return report_on(schedule, incumbent.bound, caveat(config.workers, control))


class _Search:
    """The steps that shorten an incumbent: reverse neighbouring runs by tabu search, then minimise by CP-SAT."""

    def __init__(self, incumbent: Incumbent, effort: Effort, control: Control) -> None:
        self.incumbent, self.effort, self.control = incumbent, effort, control
        self.plan = incumbent.plan
        self.quantum = 1 if incumbent.runs <= _MAX_EXACT_RUNS else quanta(self.plan.busiest_work)[0]
        """Ticks per unit of CP-SAT. Above 1, only the order of runs in the solution is used."""
        self.coarse = quantised(self.plan, self.quantum)

    def run(self) -> None:
        """Run the steps until the incumbent meets its bound or time ends."""
        for step in (self._reorder, self._minimise):
            if not (self.incumbent.proved or self.control.stopped):
                step()

    def _reorder(self) -> None:
        """Reverse neighbouring runs by tabu search.

        It helps with many runs of different durations, where CP-SAT does not.
        """
        from tessel_core.scheduling.search.order_search import shorten

        effort = self.effort.within(self.effort.seconds * _REORDER_SHARE)
        shorter = shorten(self.plan, self.incumbent.starts, self.incumbent.bound, effort, self.control)
        self._offer(shorter, "order")

    def _minimise(self) -> None:
        from tessel_core.cpsat import ask
        from tessel_core.scheduling.search.runs_model import RunsModel

        incumbent, exact = self.incumbent, self.quantum == 1
        # A coarse plan needs a longer horizon, because durations are rounded.
        horizon = incumbent.makespan // self.quantum + (0 if exact else len(self.plan.blocks))
        model = RunsModel(self.coarse, incumbent.micro_batches, horizon)
        model.hint(incumbent.starts // self.quantum)
        model.minimise_makespan(incumbent.bound // self.quantum - (0 if exact else len(self.plan.blocks)))

        def report(objective: int, bound: float) -> None:
            if exact:
                self.control.report(MAKESPAN, objective, max(incumbent.bound, int(bound)), "all runs")

        small = incumbent.runs <= _MAX_PRESOLVED_RUNS
        effort = replace(self.effort, relaxation=small)
        answer = ask(model.cp, effort, self.control, presolve=small, on_solution=report)
        if answer.verdict.found:
            self._offer(model.starts(answer), "all runs")
            if exact:
                incumbent.raise_bound(min(incumbent.makespan, round(answer.bound)), "all runs")

    def _offer(self, starts: IntColumn, by: str) -> None:
        """Compute the earliest starts in the order of a schedule, and offer them to the incumbent."""
        self.incumbent.offer(compacted(Schedule.from_starts(self.plan, starts)), by)


TIME_OPTIMAL = Scheduler(
    "time-optimal",
    "Time-optimal",
    "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269, section III",
    solve,
    TimeOptimalConfig,
)
