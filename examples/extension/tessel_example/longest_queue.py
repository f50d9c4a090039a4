"""A scheduler: each device runs the block whose queue of waiting micro-batches is longest."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.options import Option, option
from tessel_core.scheduling import Scheduler
from tessel_core.scheduling.reports import report_baseline

MAX_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class LongestQueueConfig:
    """Options of the scheduler."""

    late_first: bool = option(
        False,
        Option(
            "Late blocks first", "If two queues are equally long, run the block that is later in the plan first.", 0, 1
        ),
    )


def solve(plan: MicroBatchPlan, micro_batches: int, config: LongestQueueConfig, control: Control) -> ScheduleReport:
    """Among the runs with the earliest possible start, start the run whose block has most waiting micro-batches."""
    starts = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
    missing = [[len(before) for before in plan.predecessors] for _ in range(micro_batches)]
    ready_at = np.zeros_like(starts)
    waiting = [deque(() if before else range(micro_batches)) for before in plan.predecessors]
    free_at = [0] * len(plan.devices)
    sign = -1 if config.late_first else 1

    def turn(block: int) -> tuple[int, int, int]:
        ready = int(ready_at[waiting[block][0], block])
        return max(ready, *(free_at[d] for d in plan.blocks[block].devices)), -len(waiting[block]), sign * block

    for _ in range(starts.size):
        block = min((b for b, queue in enumerate(waiting) if queue), key=turn)
        start, micro_batch = turn(block)[0], waiting[block].popleft()
        starts[micro_batch, block], end = start, start + plan.blocks[block].duration
        for device in plan.blocks[block].devices:
            free_at[device] = end
        for after, lag in plan.successors[block]:
            ready_at[micro_batch, after] = max(ready_at[micro_batch, after], end + lag)
            missing[micro_batch][after] -= 1
            if not missing[micro_batch][after]:
                waiting[after].append(micro_batch)
    return report_baseline(plan, starts)


def objection_to_count(plan: MicroBatchPlan, micro_batches: int) -> str:
    """Explain why this many micro-batches would take too long; empty if they would not."""
    runs = micro_batches * len(plan.blocks)
    return f"schedules at most {MAX_RUNS:,} runs, got {runs:,}" if runs > MAX_RUNS else ""


LONGEST_QUEUE = Scheduler(
    "longest-queue",
    "Longest queue first",
    "A rule of queueing theory that serves the longest queue and ignores memory",
    solve,
    LongestQueueConfig,
    count_objection=objection_to_count,
)
