"""A CP-SAT model of every run of several micro-batches, some of which may be tied to one period."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Answer, Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.order_literals import AtOnce, OrderLiterals, Windows, at_once_on, windows
from tessel_core.scheduling.search.timing import Tie
from tessel_core.scheduling.structure import MemoryInterval, memory_intervals_on, path_lengths

_MAX_RUNS_AT_ONCE, _SECONDS = 500, 2.0
"""Up to this many runs, one model of all of them is solved for this long. Measured on uneven pipelines of 6 to 16
stages: 200 runs are proved in a fifth of a second, 300 in about a second, and hardly any above 600."""

NEVER = 2**62
"""Later than any start."""


class Runs:
    """The runs of some blocks, and the constraints that all models share. Starts and durations have the same unit."""

    def __init__(
        self, plan: MicroBatchPlan, micro_batches: int, duration: Sequence[int], special: Collection[int] = ()
    ) -> None:
        self.plan, self.micro_batches, self.duration = plan, micro_batches, duration
        self.special = special
        """Micro-batches with a pin or an order."""
        self.alike = [m for m in range(micro_batches) if m not in special]
        """Micro-batches whose runs are interchangeable, so that they come in order on each block."""
        self.cp = cp_model.CpModel()
        self.start: dict[Run, cp_model.LinearExpr] = {}

    def end(self, run: Run) -> cp_model.LinearExpr:
        """Return start + duration."""
        return self.start[run] + self.duration[run[0]]

    def starts(self, answer: Answer) -> IntColumn:
        """Return the starts of a solution, shaped (micro-batches, blocks)."""
        starts = np.zeros((self.micro_batches, len(self.plan.blocks)), dtype=np.int64)
        for (b, m), start in self.start.items():
            starts[m, b] = answer.value(start)
        return starts

    def micro_batches_in_order(self, blocks: Iterable[int]) -> None:
        """Each block runs the micro-batches that are alike in order, because these runs are interchangeable."""
        for b in blocks:
            for before, after in pairwise(self.alike):
                self.cp.add(self.start[b, after] >= self.end((b, before)))

    def no_overlap(self, devices: Iterable[int]) -> None:
        """Runs on one device are disjoint."""
        for d in devices:
            self.cp.add_no_overlap(
                self.cp.new_fixed_size_interval_var(self.start[b, m], self.duration[b], "")
                for b in self.plan.blocks_on[d]
                for m in range(self.micro_batches)
            )

    def order_literals(self, devices: Collection[int], windows: Windows, pinned: Mapping[Run, int]) -> bool:
        """Add literals for the order of runs on the devices, within the windows of the micro-batches that are alike.

        Return False, and add none, if there would be too many.

        With at most c micro-batches at once, each special one s takes the place of one that is alike: if the release of
        m ends after the acquire of m + c - 1 starts, then s releases before that acquire, or acquires after that
        release.
        """
        around = {}
        for b, m in self.start:
            if m in self.special:
                start = pinned.get((b, m))
                around[b, m] = (0, NEVER) if start is None else (start, start)
        for i, m in enumerate(self.alike):
            around |= {(b, m): (windows.earliest[i][b], windows.latest[i][b]) for b, n in self.start if n == m}
        literals = OrderLiterals(self.cp, self.plan, self.start, self.duration, around, self.alike)
        if not literals.add(devices):
            return False
        for d, s in product(devices, self.special):
            for acquire, release, most in at_once_on(self.plan, d):
                for first, last in zip(self.alike, self.alike[max(0, most - 1) :], strict=False):
                    orders = (release, first), (acquire, last), (release, s), (acquire, s)
                    freed, opens, frees, waits = orders
                    pairs = (freed, opens), (frees, opens), (freed, waits)
                    self.cp.add_bool_or([literals.before(*pair) for pair in pairs])
        return True

    def memory(self, devices: Iterable[int], longest: int, step: Callable[[int], int] = lambda _: 1) -> None:
        """The memory held is at most the capacity. Counts of micro-batches say so if only one of them is special."""
        for d in devices:
            capacity, holds = self.plan.devices[d].activation_capacity, memory_intervals_on(self.plan, d)
            if capacity is None or sum(hold.amount for hold in holds) * self.micro_batches <= capacity:
                continue
            limits = at_once_on(self.plan, d)
            for limit in limits:
                self.at_most_at_once(limit)
            most = (
                min(limit.most, self.micro_batches) * hold.amount for limit, hold in zip(limits, holds, strict=True)
            )
            if self.special or sum(most) > capacity:
                self.cumulative(holds, capacity, longest, step(capacity))

    def at_most_at_once(self, limit: AtOnce) -> None:
        """start(acquire, m + most) >= end(release, m), for micro-batches that are alike."""
        for first, last in zip(self.alike, self.alike[limit.most :], strict=False):
            self.cp.add(self.start[limit.acquire, last] >= self.end((limit.release, first)))

    def cumulative(self, holds: Sequence[MemoryInterval], capacity: int, longest: int, step: int = 1) -> None:
        """The memory held from the start of each acquire to the end of its release is at most the capacity.

        Amounts and capacity are divided by `step` and rounded down.
        """
        intervals, demands = [], []
        for hold in holds:
            for m in range(self.micro_batches):
                length, end = self.cp.new_int_var(0, longest, ""), self.end((hold.release, m))
                intervals.append(self.cp.new_interval_var(self.start[hold.acquire, m], length, end, ""))
                demands.append(hold.amount // step)
        self.cp.add_cumulative(intervals, demands, capacity // step)


class RunsModel(Runs):
    """A model of all runs. Each private method is one rule of the referee, or an assumption without loss.

    Every run ends by `horizon` ticks. Each block in `mirror` starts together with its image, which halves the model of
    a symmetric plan, but may exclude solutions. `insertable` adds the condition under which periods can be inserted
    into the tied part. `pinned` fixes the starts of runs. For each pair in `orders`, the second run starts after the
    first has ended. Pins and orders cannot be combined with a tie or a mirror.
    """

    def __init__(
        self,
        plan: MicroBatchPlan,
        micro_batches: int,
        horizon: int,
        *,
        tie: Tie | None = None,
        mirror: Mapping[int, int] | None = None,
        insertable: bool = False,
        pinned: Mapping[Run, int] | None = None,
        orders: Sequence[tuple[Run, Run]] = (),
    ) -> None:
        self.pinned = pinned or {}
        special = sorted({m for _, m in [*self.pinned, *chain.from_iterable(orders)]})
        super().__init__(plan, micro_batches, [block.duration for block in plan.blocks], special)
        self.horizon, self.tie, self.mirror = horizon, tie, mirror or {}
        self.free: dict[Run, cp_model.IntVar] = {}
        self.last = [*self.special, *self.alike[-1:]]
        """Micro-batches one of which ends last, so that only they limit the makespan."""
        self._declare_starts()
        self._dependencies()
        self.micro_batches_in_order(b for b in range(len(plan.blocks)) if b not in self.mirror)
        for first, second in orders:
            self.cp.add(self.start[second] >= self.end(first))
        self.no_overlap(self._devices())
        self.memory(self._devices(), horizon)
        if insertable:
            self._insertable()

    def add_order_literals(self) -> bool:
        """Add literals for the order of runs. Return False, and add none, if there would be too many.

        They help only if the horizon is near the least makespan, and cannot be combined with a tie or a mirror.
        """
        devices = range(len(self.plan.devices))
        within = windows(self.plan, len(self.alike), self.horizon, frozenset(devices), self.duration)
        return self.order_literals(devices, within, self.pinned)

    def _declare_starts(self) -> None:
        heads, tails = path_lengths(self.plan)
        for m in range(self.micro_batches):
            for b in range(len(self.plan.blocks)):
                if b in self.mirror:
                    continue
                if self.tie and self.tie.bound_to(m):
                    self.start[b, m] = self.start[b, m - self.tie.unroll] + self.tie.period
                else:
                    latest = max(heads[b], self.horizon - tails[b])
                    self.start[b, m] = self.free[b, m] = self.cp.new_int_var(heads[b], latest, "")
        for run, start in self.pinned.items():
            self.cp.add(self.start[run] == start)
        for twin, b in self.mirror.items():
            self.start.update({(twin, m): self.start[b, m] for m in range(self.micro_batches)})
        for b, tail in enumerate(tails):
            for m in self.last:
                self.cp.add(self.start[b, m] <= self.horizon - tail)

    def _dependencies(self) -> None:
        """start(j, m) >= start(i, m) + duration(i) + lag."""
        for i, j, lag in self.plan.arcs:
            if j in self.mirror:
                continue
            for m in range(self.micro_batches):
                if not (self.tie and self.tie.bound_to(m)):
                    self.cp.add(self.start[j, m] >= self.end((i, m)) + lag)

    def _devices(self) -> list[int]:
        """Return the devices whose rules do not follow from those of their mirror images."""
        seen: set[frozenset[int]] = set()
        devices = []
        for d, on in enumerate(self.plan.blocks_on):
            image = frozenset(self.mirror.get(b, b) for b in on)
            if image not in seen or not self.mirror:
                seen.add(image)
                devices.append(d)
        return devices

    def _insertable(self) -> None:
        """The first tied runs of all blocks are near each other, so that periods can be inserted: see `completion`."""
        assert self.tie is not None
        reach = (self.tie.count // self.tie.unroll - 2) * self.tie.period
        latest = self.cp.new_int_var(0, self.horizon, "")
        for b in range(len(self.plan.blocks)):
            for u in range(self.tie.unroll):
                first = self.start[b, self.tie.first + u]
                self.cp.add(latest >= first)
                self.cp.add(latest <= first + reach)

    def hint(self, starts: IntColumn) -> None:
        """Give `starts`, shaped (micro-batches, blocks), to CP-SAT as a hint."""
        for (b, m), variable in self.free.items():
            self.cp.add_hint(variable, int(starts[m, b]))

    def minimise_makespan(self, bound: int) -> cp_model.IntVar:
        """Minimise the makespan, which is at least `bound`. Return its variable."""
        makespan = self.cp.new_int_var(bound, self.horizon, "")
        for b in range(len(self.plan.blocks)):
            for m in self.last:
                self.cp.add(makespan >= self.end((b, m)))
        self.cp.minimize(makespan)
        return makespan


def minimise_all_runs(incumbent: Incumbent, effort: Effort, control: Control) -> None:
    """Improve the incumbent and its bound by one model of all runs, unless it is proved or has too many runs."""
    if incumbent.runs > _MAX_RUNS_AT_ONCE or incumbent.proved:
        return
    model = RunsModel(incumbent.plan, incumbent.micro_batches, incumbent.makespan)
    minimise_from(incumbent, model, effort.within(_SECONDS), control, "all runs")


def minimise_from(
    incumbent: Incumbent, model: RunsModel, effort: Effort, control: Control, by: str, **how: Any
) -> None:
    """Improve the incumbent and its bound by a model of all runs. `how` is passed on to `ask`."""
    model.hint(incumbent.starts)
    model.minimise_makespan(incumbent.bound)
    answer = ask(model.cp, effort, control, **how)
    if answer.verdict.found:
        incumbent.offer(model.starts(answer), by)
    if answer.verdict in (Verdict.PROVED, Verdict.FOUND):
        incumbent.raise_bound(min(round(answer.bound), incumbent.makespan), by)
