"""Quick schedules and their repetends, from which searches start: the published orders and a greedy list schedule.

Each step of the greedy schedule places the run that can start first. Among such runs, it chooses the oldest
micro-batch, and then the last block in topological order. On a chain of stages this gives 1F1B. Micro-batches enter a
device in order, and only if the device has room for all memory that the micro-batch will acquire there. So the oldest
micro-batch in flight is never blocked, and nothing deadlocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.model.schedule import IntColumn
from tessel_core.registry import NoOptions
from tessel_core.rules import check_schedule
from tessel_core.scheduling.schedulers import BASELINES
from tessel_core.scheduling.search.timing import retime
from tessel_core.scheduling.steady import find_steady_state, holds_instance

_MAX_GREEDY_RUNS = 5_000
"""Largest number of runs in a greedy schedule. The compiled `list_search` handles more."""
_MAX_PUBLISHED_RUNS = 200_000


def quick_starts(plan: MicroBatchPlan, micro_batches: int) -> Iterator[IntColumn]:
    """Yield starts, shaped (micro-batches, blocks), of the greedy schedule and of published orders that fit."""
    listed = greedy_starts(plan, micro_batches)
    if listed is not None:
        yield listed
    yield from published_starts(plan, micro_batches)


def published_starts(plan: MicroBatchPlan, micro_batches: int) -> Iterator[IntColumn]:
    """Yield starts, shaped (micro-batches, blocks), of the published orders that apply and fit."""
    for scheduler in BASELINES.values():
        if micro_batches * len(plan.blocks) <= _MAX_PUBLISHED_RUNS and not scheduler.why_not(plan, micro_batches):
            built = scheduler.solve(plan, micro_batches, NoOptions(), Control()).solution
            if built is not None:
                yield built.starts


def quick_repetends(plan: MicroBatchPlan, max_unroll: int) -> Iterator[Repetend]:
    """Yield the repetends of quick schedules, each with the least period for its order."""
    micro_batches = min(4 * len(plan.blocks) + 4 * max_unroll, _MAX_GREEDY_RUNS // len(plan.blocks))
    for starts in quick_starts(plan, max(1, micro_batches)):
        yield from steady_part(plan, starts, max_unroll)


def steady_part(plan: MicroBatchPlan, starts: IntColumn, max_unroll: int) -> Iterator[Repetend]:
    """Yield the repetend in the steady state of a schedule, if it has at most `max_unroll` micro-batches.

    Among such repetends, it has the least number of micro-batches. Its period is the least for its order.
    """
    for unroll in range(1, min(max_unroll, len(starts) - 1) + 1):
        steady = find_steady_state(starts, unroll=unroll)
        if steady is None or not holds_instance(starts, steady):
            continue
        first = steady.first_micro_batch
        repetend = Repetend(plan, steady.period, starts[first : first + unroll])
        if not check_schedule(repetend.expand(len(starts))):
            yield retime(plan, repetend, unroll * plan.busiest_work)
            return


def greedy_starts(plan: MicroBatchPlan, micro_batches: int) -> IntColumn | None:
    """Return the starts of the greedy schedule, shaped (micro-batches, blocks).

    Return None if there are too many runs, or if a device cannot hold all memory that one micro-batch acquires there.
    """
    if micro_batches * len(plan.blocks) > _MAX_GREEDY_RUNS:
        return None
    room = [_room(plan, d) for d in range(len(plan.devices))]
    if any(seats < 1 for seats in room):
        return None
    return _Greedy(plan, micro_batches, room).run()


def _room(plan: MicroBatchPlan, device: int) -> float:
    """Return how many micro-batches fit on `device` at once, or infinity if memory is no limit."""
    capacity = plan.devices[device].activation_capacity
    acquired = sum(max(0, plan.blocks[b].memory) for b in plan.blocks_on[device])
    return float("inf") if capacity is None or not acquired else capacity // acquired


class _Greedy:
    """State of the greedy scheduler.

    Ready runs are tuples (start, micro-batch, rank, block), and the least comes first. The rank is lower for blocks
    later in the topological order.
    """

    def __init__(self, plan: MicroBatchPlan, micro_batches: int, room: list[float]) -> None:
        self.plan, self.micro_batches, self.room = plan, micro_batches, room
        self.rank = {b: -position for position, b in enumerate(plan.topological_order)}
        self.starts = np.full((micro_batches, len(plan.blocks)), -1, dtype=np.int64)
        self.free = [0] * len(plan.devices)
        self.entered = [0] * len(plan.devices)
        self.gone = [0] * len(plan.devices)
        self.moving = [[b for b in on if plan.blocks[b].memory] for on in plan.blocks_on]
        self.missing = [[len(before) for before in plan.predecessors] for _ in range(micro_batches)]
        self.ready: list[tuple[int, int, int, int]] = []
        self.barred: list[list[tuple[int, int]]] = [[] for _ in plan.devices]
        """For each device, the runs (block, micro-batch) that wait for room on it."""

    def run(self) -> IntColumn:
        """Place all runs and return their starts, shaped (micro-batches, blocks)."""
        for b in self.plan.topological_order:
            if not self.plan.predecessors[b]:
                for m in range(self.micro_batches):
                    self._push(b, m, 0)
        while self.ready:
            start, m, _, b = heapq.heappop(self.ready)
            now = max(start, *(self.free[d] for d in self.plan.blocks[b].devices))
            if now > start:
                self._push(b, m, now)
                continue
            full = self._without_room(b, m)
            if full is None:
                self._place(b, m, start)
            else:
                self.barred[full].append((b, m))
        assert not any(self.barred)
        return self.starts

    def _push(self, b: int, m: int, start: int) -> None:
        heapq.heappush(self.ready, (start, m, self.rank[b], b))

    def _without_room(self, b: int, m: int) -> int | None:
        """Return the first device that block b of micro-batch m may not enter yet, or None.

        A micro-batch enters a device after all earlier micro-batches, and only if there is room for it.
        """
        if self.plan.blocks[b].memory <= 0:
            return None
        for d in self.plan.blocks[b].devices:
            next_one = m == self.entered[d] and m - self.gone[d] < self.room[d]
            if m >= self.entered[d] and not next_one:
                return d
        return None

    def _place(self, b: int, m: int, start: int) -> None:
        block = self.plan.blocks[b]
        self.starts[m, b] = start
        end = start + block.duration
        for d in block.devices:
            self.free[d] = end
            if block.memory > 0:
                self.entered[d] = max(self.entered[d], m + 1)
        for after, _ in self.plan.successors[b]:
            self.missing[m][after] -= 1
            if not self.missing[m][after]:
                self._push(after, m, self._earliest(after, m))
        if block.memory:
            self._let_in(block.devices, m)

    def _let_in(self, devices: tuple[int, ...], m: int) -> None:
        """Count micro-batch m as gone from those of the devices that it has left.

        Then retry the runs that wait for room on the devices.
        """
        for d in devices:
            if all(self.starts[m, b] >= 0 for b in self.moving[d]):
                self.gone[d] += 1
            waiting, self.barred[d] = self.barred[d], []
            for b, micro_batch in waiting:
                self._push(b, micro_batch, self._earliest(b, micro_batch))

    def _earliest(self, b: int, m: int) -> int:
        waits = [self.free[d] for d in self.plan.blocks[b].devices]
        for a, lag in self.plan.predecessors[b]:
            waits.append(int(self.starts[m, a]) + self.plan.blocks[a].duration + lag)
        return max(waits)
