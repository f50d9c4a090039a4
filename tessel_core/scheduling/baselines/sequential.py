"""The sequential schedule: micro-batches do not overlap, so it needs the least memory."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.registry import NoOptions
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.reports import report_baseline
from tessel_core.scheduling.schedulers import Scheduler


def solve(plan: MicroBatchPlan, micro_batches: int, config: NoOptions, control: Control) -> ScheduleReport:
    """Return the report on the schedule in which each micro-batch starts when the previous one has ended.

    The blocks of a micro-batch start as early as dependencies allow.
    """
    return report_baseline(plan, one_after_the_other(plan).expand(micro_batches).starts)


SEQUENTIAL = Scheduler(
    "sequential", "Sequential", "One micro-batch at a time, the reference without any pipelining", solve
)
