"""The scheduler `list-scheduling`: list schedules with a fixed priority per block, the best of several restarts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.options import Option, option
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.reports import caveat, no_schedule, report_on
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.scheduling.steady import find_steady_state

RULE_NAMES = ("advanced", "backward", "longest-path", "shortest-path", "least-slack", "longest-run", "oldest")
"""The keys of `search.list_search.RULES`, repeated here because that module loads compiled code."""


@dataclass(frozen=True, slots=True)
class ListSchedulingConfig:
    """Options of list scheduling."""

    rule: str = option(
        "advanced",
        Option(
            "Rule",
            "Which ready block starts first. advanced: the last in the plan's order. backward: backward before forward "
            "before weight. longest-path and shortest-path: by the path to the micro-batch's end. least-slack: by "
            "that path and a due date per micro-batch. longest-run: the longest block. oldest: the oldest micro-batch.",
            choices=RULE_NAMES,
        ),
    )
    restarts: int = option(
        200,
        Option("Restarts", "Number of schedules to build. All but the first two have random changes.", 1, 10**6),
    )
    time_limit: float = option(20.0, Option("Time limit", "Stop after this time.", 0.1, 3600, "s"))
    seed: int = option(0, Option("Seed", "Seed of the random changes.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: ListSchedulingConfig, control: Control) -> ScheduleReport:
    """Build list schedules [Graham 1966] with several priorities and return the shortest.

    This is the parallel schedule-generation scheme of [Kolisch 1996], with a check that prevents deadlocks over memory.
    """
    from tessel_core.cpsat import Effort
    from tessel_core.scheduling.search.capacity import find_fitting_order
    from tessel_core.scheduling.search.incumbent import Incumbent
    from tessel_core.scheduling.search.list_search import ListSearch
    from tessel_core.scheduling.search.slices import side_by_side

    control = control.part(config.time_limit)
    effort = Effort(config.time_limit, 1, config.seed, repeatable=True)
    verdict, order = find_fitting_order(plan, effort, control)
    if order is None:
        return no_schedule(plan, micro_batches, verdict, MAKESPAN, effort, control)
    sequential = one_after_the_other(plan, order).expand(micro_batches)
    incumbent = Incumbent(plan, sequential.starts, makespan_bound(plan, micro_batches), control)
    search = ListSearch(plan, order, micro_batches, config.rule, config.seed)
    left = config.restarts
    while left and not incumbent.proved:
        tries = 1 if left == config.restarts else min(left, search.tries_per_slice)
        if side_by_side([partial(search.restart, tries)], 1, control) is None:
            break
        incumbent.offer(search.starts, "list")
        left -= tries
    schedule = Schedule.from_starts(plan, incumbent.starts, find_steady_state(incumbent.starts))
    return report_on(schedule, incumbent.bound, caveat(1, control))


LIST_SCHEDULING = Scheduler(
    "list-scheduling",
    "List scheduling",
    "Graham, Bounds for certain multiprocessing anomalies, 1966; Kolisch, Serial and parallel resource-constrained "
    "project scheduling methods revisited, 1996",
    solve,
    ListSchedulingConfig,
)
