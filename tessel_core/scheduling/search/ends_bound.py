"""The ends bound on the makespan, from the least idle time in the first and the last ticks. CP-SAT computes it."""

from __future__ import annotations

from math import ceil

from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.structure import memory_intervals_on, path_lengths

ENDS_WINDOWS = (1.5, 2.5)
"""Lengths of the ends, as multiples of the busiest device's work.

The second length takes longer and rarely gives a higher bound.
"""
_MAX_RUNS = 4_000


def ends_bound(
    plan: MicroBatchPlan, micro_batches: int, periods: float, least: int, effort: Effort, control: Control
) -> int:
    """Return a lower bound on the makespan in ticks, at least `least`, from the first and the last X ticks.

    X is `periods` times the busiest device's work. For every device, the makespan is at least the work of all
    micro-batches on it, plus its idle time in the first X ticks, plus its idle time in the last X ticks. The first
    ticks of any schedule obey the rules of whole schedules, and so do the last ticks with time reversed.
    """
    window = ceil(periods * plan.busiest_work)
    if least < 2 * window:  # the two ends might overlap, so the bound would count idle time twice
        return least
    cp = cp_model.CpModel()
    head, tail = (_End(cp, plan, micro_batches, window, backwards) for backwards in (False, True))
    if len(head.start) + len(tail.start) > _MAX_RUNS:
        return least
    makespan = cp.new_int_var(least, least + 2 * window, "")
    for d in range(len(plan.devices)):
        cp.add(makespan >= micro_batches * plan.work[d] + 2 * window - head.work[d] - tail.work[d])
    cp.minimize(makespan)
    answer = ask(cp, effort, control)
    return max(least, ceil(answer.bound - 1e-6)) if answer.verdict.found else least


class _End:
    """A model of the runs that start within `window` ticks of one end of a schedule, with each device's `work` there.

    With `backwards`, time runs from the makespan down: dependencies are reversed, and a release at the end of a block
    becomes an acquire at its start.
    """

    def __init__(
        self, cp: cp_model.CpModel, plan: MicroBatchPlan, micro_batches: int, window: int, backwards: bool
    ) -> None:
        self.cp, self.plan, self.window, self.backwards = cp, plan, window, backwards
        self.micro_batches = micro_batches
        self.beyond = window + max(block.duration for block in plan.blocks)
        self.start: dict[Run, cp_model.IntVar] = {}
        self.present: dict[Run, cp_model.IntVar] = {}
        self._declare()
        self._dependencies()
        self._memory()
        self.work = [self._work_on(d) for d in range(len(plan.devices))]

    def _declare(self) -> None:
        """Declare the starts of runs. A block runs its micro-batches in order, so m of its runs come before run m."""
        heads, tails = path_lengths(self.plan)
        for b, block in enumerate(self.plan.blocks):
            head = tails[b] - block.duration if self.backwards else heads[b]
            for m in range(self.micro_batches):
                earliest = head + m * block.duration
                if earliest >= self.window:
                    break
                self.start[b, m] = self.cp.new_int_var(earliest, self.window - 1, "")
                self.present[b, m] = self.cp.new_bool_var("")
                if m:
                    here, before = self.present[b, m], self.present[b, m - 1]
                    self.cp.add_implication(here, before)
                    self.cp.add(self.start[b, m] >= self.start[b, m - 1] + block.duration).only_enforce_if(here)

    def _dependencies(self) -> None:
        """If a run starts in the window, its predecessors have ended in the window, at least a lag earlier."""
        before = self.plan.successors if self.backwards else self.plan.predecessors
        for (b, m), here in self.present.items():
            for a, lag in before[b]:
                if (a, m) not in self.present:
                    self.cp.add(here == 0)
                    continue
                self.cp.add_implication(here, self.present[a, m])
                ready = self.start[a, m] + self.plan.blocks[a].duration + lag
                self.cp.add(self.start[b, m] >= ready).only_enforce_if(here)

    def _memory(self) -> None:
        """The memory acquired in the window is at most the capacity. It may be held beyond the window."""
        for d, device in enumerate(self.plan.devices):
            if device.activation_capacity is None:
                continue
            intervals, demands = [], []
            for hold in memory_intervals_on(self.plan, d):
                opens, closes = (hold.release, hold.acquire) if self.backwards else (hold.acquire, hold.release)
                for m in range(self.micro_batches):
                    if (opens, m) not in self.present:
                        break
                    intervals.append(self._hold_interval((opens, m), (closes, m)))
                    demands.append(hold.amount)
            if intervals:
                self.cp.add_cumulative(intervals, demands, device.activation_capacity)

    def _hold_interval(self, opens: Run, closes: Run) -> cp_model.IntervalVar:
        end = self.cp.new_int_var(0, self.beyond, "")
        if closes in self.present:
            closed = self.present[closes]
            duration = self.plan.blocks[closes[0]].duration
            self.cp.add(end == self.start[closes] + duration).only_enforce_if(closed)
            self.cp.add(end == self.beyond).only_enforce_if(closed.negated())
        else:
            self.cp.add(end == self.beyond)
        length = self.cp.new_int_var(0, self.beyond, "")
        return self.cp.new_optional_interval_var(self.start[opens], length, end, self.present[opens], "")

    def _work_on(self, device: int) -> cp_model.LinearExpr:
        """Return the number of ticks of the window in which `device` is busy. Its runs are disjoint."""
        intervals, parts = [], []
        for (b, m), here in self.present.items():
            if b not in self.plan.blocks_on[device]:
                continue
            duration = self.plan.blocks[b].duration
            part = self.cp.new_int_var(0, duration, "")
            self.cp.add(part == 0).only_enforce_if(here.negated())
            self.cp.add(part <= self.window - self.start[b, m])
            intervals.append(self.cp.new_optional_fixed_size_interval_var(self.start[b, m], duration, here, ""))
            parts.append(part)
        self.cp.add_no_overlap(intervals)
        total = self.cp.new_int_var(0, self.window, "")
        self.cp.add(total == sum(parts))
        return total
