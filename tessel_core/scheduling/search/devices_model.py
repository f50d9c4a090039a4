"""A CP-SAT model of the runs on some or all devices. It finds a schedule that ends by a horizon, or excludes it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.rules import check_schedule
from tessel_core.scheduling.search.order_literals import windows
from tessel_core.scheduling.search.runs_model import Runs
from tessel_core.scheduling.search.timing import compacted
from tessel_core.scheduling.structure import longest_from, path_lengths

MAX_RUNS = 3_000
"""Largest number of runs in a model. Larger models react too late to a cancel."""
_STEPS = 4_000
"""Number of quanta in the busiest device's work if costs are fine. Rounding loses about one quantum."""
_MEMORY_STEPS = 2**16


def quantum_of(plan: MicroBatchPlan, steps: int = _STEPS) -> int:
    """Return the ticks of one quantum, so that the busiest device's work has about `steps` of them.

    It is 1 if costs are coarse.
    """
    return max(1, plan.busiest_work // steps)


class DevicesModel(Runs):
    """A model of the runs on some devices within a horizon, in quanta. Each private method is one rule of the referee.

    Blocks of other devices become least times between the remaining blocks (lags), before them (heads) and after them
    (tails).

    Costs are rounded down to quanta. The makespan of an earliest schedule is a longest path over durations and lags, so
    rounding down never makes it longer. If the model has no solution within `horizon`, every schedule takes at least
    horizon + 1 quanta.
    """

    def __init__(
        self, plan: MicroBatchPlan, micro_batches: int, devices: frozenset[int], quantum: int, horizon: int
    ) -> None:
        super().__init__(plan, micro_batches, [block.duration // quantum for block in plan.blocks])
        self.devices, self.quantum = devices, quantum
        self.kept = [b for b, block in enumerate(plan.blocks) if devices.intersection(block.devices)]
        self._declare(horizon)
        self.micro_batches_in_order(self.kept)
        self._dependencies()
        self.no_overlap(devices)
        # Amounts and capacity are divided by one step and rounded down, so every valid schedule still fits.
        self.memory(devices, 2**40, lambda capacity: max(1, capacity // _MEMORY_STEPS))

    def with_order_literals(self) -> DevicesModel:
        """Add literals for the order of runs, which help only if the horizon is near the least makespan."""
        self.order_literals(self.devices, self.windows, {})
        return self

    def _declare(self, horizon: int) -> None:
        """A run starts in its window. A model whose windows are empty has no solution."""
        _, self.tails = path_lengths(self.plan, self.quantum)
        self.windows = windows(self.plan, self.micro_batches, horizon, self.devices, self.duration, self.quantum)
        for b, m in product(self.kept, range(self.micro_batches)):
            earliest, latest = self.windows.earliest[m][b], self.windows.latest[m][b]
            self.start[b, m] = self.cp.new_int_var(earliest, max(earliest, latest), "")
            if latest < earliest:
                self.cp.add(self.start[b, m] <= latest)

    def _dependencies(self) -> None:
        """start(j, m) >= end(i, m) + the longest path from i to j over blocks of other devices."""
        kept = frozenset(self.kept)
        for i in self.kept:
            paths = longest_from(self.plan, i, self.duration, self.quantum, ends=kept)
            for j in sorted(kept.intersection(paths)):
                for m in range(self.micro_batches):
                    self.cp.add(self.start[j, m] >= self.end((i, m)) + paths[j])

    def minimise(self, least: int, horizon: int) -> None:
        """Minimise the makespan in quanta, which is at least `least`."""
        makespan = self.cp.new_int_var(min(least, horizon), horizon, "")
        for b in self.kept:
            self.cp.add(makespan >= self.start[b, self.micro_batches - 1] + self.tails[b])
        self.cp.minimize(makespan)


def schedule_within(
    plan: MicroBatchPlan, micro_batches: int, makespan: int, effort: Effort, control: Control
) -> tuple[Verdict, Schedule | None]:
    """Let CP-SAT search for a schedule of at most `makespan` ticks. Return its verdict, and the schedule or None.

    Fine costs are rounded down to quanta, and exact starts are then computed in the same order. So the schedule may be
    a few quanta longer. With a hard horizon, memory as precedences, literals for orders and no linear relaxations, one
    worker of CP-SAT answers in seconds for hundreds of runs.
    """
    devices = frozenset(range(len(plan.devices)))
    if micro_batches * len(plan.blocks) > MAX_RUNS:
        return Verdict.UNKNOWN, None
    quantum = quantum_of(plan)
    model = DevicesModel(plan, micro_batches, devices, quantum, makespan // quantum).with_order_literals()
    answer = ask(model.cp, replace(effort, workers=1, relaxation=False), control)
    if not answer.verdict.found:
        return answer.verdict, None
    exact = Schedule.from_starts(plan, compacted(Schedule.from_starts(plan, model.starts(answer))))
    return (Verdict.FOUND, exact) if not check_schedule(exact) else (Verdict.UNKNOWN, None)
