"""Every scheduler, in the order in which people are offered them, and the front door that keeps them honest."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.model.schedule import check_size
from tessel_core.options import check_options
from tessel_core.registry import Registry
from tessel_core.rules import insist
from tessel_core.scheduling.baselines import BASELINES
from tessel_core.scheduling.problem import Scheduler
from tessel_core.units import MAGNITUDE

SCHEDULERS = Registry[Scheduler](
    "scheduler",
    "tessel_core.scheduling",
    {
        "tessel": "tessel:TESSEL",
        "time-optimal": "time_optimal:TIME_OPTIMAL",
        "list-scheduling": "list_scheduling:LIST_SCHEDULING",
    },
    BASELINES,
)
"""Every scheduler by name; forms, command line, comparison and tests follow this table."""

DEFAULT_SCHEDULER = "tessel"


def solve_schedule(
    name: str, plan: MicroBatchPlan, micro_batches: int, config: object = None, control: Control | None = None
) -> ScheduleReport:
    """Search or build a schedule with the scheduler called `name`; the referee has passed what comes back.

    Raises
    ------
    InputError
        For an unknown scheduler, a plan that does not suit it, a number of micro-batches or an option out of range.
    RefereeError
        When the scheduler broke a rule: our bug.
    """
    scheduler = find_scheduler(name)
    check_micro_batches(plan, micro_batches)
    config = scheduler.config() if config is None else config
    if not isinstance(config, scheduler.config):
        raise InputError(f"scheduler {name}", f"takes a {scheduler.config.__name__}, got {type(config).__name__}")
    check_options(config)
    objection = scheduler.why_not(plan, micro_batches)
    if objection:
        raise InputError(f"scheduler {name}", f"does not apply to plan {plan.name}: {objection}")
    control = Control() if control is None else control
    report = scheduler.solve(plan, micro_batches, config, control)
    for schedule in report.schedules:
        insist(schedule, name)
    if report.relaxed_solution is not None:
        insist(report.relaxed_solution, name, without=("memory",))
    return replace(report, solver=name, config=config, wall_s=control.elapsed_s, history=tuple(control.history))


def check_micro_batches(plan: MicroBatchPlan, micro_batches: int) -> None:
    """Raise InputError for a number of micro-batches that no schedule of `plan` may have."""
    if isinstance(micro_batches, bool) or not isinstance(micro_batches, int) or micro_batches < 1:
        raise InputError("micro-batches", f"must be an integer of at least 1, got {micro_batches!r}")
    check_size(plan, micro_batches, "micro-batches")
    longest = micro_batches * (sum(b.duration for b in plan.blocks) + sum(d.lag for d in plan.dependencies))
    if longest > MAGNITUDE:
        raise InputError("micro-batches", f"{micro_batches} of them could last {longest} ticks, more than 2^53")


def find_scheduler(name: str) -> Scheduler:
    """The scheduler called `name`; InputError with the known names where there is none."""
    return SCHEDULERS.find(name)


def title_of(name: str) -> str:
    """What people call the scheduler; its bare name where a file names one that is not ours."""
    return SCHEDULERS[name].title if name in SCHEDULERS else name
