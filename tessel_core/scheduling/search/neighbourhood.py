"""Large neighbourhood search: CP-SAT reorders the runs within a window of time.

Runs before the window keep their starts. Runs after it keep their order, so each has a latest start: the wanted
makespan minus the longest path from the run to the end. The memory held before and after the window does not depend
on the order inside.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.orders import links_of, set_tails
from tessel_core.scheduling.kernels.tables import tables_of
from tessel_core.scheduling.order import run_in_order
from tessel_core.scheduling.search.timing import quantised
from tessel_core.scheduling.structure import memory_intervals_on

_STEPS = 400
"""Steps per busiest device's work in the model, because CP-SAT is slow with costs in nanoseconds."""
_MIN_FREE_RUNS, _MAX_FREE_RUNS = 30, 400


Window = tuple[float, float]
"""Start and end of a window, as fractions of the makespan."""


class Windows:
    """Windows that move over the schedule, and adapt their width to the difficulty of the models."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._at, self.width = 0.0, 0.12

    def next(self) -> Window:
        """Return the next window. Consecutive windows overlap by half."""
        begin = self._at
        self._at += self.width / 2
        if self._at >= 1.0:
            self._at = self._chance.uniform(0, self.width / 2)
        return begin, min(1.0, begin + self.width)

    def learn(self, verdict: Verdict) -> None:
        """Widen the window if it provably has no better order, and narrow it if the model was too hard."""
        if verdict is Verdict.IMPOSSIBLE:
            self.width = min(0.5, self.width * 1.05)
        elif verdict is Verdict.UNKNOWN:
            self.width = max(0.03, self.width / 1.2)


def solve_window(
    plan: MicroBatchPlan, starts: IntColumn, window: Window, bound: int, effort: Effort, control: Control
) -> tuple[Verdict, IntColumn | None]:
    """Search for a shorter schedule that differs within `window` only. Return the verdict and its starts, or None.

    `starts`, shaped (micro-batches, blocks), must be valid and left-compacted, and the result is left-compacted too.
    The new makespan must be nearer to `bound` by half a percent of the gap, and by at least one tick.
    """
    neighbourhood = _Neighbourhood(plan, starts - starts.min(), window)
    if not _MIN_FREE_RUNS <= len(neighbourhood.free) <= _MAX_FREE_RUNS:
        return (Verdict.IMPOSSIBLE if len(neighbourhood.free) < _MIN_FREE_RUNS else Verdict.UNKNOWN), None
    step = max(1, (neighbourhood.makespan - bound) // 200)
    return neighbourhood.ask(neighbourhood.makespan - step, effort, control)


class _Neighbourhood:
    """The runs in a window, and the model of their order."""

    def __init__(self, plan: MicroBatchPlan, starts: IntColumn, window: Window) -> None:
        self.plan, self.starts, self.blocks = plan, starts, len(plan.blocks)
        self.duration = [block.duration for block in plan.blocks]
        ends = starts + np.array(self.duration)
        self.makespan = int(ends.max())
        self.line = np.lexsort((np.arange(starts.size), starts.ravel()))
        begin, end = window
        inside = (ends > begin * self.makespan) & (starts < end * self.makespan)
        self.free = {int(run) for run in np.flatnonzero(inside.ravel())}
        self.done = {int(run) for run in np.flatnonzero((~inside & (ends <= begin * self.makespan)).ravel())}
        fixed = [run for run in self.line.tolist() if run not in self.free]
        self.before = [run for run in fixed if run in self.done]
        self.after = [run for run in fixed if run not in self.done]
        tables = tables_of(plan, plan.topological_order)
        self.tail = np.empty_like(self.line)
        set_tails(tables, links_of(tables, self.line), self.line, self.line.size - 1, self.tail)
        self.quantum = max(1, plan.busiest_work // _STEPS)
        self.coarse = quantised(plan, self.quantum)
        self.ticks = [block.duration for block in self.coarse.blocks]

    def ask(self, target: int, effort: Effort, control: Control) -> tuple[Verdict, IntColumn | None]:
        """Ask for an order of the free runs with which the schedule ends by `target`."""
        self.cp = cp_model.CpModel()
        self.start: dict[int, cp_model.IntVar] = {}
        flat = self.starts.ravel()
        first = int(min(flat[run] for run in self.free)) // self.quantum
        last = target // self.quantum
        for run in sorted(self.free):
            m, b = divmod(run, self.blocks)
            latest = last - self.ticks[b]
            earliest = first
            for a, lag in self.plan.predecessors[b]:
                other = m * self.blocks + a
                if other in self.done:
                    earliest = max(earliest, -(-(int(flat[other]) + self.duration[a] + lag) // self.quantum))
            for after, lag in self.coarse.successors[b]:
                other = m * self.blocks + after
                if other not in self.free:
                    latest = min(latest, self._latest(other, target) - lag - self.ticks[b])
            if latest < earliest:
                return Verdict.IMPOSSIBLE, None
            self.start[run] = self.cp.new_int_var(earliest, latest, "")
            self.cp.add_hint(self.start[run], max(earliest, min(latest, int(flat[run]) // self.quantum)))
        self._dependencies()
        self._no_overlap(target)
        self._memory()
        # Measured: one worker without linear relaxations is fastest, and stops at once.
        answer = ask(self.cp, replace(effort, workers=1, relaxation=False), control, presolve=self.quantum == 1)
        if not answer.verdict.found:
            return answer.verdict, None
        return answer.verdict, self._spliced({run: answer.value(start) for run, start in self.start.items()})

    def _latest(self, run: int, target: int) -> int:
        return (target - int(self.tail[run])) // self.quantum

    def _dependencies(self) -> None:
        """start(j, m) >= end(i, m) + lag. Runs of one block come in order of micro-batch."""
        for run, start in self.start.items():
            m, b = divmod(run, self.blocks)
            for a, lag in self.coarse.predecessors[b]:
                other = m * self.blocks + a
                if other in self.start:
                    self.cp.add(start >= self.start[other] + self.ticks[a] + lag)
            if run - self.blocks in self.start:
                self.cp.add(start >= self.start[run - self.blocks] + self.ticks[b])

    def _no_overlap(self, target: int) -> None:
        """Free runs on a device are disjoint. They come after the runs before the window, and before those after it."""
        for on in self.plan.blocks_on:
            here = [run for run in self.start if run % self.blocks in on]
            if not here:
                continue
            before = [run for run in self.before if run % self.blocks in on]
            after = [run for run in self.after if run % self.blocks in on]
            self.cp.add_no_overlap(
                self.cp.new_fixed_size_interval_var(self.start[run], self.ticks[run % self.blocks], "") for run in here
            )
            for run in here:
                if before:
                    last = before[-1]
                    ended = int(self.starts.ravel()[last]) + self.duration[last % self.blocks]
                    self.cp.add(self.start[run] >= -(-ended // self.quantum))
                if after:
                    self.cp.add(self.start[run] + self.ticks[run % self.blocks] <= self._latest(after[0], target))

    def _memory(self) -> None:
        """The memory held from an acquire's start to its release's end is at most the capacity, within the window."""
        micro_batches = len(self.starts)
        for d, device in enumerate(self.plan.devices):
            capacity = device.activation_capacity
            if capacity is None:
                continue
            intervals, demands, always = [], [], 0
            horizon = self.makespan // self.quantum + 1
            for hold in memory_intervals_on(self.plan, d):
                for m in range(micro_batches):
                    opens, closes = m * self.blocks + hold.acquire, m * self.blocks + hold.release
                    if closes in self.done or (opens not in self.start and opens not in self.done):
                        continue
                    begin = self.start.get(opens, 0)
                    end: cp_model.LinearExprT
                    if closes in self.start:
                        end = self.start[closes] + self.ticks[hold.release]
                    elif opens in self.start:
                        end = horizon
                    else:
                        always += hold.amount
                        continue
                    length = self.cp.new_int_var(0, horizon, "")
                    intervals.append(self.cp.new_interval_var(begin, length, end, ""))
                    demands.append(hold.amount)
            if sum(demands) > capacity - always:
                self.cp.add_cumulative(intervals, demands, capacity - always)

    def _spliced(self, new_starts: dict[int, int]) -> IntColumn:
        """Return the left-compacted schedule with the free runs in the order of their new starts."""
        ordered = sorted(new_starts, key=lambda run: (new_starts[run], run))
        runs = ((run % self.blocks, run // self.blocks) for run in [*self.before, *ordered, *self.after])
        return run_in_order(self.plan, len(self.starts), runs)
