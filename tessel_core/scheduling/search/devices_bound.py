"""The devices bound: how long the micro-batches take where only a few devices are busy with one run at a time.

Whoever forgets all devices but a few still has a valid relaxation: the blocks of the others take their time, on as many
devices as they like and with as much memory, so they are lags between the blocks that are left, heads before them and
tails after them.  One device is Carlier's one-machine problem with delays and a memory window, which CP-SAT solves in
milliseconds; each further device makes the answer better and slower  [Carlier 1982; Adams, Balas, Zawack 1988].
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import ceil

from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling.search.holds import holds_on, least_held
from tessel_core.scheduling.search.paths import path_lengths, ways_from
from tessel_core.scheduling.search.runs_model import Run

_STEPS = 4_000
"""Steps that the busiest device's work has where costs are fine; what they round off is lost, about 1 in `_STEPS`."""
_MOST_RUNS = 3_000
"""Larger models hear a cancel too late."""
_MEMORY_STEPS = 2**16
_SHARE_ALONE, _SHARE_TOGETHER = 0.05, 0.4
"""Shares of the time left for one question; one that is settled is not counted, because it is soon settled or never."""


def devices_bound(
    plan: MicroBatchPlan,
    micro_batches: int,
    least: int,
    effort: Effort,
    control: Control,
    *,
    known: int | None = None,
) -> int:
    """A bound on the makespan, at least `least`: of every device alone, then of ever larger sets of devices.

    `known` is the makespan of a schedule; nothing longer is looked at.
    """
    control = control if effort.repeatable else control.part(effort.seconds)
    left = effort.seconds
    alone: dict[int, int] = {}
    for d in _along_the_way(plan):
        asked = effort.within(left * _SHARE_ALONE)
        alone[d], proved = _asked((d,), plan, micro_batches, 0, asked, control, known)
        left -= 0 if proved else asked.seconds
    least = max([least, *alone.values()])
    for devices in _growing_sets(alone):
        if control.stopped or (known is not None and least >= known):
            break
        asked = effort.within(left * _SHARE_TOGETHER)
        least, proved = _asked(devices, plan, micro_batches, least, asked, control, known)
        left -= 0 if proved else asked.seconds
    return least


def _along_the_way(plan: MicroBatchPlan) -> list[int]:
    """Devices that have something to do, in the order in which a micro-batch may first come to them."""
    heads, _ = path_lengths(plan)
    busy = [d for d, on in enumerate(plan.blocks_on) if on]
    return sorted(busy, key=lambda d: min(heads[b] for b in plan.blocks_on[d]))


