"""One micro-batch after the other: nothing overlaps between micro-batches, so it needs the least memory."""

from __future__ import annotations

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.scheduling.order import report_baseline, run_in_order
from tessel_core.scheduling.problem import NoOptions, Scheduler


def solve(plan: MicroBatchPlan, micro_batches: int, config: NoOptions, control: Control) -> ScheduleReport:
    """Each micro-batch starts when the one before has ended, its blocks as early as their dependencies allow."""
    alone = run_in_order(plan, 1, ((b, 0) for b in plan.topological_order))
    length = max(int(alone[0, b]) + block.duration for b, block in enumerate(plan.blocks))
    return report_baseline(plan, alone + length * np.arange(micro_batches, dtype=np.int64)[:, None])


SEQUENTIAL = Scheduler(
    "sequential", "Sequential", "One micro-batch at a time, the reference without any pipelining", solve
)
