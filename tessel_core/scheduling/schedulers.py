"""Every scheduler, in the order in which people are offered them, and the front door that keeps them honest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import MAKESPAN, PERIOD, MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.model.schedule import check_size
from tessel_core.options import without_selection
from tessel_core.registry import Registry, Solver
from tessel_core.rules import insist
from tessel_core.units import MAGNITUDE


@dataclass(frozen=True, slots=True)
class Scheduler(Solver):
    """A solver whose problem is a plan and a number of micro-batches.

    `solve` may assume a plan to which `objection` has nothing to say, at least one micro-batch, and a number to which
    `count_objection` has nothing to say.  Each objection is one sentence without its full stop on why a plan, or a
    number of micro-batches for a plan that suits, does not do; or it is empty.
    """

    kind: ClassVar[str] = "scheduler"

    objection: Callable[[MicroBatchPlan], str] = lambda plan: ""
    count_objection: Callable[[MicroBatchPlan, int], str] = lambda plan, micro_batches: ""
    splits: bool = False
    """Whether it was published for split backward passes; plans with whole ones may suit as well."""

    def why_not(self, plan: MicroBatchPlan, micro_batches: int) -> str:
        """Either objection."""
        return self.objection(plan) or self.count_objection(plan, micro_batches)


BASELINES = Registry(
    Scheduler,
    "tessel_core.scheduling.baselines",
    {
        "1f1b": "one_f_one_b:ONE_F_ONE_B",
        "1f1b+": "one_f_one_b:ONE_F_ONE_B_PLUS",
        "interleaved": "interleaved:INTERLEAVED",
        "chimera": "chimera:CHIMERA",
        "zb-h1": "zb_h:ZB_H1",
        "zb-h2": "zb_h:ZB_H2",
        "zb-v": "v_pipelines:ZB_V",
        "v-half": "v_pipelines:V_HALF",
        "v-min": "v_pipelines:V_MIN",
        "dualpipe": "dualpipe:DUALPIPE",
        "gpipe": "gpipe:GPIPE",
        "pipedream": "pipedream:PIPEDREAM",
        "sequential": "sequential:SEQUENTIAL",
    },
)
"""Published schedules; the first that applies to a plan is what others are compared with."""

SCHEDULERS = Registry(
    Scheduler,
    "tessel_core.scheduling",
    {
        "tessel": "tessel:TESSEL",
        "time-optimal": "time_optimal:TIME_OPTIMAL",
        "list-scheduling": "list_scheduling:LIST_SCHEDULING",
    },
    BASELINES,
    "tessel.schedulers",
)
"""Every scheduler by name, those of other packages last; forms, command line and comparison follow this table."""

DEFAULT_SCHEDULER = "tessel"

find_scheduler = SCHEDULERS.find


def title_of(name: str) -> str:
    """The scheduler as people write it; its bare name where a file names one that is not ours."""
    return SCHEDULERS[name].title if name in SCHEDULERS else name


def solve_schedule(
    name: str, plan: MicroBatchPlan, micro_batches: int, config: object = None, control: Control | None = None
) -> ScheduleReport:
    """Search or build a schedule with the scheduler called `name`; the referee has passed what comes back.

    Raises InputError for an unknown scheduler, a plan that does not suit it, a number of micro-batches or an option out
    of range; RefereeError where the scheduler broke a rule, which is our bug.
    """
    scheduler = find_scheduler(name)
    check_micro_batches(plan, micro_batches)
    objection = scheduler.why_not(plan, micro_batches)
    if objection:
        raise InputError(f"scheduler {name}", f"does not apply to plan {plan.name}: {objection}")

    def referee(report: ScheduleReport) -> None:
        for schedule in report.schedules:
            insist(schedule, name)
        if report.relaxed_solution is not None:
            insist(report.relaxed_solution, name, without=("memory",))

    return scheduler.ask((plan, micro_batches), config, control, referee)


@lru_cache(maxsize=128)
def one_micro_batch(plan: MicroBatchPlan) -> Schedule:
    """The plan run once, as early as its dependencies allow."""
    schedule = solve_schedule("sequential", plan, 1).drawable
    assert schedule is not None
    return schedule


def check_micro_batches(plan: MicroBatchPlan, micro_batches: int) -> None:
    """Raise InputError for a number of micro-batches that no schedule of `plan` may have."""
    if isinstance(micro_batches, bool) or not isinstance(micro_batches, int) or micro_batches < 1:
        raise InputError("micro-batches", f"must be an integer of at least 1, got {micro_batches!r}")
    check_size(plan, micro_batches, "micro-batches")
    longest = micro_batches * plan.total_time
    if longest > MAGNITUDE:
        raise InputError("micro-batches", f"{micro_batches} of them could last {longest} ticks, more than 2^53")


@dataclass(frozen=True, slots=True)
class Question:
    """One search, complete: equal questions have equal answers, whatever time the machine takes.

    Questions that differ in the objective alone are answered by one search; `search` is what they have in common.
    """

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    config: Any

    @property
    def title(self) -> str:
        """The scheduler as people write it, and the objective where it is the period."""
        title = find_scheduler(self.scheduler).title
        return f"{title} (steady)" if self.objective == PERIOD else title

    @property
    def objective(self) -> str:
        """The objective asked for; empty where the scheduler has only one."""
        return getattr(self.config, "objective", "")

    @property
    def search(self) -> Question:
        """The question under which the search is filed: options that only select from its results have defaults."""
        return replace(self, config=without_selection(self.config))

    def about(self, objective: str) -> Question:
        """The same search, asked for this objective; itself where the scheduler has only one."""
        return replace(self, config=replace(self.config, objective=objective)) if self.objective else self

    def answered_by(self, report: ScheduleReport) -> ScheduleReport:
        """A report of the same search, speaking of the objective that is asked here."""
        return replace(report.about(self.objective or report.objective_name), config=self.config)

    def settled_by(self, report: ScheduleReport) -> bool:
        """Whether another search could add nothing: a published order stays as it is, and so does what is proved."""
        proved = Status.PROVED_OPTIMAL, Status.INFEASIBLE
        known = self.scheduler in BASELINES or all(report.about(each).status in proved for each in (MAKESPAN, PERIOD))
        return known and not report.cancelled

    def solve(self, control: Control) -> ScheduleReport:
        """The answer, as `solve_schedule` gives it."""
        return solve_schedule(self.scheduler, self.plan, self.micro_batches, self.config, control)