def _growing_sets(alone: Mapping[int, int]) -> Iterator[tuple[int, ...]]:
    """The two devices that bind most `alone`, with ever more others, evenly spread along the way of a micro-batch."""
    way = list(alone)
    binding = sorted(way, key=lambda d: -alone[d])[:2]
    seen: set[tuple[int, ...]] = set()
    for size in range(2, len(way) + 1):
        spread = {way[step * (len(way) - 1) // (size - 1)] for step in range(size)}
        devices = tuple(sorted(spread.union(binding)))
        if devices not in seen:
            seen.add(devices)
            yield devices


def bound_of(
    devices: Collection[int],
    plan: MicroBatchPlan,
    micro_batches: int,
    least: int,
    effort: Effort,
    control: Control,
    known: int | None = None,
) -> int:
    """A bound on the makespan, at least `least`, from the rules of `devices` alone."""
    return _asked(devices, plan, micro_batches, least, effort, control, known)[0]


def _asked(
    devices: Collection[int],
    plan: MicroBatchPlan,
    micro_batches: int,
    least: int,
    effort: Effort,
    control: Control,
    known: int | None,
) -> tuple[int, bool]:
    """The bound, and whether these devices have no better one.

    Fine costs are rounded down to a quantum.  A schedule is the earliest one that obeys its own orders of starts and
    ends, so its makespan is a longest path over durations and lags, and rounding them down never makes it longer.
    """
    kept = sum(len(plan.blocks_on[d]) for d in devices)
    if kept * micro_batches > _MOST_RUNS:
        return least, True
    quantum = max(1, plan.busiest_work // _STEPS)
    longest = micro_batches * (sum(block.duration for block in plan.blocks) + sum(lag for _, _, lag in plan.arcs))
    horizon = max(longest if known is None else known, least) // quantum
    model = _DevicesModel(plan, micro_batches, frozenset(devices), quantum, horizon, least // quantum)
    answer = ask(model.cp, effort, control)
    if not answer.verdict.found:
        return least, False
    return max(least, quantum * ceil(answer.bound - 1e-6)), answer.verdict is Verdict.PROVED


class _DevicesModel:
    """The runs of the blocks on a few devices, in quanta; each private method is one rule of the referee."""

    def __init__(
        self,
        plan: MicroBatchPlan,
        micro_batches: int,
        devices: frozenset[int],
        quantum: int,
        horizon: int,
        least: int,
    ) -> None:
        self.plan, self.micro_batches, self.devices = plan, micro_batches, devices
        self.duration = [block.duration // quantum for block in plan.blocks]
        self.quantum = quantum
        self.kept = [b for b, block in enumerate(plan.blocks) if devices.intersection(block.devices)]
        self.cp = cp_model.CpModel()
        self.start: dict[Run, cp_model.IntVar] = {}
        self._declare(horizon)
        self._micro_batches_in_order()
        self._dependencies()
        self._no_overlap()
        self._memory()
        self._aim(least, horizon)

    def _declare(self, horizon: int) -> None:
        """A run starts after its head, which the whole plan tells, and its tail follows it."""
        heads, self.tails = path_lengths(self.plan, self.quantum)
        for b in self.kept:
            for m in range(self.micro_batches):
                self.start[b, m] = self.cp.new_int_var(heads[b], max(heads[b], horizon - self.tails[b]), "")

    def _end(self, run: Run) -> cp_model.LinearExpr:
        return self.start[run] + self.duration[run[0]]

    def _micro_batches_in_order(self) -> None:
        """Each block takes micro-batches in order: runs of one block can be swapped freely."""
        for b in self.kept:
            for m in range(1, self.micro_batches):
                self.cp.add(self.start[b, m] >= self._end((b, m - 1)))

    def _dependencies(self) -> None:
        """start(j, m) >= end(i, m) + the longest way from i to j over blocks of other devices."""
        kept = frozenset(self.kept)
        for i in self.kept:
            ways = ways_from(self.plan, i, self.quantum, kept)
            for j in sorted(kept.intersection(ways)):
                for m in range(self.micro_batches):
                    self.cp.add(self.start[j, m] >= self._end((i, m)) + ways[j])

    def _no_overlap(self) -> None:
        """Runs on one device are disjoint."""
        for d in self.devices:
            self.cp.add_no_overlap(
                self.cp.new_fixed_size_interval_var(self.start[b, m], self.duration[b], "")
                for b in self.plan.blocks_on[d]
                for m in range(self.micro_batches)
            )

    def _memory(self) -> None:
        """What is held sums to at most the capacity; and where a micro-batch holds at least v from the start of a to
        the end of r, at most c = capacity // v do so at once: start(a, m + c) >= end(r, m)."""
        for d in self.devices:
            capacity, holds = self.plan.devices[d].activation_capacity, holds_on(self.plan, d)
            if capacity is None:
                continue
            at_once = {(hold.acquire, hold.release): capacity // least_held(self.plan, d, hold) for hold in holds}
            for (acquire, release), count in at_once.items():
                for m in range(count, self.micro_batches):
                    self.cp.add(self.start[acquire, m] >= self._end((release, m - count)))
            if (
                sum(min(at_once[hold.acquire, hold.release], self.micro_batches) * hold.amount for hold in holds)
                > capacity
            ):
                self._cumulative(d, capacity)

    def _cumulative(self, device: int, capacity: int) -> None:
        """The sum over all holds, in steps: amounts and capacity are rounded down alike, so what fits still does."""
        step = max(1, capacity // _MEMORY_STEPS)
        intervals, demands = [], []
        for hold in holds_on(self.plan, device):
            for m in range(self.micro_batches):
                length = self.cp.new_int_var(0, 2**40, "")
                intervals.append(
                    self.cp.new_interval_var(self.start[hold.acquire, m], length, self._end((hold.release, m)), "")
                )
                demands.append(hold.amount // step)
        self.cp.add_cumulative(intervals, demands, capacity // step)

    def _aim(self, least: int, horizon: int) -> None:
        """Least makespan."""
        makespan = self.cp.new_int_var(min(least, horizon), horizon, "")
        for b in self.kept:
            self.cp.add(makespan >= self.start[b, self.micro_batches - 1] + self.tails[b])
        self.cp.minimize(makespan)
