"""Random schedules of random small plans, good and bad."""

from __future__ import annotations

import random

from helpers.plans import random_plan
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.scheduling.order import run_in_order


def any_order(plan: MicroBatchPlan, micro_batches: int, choose: random.Random) -> list[tuple[int, int]]:
    """Return all runs as (block, micro-batch), in a random order that the dependencies allow."""
    waits = {(b, m): len(plan.predecessors[b]) for b in range(len(plan.blocks)) for m in range(micro_batches)}
    order = list[tuple[int, int]]()
    while waits:
        run = choose.choice([run for run, left in waits.items() if not left])
        del waits[run]
        order.append(run)
        for after, _ in plan.successors[run[0]]:
            waits[after, run[1]] -= 1
    return order


def any_schedule(seed: int) -> Schedule:
    """Return a schedule of a random plan in random order. It may exceed the memory, and some runs start late."""
    choose = random.Random(seed)
    plan, micro_batches = random_plan(seed), choose.randint(1, 4)
    order = any_order(plan, micro_batches, choose)
    starts = run_in_order(plan, micro_batches, order)
    if choose.random() < 0.4:
        late = starts >= choose.randint(1, int(starts.max()) + 1)
        starts = starts + late * choose.randint(1, 3)
    return Schedule.from_starts(plan, starts)
