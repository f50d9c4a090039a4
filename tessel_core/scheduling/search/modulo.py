"""Modulo scheduling of repetends: one CP-SAT model per period and unroll.

The *unroll* is the number of micro-batches per period of T ticks. Copy u of block b starts at k(b, u) * T + r(b, u),
with 0 <= r < T [Rau 1994; Lin 2024 phase 1].
"""

from __future__ import annotations

from enum import Enum
from itertools import combinations
from math import ceil

import numpy as np
from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Answer, Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.units import MAGNITUDE

_MAX_START = MAGNITUDE * 64
"""CP-SAT adds several integers of 64 bits, so each must stay well below 2^63."""

Copy = tuple[int, int]
"""Pair (block, copy). The copies of a block are its runs in one period, one per micro-batch."""


class Goal(Enum):
    """Objective that selects one repetend among those of equal period."""

    ANY = "any"
    LATENCY = "least latency"
    EARLY = "every block as early as possible"


def find_repetend(
    plan: MicroBatchPlan, period: int, unroll: int, goal: Goal, effort: Effort, control: Control
) -> tuple[Verdict, Repetend | None]:
    """Search for a repetend of `unroll` micro-batches with a period of exactly `period` ticks.

    Return the verdict of CP-SAT, and the repetend or None. Repetends with few micro-batches in flight are tried first,
    because they are easier to find and to complete.
    """
    enough = _enough_k(plan, period, unroll)
    for most_k in sorted({min(enough, _likely_k(plan)), enough}):
        if (most_k + 2) * period > _MAX_START:
            return Verdict.UNKNOWN, None
        model = ModuloModel(plan, period, unroll, most_k)
        model.aim(goal)
        answer = ask(model.cp, effort, control)
        if answer.verdict is not Verdict.IMPOSSIBLE:
            return answer.verdict, model.repetend(answer) if answer.verdict.found else None
    return Verdict.IMPOSSIBLE, None


def _enough_k(plan: MicroBatchPlan, period: int, unroll: int) -> int:
    """Return an upper limit for k (see the module) that is high enough to prove a period infeasible.

    The proof is in docs/explanation/schedule_search.md.
    """
    longest_lag = max((lag for _, _, lag in plan.arcs), default=0)
    return max(1, (len(plan.blocks) * unroll - 1) * (2 + ceil(longest_lag / period)))


