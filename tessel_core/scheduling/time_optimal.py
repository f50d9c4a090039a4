"""`time-optimal`: the shortest schedule of all N micro-batches, by CP-SAT over every run."""

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

_EXACT_RUNS = 200
"""Up to this many, CP-SAT works in ticks, however fine, and its bound counts."""
_PRESOLVED_RUNS = 1_000
"""Presolve and linear relaxations of larger models take long, do not hear a cancel, and gain nothing."""
_START_SHARE = 0.25
"""The share of the time limit that the two-phase search may use to find the schedule to start from."""
_REORDER_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class TimeOptimalConfig:
    """Options of the search over all runs."""

    time_limit: float = option(20.0, Option("Time limit", "Until then the best so far is improved.", 0.1, 3600, "s"))
    workers: int = option(2, Option("Workers", "Solver threads. With one, the same seed gives the same answer.", 1, 64))
    seed: int = option(0, Option("Seed", "Start of the solver's random choices.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: TimeOptimalConfig, control: Control) -> ScheduleReport:
    """The least makespan with its bound; the steady state may be given up for it.

    The "time-optimal" search of [Lin et al., Tessel, HPCA 2024, section III], which grows with N.
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
    found = Schedule.from_starts(plan, incumbent.starts, find_steady_state(incumbent.starts))
    return report_on(found, incumbent.bound, caveat(config.workers, control))


class _Search:
    """Decide at the bound first, then minimise from the best."""

    def __init__(self, incumbent: Incumbent, effort: Effort, control: Control) -> None:
        self.incumbent, self.effort, self.control = incumbent, effort, control
        self.plan = incumbent.plan
        self.quantum = 1 if incumbent.runs <= _EXACT_RUNS else quanta(self.plan.busiest_work)[0]
        """Above 1, CP-SAT sees a coarse copy of the plan and only its orders are kept, timed exactly."""
        self.coarse = quantised(self.plan, self.quantum)

    def run(self) -> None:
        """Improve the incumbent and its bound until they meet or time ends."""
        for step in (self._reorder, self._decide_at_bound, self._minimise):
            if not (self.incumbent.proved or self.control.stopped):
                step()

    def _reorder(self) -> None:
        """Reverse neighbours, which helps where CP-SAT does not: with many runs of many lengths."""
        from tessel_core.scheduling.search.order_search import shorten

        effort = self.effort.within(self.effort.seconds * _REORDER_SHARE)
        shorter = shorten(self.plan, self.incumbent.starts, self.incumbent.bound, effort, self.control)
        self._offer(shorter, "order")

    def _decide_at_bound(self) -> None:
        """Deciding is much easier than minimising, and the bound is often met."""
        from tessel_core.cpsat import Verdict, ask
        from tessel_core.scheduling.search.runs_model import RunsModel

        bound = self.incumbent.bound
        model = RunsModel(self.coarse, self.incumbent.micro_batches, self._in_quanta(bound))
        effort = replace(self.effort.within(self.effort.seconds / 4), relaxation=False)
        answer = ask(model.cp, effort, self.control, presolve=False)
        if answer.verdict is Verdict.IMPOSSIBLE and self.quantum == 1:
            self.incumbent.raise_bound(bound + 1, "all runs")
        elif answer.verdict.found:
            self._offer(model.starts(answer), "all runs")

    def _minimise(self) -> None:
        from tessel_core.cpsat import ask
        from tessel_core.scheduling.search.runs_model import RunsModel

        incumbent, exact = self.incumbent, self.quantum == 1
        model = RunsModel(self.coarse, incumbent.micro_batches, self._in_quanta(incumbent.makespan))
        model.hint(incumbent.starts // self.quantum)
        model.minimise_makespan(incumbent.bound // self.quantum - (0 if exact else len(self.plan.blocks)))

        def report(objective: int, bound: float) -> None:
            if exact:
                self.control.report(MAKESPAN, objective, max(incumbent.bound, int(bound)), "all runs")

        small = incumbent.runs <= _PRESOLVED_RUNS
        effort = replace(self.effort, relaxation=small)
        answer = ask(model.cp, effort, self.control, presolve=small, on_solution=report)
        if answer.verdict.found:
            self._offer(model.starts(answer), "all runs")
            if exact:
                incumbent.raise_bound(min(incumbent.makespan, round(answer.bound)), "all runs")

    def _in_quanta(self, ticks: int) -> int:
        """A horizon on the coarse plan, with room for what rounding adds."""
        return ticks if self.quantum == 1 else ticks // self.quantum + len(self.plan.blocks)

    def _offer(self, starts: IntColumn, by: str) -> None:
        """Keep the order of a schedule, timed exactly, if it is shorter."""
        self.incumbent.offer(compacted(Schedule.from_starts(self.plan, starts)), by)


TIME_OPTIMAL = Scheduler(
    "time-optimal",
    "Time-optimal",
    "Lin et al., Tessel, HPCA 2024, arXiv 2311.15269, section III",
    solve,
    TimeOptimalConfig,
)
