"""Coarser copies of plans with fine costs, and the exact timing of a given order of runs.

The memory that devices hold depends on the order only, and not on its timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, Repetend, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.order import Run, run_in_order

FINE = 600
"""Periods above this many ticks are first searched on copies of the plan with coarser costs."""
_STEPS = (400, 100)
"""Numbers of steps per period on the coarser copies."""
_ROUNDS_PER_CYCLE_CHECK = 20
"""Rounds of Bellman-Ford between two checks for a cycle."""


def quanta(period: Fraction | int) -> tuple[int, ...]:
    """Return the ticks per quantum of each copy of the plan on which a period of about `period` is searched.

    The plan itself has 1 tick per quantum.
    """
    if period <= FINE:
        return (1,)
    return tuple(max(1, int(period) // steps) for steps in _STEPS)


@lru_cache(maxsize=16)
def quantised(plan: MicroBatchPlan, quantum: int) -> MicroBatchPlan:
    """Return the plan with durations and lags rounded to multiples of `quantum`, and counted in quanta."""
    if quantum == 1:
        return plan
    return replace(
        plan,
        blocks=tuple(replace(block, duration=max(1, round(block.duration / quantum))) for block in plan.blocks),
        dependencies=tuple(replace(dep, lag=round(dep.lag / quantum)) for dep in plan.dependencies),
    )


@dataclass(frozen=True, slots=True)
class Tie:
    """Rule that micro-batches `first` … `first + count - 1` repeat: m starts `period` ticks after m - `unroll`."""

    period: int
    unroll: int
    first: int
    count: int

    def bound_to(self, micro_batch: int) -> bool:
        """Return whether the starts of a micro-batch follow from those of an earlier one."""
        return self.first + self.unroll <= micro_batch < self.first + self.count

    def leader(self, micro_batch: int) -> tuple[int, int]:
        """Return the micro-batch that determines the starts of this one, and the ticks between them.

        A free micro-batch determines its own starts, with 0 ticks.
        """
        if not self.bound_to(micro_batch):
            return micro_batch, 0
        turns, copy = divmod(micro_batch - self.first, self.unroll)
        return self.first + copy, turns * self.period


def compacted(schedule: Schedule) -> IntColumn:
    """Return the earliest starts, shaped (micro-batches, blocks), that keep the order on each device.

    No run starts later than before.
    """
    order = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
    return run_in_order(schedule.plan, schedule.micro_batches, order)


def compacted_around(
    plan: MicroBatchPlan, starts: IntColumn, pinned: Mapping[Run, int], orders: Sequence[tuple[Run, Run]]
) -> IntColumn:
    """Start every run as early as the order on its devices allows, but no pinned run before its pinned start.

    For each pair of runs in `orders`, the second starts after the first has ended. `starts` is shaped (micro-batches,
    blocks).
    """
    earliest, busy = np.zeros_like(starts), [0] * len(plan.devices)
    first_of: dict[Run, list[Run]] = {}
    for first, second in orders:
        first_of.setdefault(second, []).append(first)
    for m, b in (divmod(int(run), len(plan.blocks)) for run in np.argsort(starts, axis=None, kind="stable")):
        block = plan.blocks[b]
        ready = [earliest[m, a] + plan.blocks[a].duration + lag for a, lag in plan.predecessors[b]]
        ready += [earliest[n, a] + plan.blocks[a].duration for a, n in first_of.get((b, m), ())]
        earliest[m, b] = max([pinned.get((b, m), 0), *ready, *(busy[d] for d in block.devices)])
        for d in block.devices:
            busy[d] = earliest[m, b] + block.duration
    return earliest


def compacted_with_tie(schedule: Schedule, tie: Tie) -> IntColumn | None:
    """Return the earliest starts that keep the order on each device and the period of the tied part, or None.

    A tied run is the variable of its leader plus a constant, so this is a system of difference constraints. Only the
    order of runs on each device is taken from `schedule`, whose starts may be coarse. The result is None if no starts
    exist.
    """
    plan, blocks = schedule.plan, len(schedule.plan.blocks)
    leaders = [tie.leader(m) for m in range(schedule.micro_batches)]
    arcs: dict[tuple[int, int], int] = {}

    def after(early: tuple[int, int], late: tuple[int, int], ticks: int) -> None:
        """Add start(late) >= start(early) + ticks, in terms of their leaders."""
        (early_leader, early_shift), (late_leader, late_shift) = leaders[early[1]], leaders[late[1]]
        key = early_leader * blocks + early[0], late_leader * blocks + late[0]
        arcs[key] = max(arcs.get(key, -(2**62)), ticks + early_shift - late_shift)

    for m in range(schedule.micro_batches):
        for a, b, lag in plan.arcs:
            after((a, m), (b, m), plan.blocks[a].duration + lag)
    for d in range(len(plan.devices)):
        rows = schedule.runs_on(d)
        line = zip(schedule.block[rows].tolist(), schedule.micro_batch[rows].tolist(), strict=True)
        for here, there in pairwise(line):
            after(here, there, plan.blocks[here[0]].duration)
    ends = np.array(list(arcs), dtype=np.int64)
    lengths = np.array(list(arcs.values()), dtype=np.int64)
    starts, cycle = earliest_starts(schedule.micro_batches * blocks, ends[:, 0], ends[:, 1], lengths)
    if cycle:
        return None
    matrix = starts.reshape(schedule.micro_batches, blocks)
    shifts = np.array([shift for _, shift in leaders], dtype=np.int64)
    result: IntColumn = matrix[[leader for leader, _ in leaders]] + shifts[:, None]
    return result


def retime(plan: MicroBatchPlan, repetend: Repetend, least_period: int) -> Repetend:
    """Return a repetend of `plan` with the order of `repetend` and the least period, which is at least `least_period`.

    `repetend` may belong to a quantised copy of `plan`. The same order on every device means the same memory. The least
    period is a maximum cycle ratio. It is found by raising the period until no positive cycle is left [Lawler 1976].
    """
    arcs = np.array(_arcs(plan, repetend), dtype=np.int64)
    period = least_period
    while True:
        source, target, weights, heights = arcs.T
        starts, cycle = earliest_starts(repetend.first_start.size, source, target, weights - heights * period)
        if not cycle:
            return Repetend(plan, period, starts.reshape(repetend.first_start.shape))
        weight, height = int(weights[cycle].sum()), int(heights[cycle].sum())
        period = max(period + 1, -(-weight // height))


def _arcs(plan: MicroBatchPlan, repetend: Repetend) -> list[tuple[int, int, int, int]]:
    """Return arcs (from, to, weight, height), which mean start(to) >= start(from) + weight - height * period."""
    blocks, unroll = len(plan.blocks), repetend.unroll
    k, r = np.divmod(repetend.first_start, repetend.period)
    arcs = [
        (u * blocks + a, u * blocks + b, plan.blocks[a].duration + lag, 0)
        for u in range(unroll)
        for a, b, lag in plan.arcs
    ]
    for on in plan.blocks_on:
        line = sorted((int(r[u, b]), int(k[u, b]), u * blocks + b, b) for u in range(unroll) for b in on)
        for here, there in pairwise(line):
            arcs.append((here[2], there[2], plan.blocks[here[3]].duration, here[1] - there[1]))
        if line:
            last, first = line[-1], line[0]
            arcs.append((last[2], first[2], plan.blocks[last[3]].duration, last[1] - first[1] + 1))
    return arcs


def earliest_starts(
    nodes: int, source: IntColumn, target: IntColumn, length: IntColumn, control: Control | None = None
) -> tuple[IntColumn, list[int] | None]:
    """Return the least starts from 0 on that meet start(target) >= start(source) + length, and an empty list.

    The arcs form a positive cycle, so no starts meet the condition. The list is empty if there is no such cycle, and
    None if the control stopped the search. The method is Bellman-Ford.
    """
    starts, came_by = np.zeros(nodes, dtype=np.int64), np.full(nodes, -1, dtype=np.int64)
    if not len(source):
        return starts, []
    arc = np.argsort(target, kind="stable")
    by_source, by_length = source[arc], length[arc]
    reached, first, count = np.unique(target[arc], return_index=True, return_counts=True)
    for round_number in range(1, nodes + 2):
        if control is not None and control.stopped:
            return starts, None
        arrival = starts[by_source] + by_length
        latest = np.maximum.reduceat(arrival, first)
        later = latest > starts[reached]
        if not later.any():
            return starts, []
        moved = arc[(arrival == np.repeat(latest, count)) & np.repeat(later, count)]
        came_by[target[moved]] = moved
        starts[reached[later]] = latest[later]
        if round_number % _ROUNDS_PER_CYCLE_CHECK == 0 or round_number > nodes:
            cycle = _cycle_in(came_by, source)
            if cycle:
                return starts, cycle
    raise AssertionError("starts that still move after as many rounds as there are nodes go round a cycle")


def _cycle_in(came_by: IntColumn, source: IntColumn) -> list[int]:
    """Return the arcs of a cycle of `came_by`, which has the last arc to each node. Empty if there is none."""
    by, back = came_by.tolist(), source.tolist()
    seen = [0] * len(by)
    for walk in range(1, len(by) + 1):
        at, path = walk - 1, list[int]()
        while by[at] >= 0 and not seen[at]:
            seen[at] = walk
            path.append(at)
            at = back[by[at]]
        if seen[at] == walk:
            return [by[each] for each in path[path.index(at) :]]
    return []
