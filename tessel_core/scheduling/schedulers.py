"""The table of schedulers, in the order in which forms list them, and `solve_schedule`, which runs one scheduler."""

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

    `objection` returns why a plan does not suit the scheduler: one sentence without its full stop, or an empty string.
    `count_objection` does the same for a number of micro-batches of a suitable plan. `solve` is called only if both
    return an empty string and there is at least one micro-batch.
    """

    kind: ClassVar[str] = "scheduler"

    objection: Callable[[MicroBatchPlan], str] = lambda plan: ""
    count_objection: Callable[[MicroBatchPlan, int], str] = lambda plan, micro_batches: ""
    splits: bool = False
    """Whether the schedule was published for split backward passes.

    Plans without split backward passes may suit as well.
    """

    def why_not(self, plan: MicroBatchPlan, micro_batches: int) -> str:
        """Return the objection to the plan, or else the objection to the number of micro-batches.

        Return an empty string if there is no objection.
        """
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
"""Schedulers that build published schedules."""

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
"""All schedulers by name, with those of other packages last. Forms and the command line list them in this order."""

DEFAULT_SCHEDULER = "tessel"

find_scheduler = SCHEDULERS.find


def title_of(name: str) -> str:
    """Return the display title of a scheduler, or the name itself if it is unknown."""
    return SCHEDULERS[name].title if name in SCHEDULERS else name


def solve_schedule(
    name: str, plan: MicroBatchPlan, micro_batches: int, config: object = None, control: Control | None = None
) -> ScheduleReport:
    """Search or build a schedule with the scheduler called `name`, and check the result with the referee.

    Raises InputError if the scheduler is unknown, the plan does not suit it, or the number of micro-batches or an
    option is out of range. Raises RefereeError if the scheduler broke a rule, which is a bug of the scheduler.
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
    """Return the schedule of one micro-batch, as early as its dependencies allow."""
    schedule = solve_schedule("sequential", plan, 1).drawable
    assert schedule is not None
    return schedule


def check_micro_batches(plan: MicroBatchPlan, micro_batches: int) -> None:
    """Raise InputError if no schedule of `plan` may have this number of micro-batches."""
    if isinstance(micro_batches, bool) or not isinstance(micro_batches, int) or micro_batches < 1:
        raise InputError("micro-batches", f"must be an integer of at least 1, got {micro_batches!r}")
    check_size(plan, micro_batches, "micro-batches")
    longest = micro_batches * plan.total_time
    if longest > MAGNITUDE:
        raise InputError("micro-batches", f"{micro_batches} of them could last {longest} ticks, more than 2^53")


@dataclass(frozen=True, slots=True)
class Question:
    """All inputs of a schedule search. Equal questions have equal answers, unless a time limit stops a search.

    Questions that differ only in the objective share one search, which the property `search` identifies.
    """

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    config: Any

    @property
    def title(self) -> str:
        """Display title of the scheduler, with "(steady)" if the objective is the period."""
        title = find_scheduler(self.scheduler).title
        return f"{title} (steady)" if self.objective == PERIOD else title

    @property
    def objective(self) -> str:
        """Requested objective. Empty if the scheduler has only one objective."""
        return getattr(self.config, "objective", "")

    @property
    def search(self) -> Question:
        """The question with defaults for options that only select among results.

        Two questions have the same `search` if one search answers both.
        """
        return replace(self, config=without_selection(self.config))

    def about(self, objective: str) -> Question:
        """Return the question for another objective, or the same question if the scheduler has only one objective."""
        return replace(self, config=replace(self.config, objective=objective)) if self.objective else self

    def answered_by(self, report: ScheduleReport) -> ScheduleReport:
        """Convert a report of the same search to the objective and the options of this question."""
        return replace(report.about(self.objective or report.objective_name), config=self.config)

    def settled_by(self, report: ScheduleReport) -> bool:
        """Return whether another search could add nothing, because the order is published or everything is proved."""
        proved = Status.PROVED_OPTIMAL, Status.INFEASIBLE
        known = self.scheduler in BASELINES or all(report.about(each).status in proved for each in (MAKESPAN, PERIOD))
        return known and not report.cancelled

    def solve(self, control: Control) -> ScheduleReport:
        """Run `solve_schedule`."""
        return solve_schedule(self.scheduler, self.plan, self.micro_batches, self.config, control)
