"""Schedules made from an order of runs: each run starts as early as the order, durations and lags allow."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, Repetend, ScheduleReport
from tessel_core.model.schedule import IntColumn
from tessel_core.registry import NoOptions
from tessel_core.scheduling.reports import report_baseline
from tessel_core.scheduling.schedulers import Scheduler

Run = tuple[int, int]
"""Pair (block, micro-batch)."""
Shape = TypeVar("Shape")


def run_in_order(plan: MicroBatchPlan, micro_batches: int, order: Iterable[Run]) -> IntColumn:
    """Return the earliest starts in ticks, shaped (micro-batches, blocks), if each device keeps the given order.

    `order` lists every run once, with predecessors before successors. Only the order on each device matters. Raises
    ValueError if a run is missing, occurs twice, or comes before one of its predecessors.
    """
    starts = np.zeros((micro_batches, len(plan.blocks)), dtype=np.int64)
    ends: list[list[int]] = [[-1] * len(plan.blocks) for _ in range(micro_batches)]
    free = [0] * len(plan.devices)
    for b, m in order:
        block = plan.blocks[b]
        start = max(free[d] for d in block.devices)
        for before, lag in plan.predecessors[b]:
            if ends[m][before] < 0:
                raise ValueError(f"{plan.blocks[before].name} of micro-batch {m} must come before {block.name}")
            start = max(start, ends[m][before] + lag)
        if ends[m][b] >= 0:
            raise ValueError(f"{block.name} of micro-batch {m} occurs twice in the order")
        starts[m, b] = start
        end = ends[m][b] = start + block.duration
        for d in block.devices:
            free[d] = end
    missing = next(((b, m) for m, row in enumerate(ends) for b, end in enumerate(row) if end < 0), None)
    if missing is not None:
        raise ValueError(f"{plan.blocks[missing[0]].name} of micro-batch {missing[1]} is missing in the order")
    return starts


def numbered_runs(blocks: Iterable[int], micro_batches: int) -> list[Run]:
    """Convert a device's sequence of blocks to runs. Occurrence n of a block, from 0, is micro-batch n.

    Occurrences from `micro_batches` on are left out.

    >>> numbered_runs([5, 5, 7, 5, 7], 2)
    [(5, 0), (5, 1), (7, 0), (7, 1)]
    """
    mentions: Counter[int] = Counter()
    runs = []
    for b in blocks:
        if mentions[b] < micro_batches:
            runs.append((b, mentions[b]))
        mentions[b] += 1
    return runs


def merge_device_orders(plan: MicroBatchPlan, device_orders: Sequence[Sequence[Run]]) -> list[Run]:
    """Merge the orders of the devices into one order of all runs, with predecessors first.

    Each run occurs in exactly one of `device_orders`, even if it occupies several devices. Raises AssertionError if the
    orders deadlock, which is a bug of the caller.
    """
    waiting = [deque(order) for order in device_orders]
    merged: list[Run] = []
    done: set[Run] = set()
    while any(waiting):
        before = len(merged)
        for line in waiting:
            while line and all((a, line[0][1]) in done for a, _ in plan.predecessors[line[0][0]]):
                merged.append(line.popleft())
                done.add(merged[-1])
        assert len(merged) > before, f"the orders of the devices of plan {plan.name} deadlock"
    return merged


def one_after_the_other(plan: MicroBatchPlan, order: Sequence[int] | None = None) -> Repetend:
    """Return the repetend in which each micro-batch starts when the previous one has ended.

    The blocks of a micro-batch run in `order`, as early as the dependencies allow.
    """
    alone = run_in_order(plan, 1, ((b, 0) for b in order or plan.topological_order))
    length = max(int(alone[0, b]) + block.duration for b, block in enumerate(plan.blocks))
    return Repetend(plan, length, alone)


def published(
    name: str,
    title: str,
    source: str,
    find: Callable[[MicroBatchPlan], Shape | str],
    order: Callable[[MicroBatchPlan, Shape, int], Iterable[Run]],
    *,
    needs: str = "",
    count_objection: Callable[[MicroBatchPlan, int], str] = lambda plan, micro_batches: "",
    splits: bool = False,
) -> Scheduler:
    """Build a scheduler that runs a published order and reports whether it fits in memory.

    `find` returns the structure of a plan that `order` needs, such as its stages, or a string that says why the plan
    does not suit. If `needs` is given, the string continues the sentence "`needs`, but …". `order` lists every run
    once, with predecessors before successors.
    """

    def objection(plan: MicroBatchPlan) -> str:
        shape = find(plan)
        if not isinstance(shape, str):
            return ""
        return f"{needs}, but {shape}" if needs else shape

    def solve(plan: MicroBatchPlan, micro_batches: int, config: NoOptions, control: Control) -> ScheduleReport:
        shape = find(plan)
        assert not isinstance(shape, str)
        return report_baseline(plan, run_in_order(plan, micro_batches, order(plan, shape, micro_batches)))

    return Scheduler(name, title, source, solve, objection=objection, count_objection=count_objection, splits=splits)
