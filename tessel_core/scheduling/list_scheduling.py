"""`list-scheduling`: list schedules by a fixed priority a block, the best of some restarts."""

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
"""As in `search.list_search`, which loads compiled code and so comes late."""


@dataclass(frozen=True, slots=True)
class ListSchedulingConfig:
    """Options of list scheduling."""

    rule: str = option(
        "advanced",
        Option(
            "Rule",
            "What goes first when several blocks could start: the most advanced block, backward before forward, the "
            "longest or the shortest way to the micro-batch's end, the longest way where later micro-batches are due "
            "later, the longest block, or the oldest micro-batch.",
            choices=RULE_NAMES,
        ),
    )
    restarts: int = option(
        200, Option("Restarts", "Schedules built, all but the first two with random changes.", 1, 10**6)
    )
    time_limit: float = option(20.0, Option("Time limit", "Until then schedules are built.", 0.1, 3600, "s"))
    seed: int = option(0, Option("Seed", "Start of the random changes.", 0, 2**31 - 1))


def solve(plan: MicroBatchPlan, micro_batches: int, config: ListSchedulingConfig, control: Control) -> ScheduleReport:
    """Start runs that are ready and fit, the highest priority first [Graham 1966], and repeat with other priorities.

    The parallel schedule-generation scheme of [Kolisch 1996], with a guard where memory could lock up.
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
    found = Schedule.from_starts(plan, incumbent.starts, find_steady_state(incumbent.starts))
    return report_on(found, incumbent.bound, caveat(1, control))


LIST_SCHEDULING = Scheduler(
    "list-scheduling",
    "List scheduling",
    "Graham, Bounds for certain multiprocessing anomalies, 1966; Kolisch, Serial and parallel resource-constrained "
    "project scheduling methods revisited, 1996",
    solve,
    ListSchedulingConfig,
)