def _likely_k(plan: MicroBatchPlan) -> int:
    """Return an upper limit for k (see the module) that most solutions keep.

    It is the number of micro-batches that fit in memory, and a few more.
    """
    in_flight = len(plan.blocks)
    for d, device in enumerate(plan.devices):
        smallest = min((plan.blocks[b].memory for b in plan.blocks_on[d] if plan.blocks[b].memory > 0), default=0)
        if smallest and device.activation_capacity is not None:
            in_flight = min(in_flight, device.activation_capacity // smallest)
    return in_flight + 6


class ModuloModel:
    """The CP-SAT model of one period and unroll, in which k is at most `most_k`.

    Each private method adds one rule of the referee, or a valid cut.
    """

    def __init__(self, plan: MicroBatchPlan, period: int, unroll: int, most_k: int) -> None:
        self.plan, self.period, self.unroll, self.most_k = plan, period, unroll, most_k
        self.cp = cp_model.CpModel()
        self.copies: list[Copy] = [(b, u) for u in range(unroll) for b in range(len(plan.blocks))]
        self.r = {copy: self.cp.new_int_var(0, period - 1, "") for copy in self.copies}
        self.k = {copy: self.cp.new_int_var(0, self.most_k, "") for copy in self.copies}
        self.before: dict[tuple[Copy, Copy], cp_model.LinearExpr] = {}
        self._dependencies()
        self._no_overlap()
        self._copies_in_order()
        self._memory()
        self._anchor()

    def start(self, copy: Copy) -> cp_model.LinearExpr:
        """Return the start k * T + r of a copy."""
        return self.k[copy] * self.period + self.r[copy]

    def _duration(self, copy: Copy) -> int:
        return self.plan.blocks[copy[0]].duration

    def _dependencies(self) -> None:
        """For each dependency of j on i: start(j) >= start(i) + duration(i) + lag."""
        for u in range(self.unroll):
            for i, j, lag in self.plan.arcs:
                self.cp.add(self.start((j, u)) - self.start((i, u)) >= self.plan.blocks[i].duration + lag)

    def _no_overlap(self) -> None:
        """On each device, the intervals [r, r + duration) modulo T are disjoint.

        before(i, j) is 1 if r(i) < r(j), else 0.
        """
        devices = [frozenset(block.devices) for block in self.plan.blocks]
        for i, j in combinations(self.copies, 2):
            if not devices[i[0]] & devices[j[0]]:
                continue
            first = self.cp.new_bool_var("")
            self.before[i, j], self.before[j, i] = first, 1 - first
            for early, late, given in ((i, j, first), (j, i, first.negated())):
                self.cp.add(self.r[early] + self._duration(early) <= self.r[late]).only_enforce_if(given)
                self.cp.add(self.r[late] + self._duration(late) <= self.r[early] + self.period).only_enforce_if(given)
        for u in range(self.unroll):
            for a, b, _ in self.plan.arcs:
                if ((a, u), (b, u)) in self.before:  # cut: a successor with smaller r has a larger k
                    self.cp.add(self.k[b, u] >= self.k[a, u] + 1 - self.before[(a, u), (b, u)])

    def _copies_in_order(self) -> None:
        """Copy u of a block runs before copy u + 1, cyclically, because runs of one block are interchangeable."""
        for b, block in enumerate(self.plan.blocks):
            for u in range(self.unroll - 1):
                self.cp.add(self.start((b, u + 1)) >= self.start((b, u)) + block.duration)
            if self.unroll > 1:
                self.cp.add(self.start((b, 0)) + self.period >= self.start((b, self.unroll - 1)) + block.duration)
            for u, w in combinations(range(self.unroll), 2):
                self.cp.add(self.k[b, w] == self.k[b, u] + 1 - self.before[(b, u), (b, w)])

    def _memory(self) -> None:
        """When copy i acquires memory, its devices hold at most their capacities for micro-batches.

        For each device, the sum over its copies j of memory(j) * (k(i) - k(j) + [r(j) <= r(i)]) is at most the
        capacity. The bracket is 1 if r(j) <= r(i), else 0.
        """
        for d, device in enumerate(self.plan.devices):
            capacity = device.activation_capacity
            moving = [b for b in self.plan.blocks_on[d] if self.plan.blocks[b].memory]
            if capacity is None or not moving:
                continue
            if len(moving) == 2:
                self._one_pair(moving, capacity)
                continue
            changes = [copy for copy in self.copies if copy[0] in moving]
            for i in changes:
                if self.plan.blocks[i[0]].memory > 0:
                    self.cp.add(sum(self._held_by(j, i) for j in changes) <= capacity)

    def _held_by(self, j: Copy, i: Copy) -> cp_model.LinearExpr:
        started = self.cp.new_constant(1) if i == j else self.before[j, i]
        return self.plan.blocks[j[0]].memory * (self.k[i] - self.k[j] + started)

    def _one_pair(self, moving: list[int], capacity: int) -> None:
        """Acquiring run m + c waits for releasing run m. The device has one acquiring and one releasing block.

        c is the device's capacity // the memory that a run acquires.
        """
        acquire, release = sorted(moving, key=lambda b: -self.plan.blocks[b].memory)
        at_once = capacity // self.plan.blocks[acquire].memory
        for u in range(self.unroll):
            turns, copy = divmod(u + at_once, self.unroll)
            freed = self.start((release, u)) + self.plan.blocks[release].duration
            self.cp.add(self.start((acquire, copy)) + turns * self.period >= freed)

    def _anchor(self) -> None:
        """Fix r of one block without predecessors, and k of one such block per connected component.

        This excludes no solution, because all starts can be shifted together.
        """
        sources = [b for b in range(len(self.plan.blocks)) if not self.plan.predecessors[b]]
        self.cp.add(self.r[sources[0], 0] == 0)
        reach = [(ancestors | 1 << b) & sum(1 << s for s in sources) for b, ancestors in enumerate(self.plan.ancestors)]
        for source in sources:
            if all(each == 1 << source for each in reach if each >> source & 1):
                self.cp.add(self.k[source, 0] == 0)

    def aim(self, goal: Goal) -> None:
        """Add the objective of `goal`."""
        if goal is Goal.LATENCY:
            last = self.cp.new_int_var(0, (self.most_k + 2) * self.period, "")
            for copy in self.copies:
                self.cp.add(last >= self.start(copy) + self._duration(copy))
            self.cp.minimize(last)
        elif goal is Goal.EARLY:
            self.cp.minimize(sum(self.start(copy) for copy in self.copies))

    def repetend(self, answer: Answer) -> Repetend:
        """Return the repetend of a solution."""
        starts = np.zeros((self.unroll, len(self.plan.blocks)), dtype=np.int64)
        for b, u in self.copies:
            starts[u, b] = answer.value(self.k[b, u]) * self.period + answer.value(self.r[b, u])
        return Repetend(self.plan, self.period, starts)
