"""Shorter schedules by changing the order on the devices: a tabu search over neighbours on the critical path.

For whole schedules with fine costs, where CP-SAT has no hold: hundreds of runs whose times are all different.  A step
reverses two neighbours on a device that follow each other on a critical path, the pair whose reversal promises the
shortest schedule and is not tabu [Nowicki and Smutnicki 1996; estimates after Taillard 1994].  Reversing a critical
pair never closes a cycle: any other way from the first to the second would make the second start later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn

_STEPS_PER_SECOND = 150_000
"""Steps times runs: what a core manages at least, so that an answer that must be repeatable does not ask the clock."""
_MOST_RUNS = 4_000
_TENURE = 8
"""Steps for which a reversed pair stays so, at least."""


def shorten(plan: MicroBatchPlan, starts: IntColumn, bound: int, effort: Effort, control: Control) -> IntColumn:
    """Starts, shaped like `starts`, of a schedule that is no longer, left-compacted; stops at a makespan of `bound`.

    `starts` must keep all rules.  Takes up to `effort.seconds`.
    """
    orders = _Orders(plan, starts)
    best, length = orders.head, orders.makespan
    steps = int(effort.seconds * _STEPS_PER_SECOND / starts.size)
    if starts.size > _MOST_RUNS:
        return np.array(best).reshape(starts.shape)
    control = control if effort.repeatable else control.part(effort.seconds)
    memory: dict[tuple[int, int], int] = {}
    chance = random.Random(effort.seed)
    step = 0
    while length > bound and not control.stopped and (step < steps or not effort.repeatable):
        pair = orders.best_pair(memory, step, length, chance)
        if pair is None:
            break
        orders.reverse(*pair)
        memory[pair] = step + _TENURE + chance.randrange(2 * _TENURE)
        if orders.makespan < length:
            best, length = orders.head, orders.makespan
        step += 1
    return np.array(best).reshape(starts.shape)


class _Orders:
    """The order of runs on every device, and what follows from it: earliest starts and times to the end.

    A run is the number micro-batch · blocks + block.  Invariant: `line` lists every run after all that must precede it.
    """

    def __init__(self, plan: MicroBatchPlan, starts: IntColumn) -> None:
        self.blocks = len(plan.blocks)
        runs = range(starts.size)
        block_of = [plan.blocks[run % self.blocks] for run in runs]
        self.duration = [block.duration for block in block_of]
        self.memory = [block.memory for block in block_of]
        self.devices = [block.devices for block in block_of]
        self.room = [_unlimited(device.activation_capacity) for device in plan.devices]
        self.waits = [_arcs(run, self.blocks, plan.predecessors) for run in runs]
        """Per run, (predecessor, ticks from its start to ours at least)."""
        self.waits = [[(before, lag + self.duration[before]) for before, lag in arcs] for arcs in self.waits]
        self.followers = [_arcs(run, self.blocks, plan.successors) for run in runs]
        flat = starts.ravel().tolist()
        self.line = sorted(runs, key=lambda run: (flat[run], run))
        self.before: list[dict[int, int]] = [{} for _ in runs]
        self.after: list[dict[int, int]] = [{} for _ in runs]
        self.held: list[dict[int, int]] = [{} for _ in runs]
        """Per run and device, what is held there when the run starts."""
        for d in range(len(plan.devices)):
            self._link(d, [run for run in self.line if d in self.devices[run]])
        self._time()

    def _link(self, device: int, sequence: list[int]) -> None:
        held = 0
        for run in sequence:
            self.held[run][device] = held
            held += self.memory[run]
        for first, second in pairwise(sequence):
            self.after[first][device] = second
            self.before[second][device] = first

    def _time(self) -> None:
        """Earliest starts, and the longest way from each start to the end of everything."""
        head, tail = [0] * len(self.line), [0] * len(self.line)
        duration, waits, before = self.duration, self.waits, self.before
        for run in self.line:
            start = 0
            for other, ticks in waits[run]:
                start = max(start, head[other] + ticks)
            for other in before[run].values():
                start = max(start, head[other] + duration[other])
            head[run] = start
        for run in reversed(self.line):
            rest = 0
            for other, lag in self.followers[run]:
                rest = max(rest, tail[other] + lag)
            for other in self.after[run].values():
                rest = max(rest, tail[other])
            tail[run] = rest + duration[run]
        self.head, self.tail = head, tail
        self.makespan = max(tail[run] + head[run] for run in self.line)

    def best_pair(
        self, memory: dict[tuple[int, int], int], step: int, length: int, chance: random.Random
    ) -> tuple[int, int] | None:
        """The pair to reverse next, None where the critical path has none that may be."""
        found = sorted((self._promise(u, v), chance.random(), u, v) for u, v in self._pairs())
        for promise, _, u, v in found:
            if memory.get((v, u), 0) <= step or promise < length:
                return u, v
        return chance.choice(found)[2:] if found else None

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Critical neighbours on a device, of different blocks, that may be reversed without breaking a rule."""
        for u in self.line:
            if self.head[u] + self.tail[u] < self.makespan:
                continue
            end = self.head[u] + self.duration[u]
            for v in set(self.after[u].values()):
                critical = self.head[v] == end and self.head[v] + self.tail[v] == self.makespan
                if critical and u % self.blocks != v % self.blocks and self._may_swap(u, v):
                    yield u, v

    def _may_swap(self, u: int, v: int) -> bool:
        shared = [d for d in self.devices[u] if d in self.devices[v]]
        if any(self.after[u].get(d) != v for d in shared) or any(before == u for before, _ in self.waits[v]):
            return False
        for d in shared:
            first = self.held[u][d] + max(0, self.memory[v])
            second = self.held[u][d] + self.memory[v] + max(0, self.memory[u])
            if max(first, second) > self.room[d]:
                return False
        return True

    def _promise(self, u: int, v: int) -> int:
        """About how long the longest path through u or v is once v comes first; exact or too short."""
        head, tail, duration = self.head, self.tail, self.duration
        start_v: int = max((head[other] + ticks for other, ticks in self.waits[v]), default=0)
        for d in self.devices[v]:
            other = self.before[v].get(d, -1)
            other = self.before[u].get(d, -1) if other == u else other
            start_v = max(start_v, head[other] + duration[other] if other >= 0 else 0)
        start_u = max((head[other] + ticks for other, ticks in self.waits[u]), default=0)
        start_u = max(start_u, start_v + duration[v])
        rest_u: int = max((tail[other] + lag for other, lag in self.followers[u]), default=0)
        for d in self.devices[u]:
            other = self.after[u].get(d, -1)
            other = self.after[v].get(d, -1) if other == v else other
            rest_u = max(rest_u, tail[other] if other >= 0 else 0)
        rest_u += duration[u]
        rest_v = max(rest_u, max((tail[other] + lag for other, lag in self.followers[v]), default=0)) + duration[v]
        return max(start_v + rest_v, start_u + rest_u)

    def reverse(self, u: int, v: int) -> None:
        """Let v run right before u on every device that they share."""
        for d in [d for d in self.devices[u] if d in self.devices[v]]:
            first, last = self.before[u].pop(d, None), self.after[v].pop(d, None)
            self.after[v][d], self.before[u][d] = u, v
            del self.before[v][d], self.after[u][d]
            if first is not None:
                self.after[first][d], self.before[v][d] = v, first
            if last is not None:
                self.before[last][d], self.after[u][d] = u, last
            held = self.held[u][d]
            self.held[v][d], self.held[u][d] = held, held + self.memory[v]
        self._mend_line(u, v)
        self._time()

    def _mend_line(self, u: int, v: int) -> None:
        """Between u and v, what must precede v moves before u."""
        begin, end = self.line.index(u), self.line.index(v) + 1
        first = {v}
        for run in reversed(self.line[begin + 1 : end - 1]):
            nexts = [other for other, _ in self.followers[run]] + list(self.after[run].values())
            if not first.isdisjoint(nexts):
                first.add(run)
        part = self.line[begin:end]
        self.line[begin:end] = [run for run in part if run in first] + [run for run in part if run not in first]


def _arcs(run: int, blocks: int, arcs: tuple[tuple[tuple[int, int], ...], ...]) -> list[tuple[int, int]]:
    """The dependencies of a run, as those of its block in the same micro-batch."""
    micro_batch, block = divmod(run, blocks)
    return [(micro_batch * blocks + other, lag) for other, lag in arcs[block]]


def _unlimited(capacity: int | None) -> float:
    return float("inf") if capacity is None else capacity
