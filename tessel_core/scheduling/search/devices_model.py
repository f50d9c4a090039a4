"""A CP-SAT model of the runs on some or all devices. It finds a schedule that ends by a horizon, or excludes it."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.rules import check_schedule
from tessel_core.scheduling.search.runs_model import Runs
from tessel_core.scheduling.search.timing import compacted
from tessel_core.scheduling.structure import least_held, longest_from, memory_intervals_on, path_lengths

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
        self.micro_batches_in_order(self.kept, range(self.micro_batches))
        self._dependencies()
        self.no_overlap(devices)
        self._memory()

    def _declare(self, horizon: int) -> None:
        """A run starts after its head, and its tail ends by the horizon.

        The head of a block is the longest path to its start. The tail is the longest path from its start to the end of
        the micro-batch. Both are paths in the whole plan.
        """
        heads, self.tails = path_lengths(self.plan, self.quantum)
        for b in self.kept:
            for m in range(self.micro_batches):
                self.start[b, m] = self.cp.new_int_var(heads[b], max(heads[b], horizon - self.tails[b]), "")
            self.cp.add(self.start[b, self.micro_batches - 1] <= horizon - self.tails[b])

    def _dependencies(self) -> None:
        """start(j, m) >= end(i, m) + the longest path from i to j over blocks of other devices."""
        kept = frozenset(self.kept)
        for i in self.kept:
            paths = longest_from(self.plan, i, self.duration, self.quantum, ends=kept)
            for j in sorted(kept.intersection(paths)):
                for m in range(self.micro_batches):
                    self.cp.add(self.start[j, m] >= self.end((i, m)) + paths[j])

    def _memory(self) -> None:
        """The memory held is at most the capacity.

        If each micro-batch holds at least v from the start of a to the end of r, at most capacity // v do so at once.
        """
        for d in self.devices:
            capacity, holds = self.plan.devices[d].activation_capacity, memory_intervals_on(self.plan, d)
            if capacity is None:
                continue
            at_once = {(hold.acquire, hold.release): capacity // least_held(self.plan, d, hold) for hold in holds}
            for (acquire, release), count in at_once.items():
                self.at_most_at_once(acquire, release, count)
            most = [min(at_once[hold.acquire, hold.release], self.micro_batches) * hold.amount for hold in holds]
            if sum(most) > capacity:
                # Amounts and capacity are divided by one step and rounded down, so every valid schedule still fits.
                self.cumulative(holds, capacity, 2**40, step=max(1, capacity // _MEMORY_STEPS))

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
    a few quanta longer. With a hard horizon, memory as precedences and no linear relaxations, one worker of CP-SAT
    answers in seconds for hundreds of runs. A model that minimises the makespan finds and proves less in minutes.
    """
    devices = frozenset(range(len(plan.devices)))
    if micro_batches * len(plan.blocks) > MAX_RUNS:
        return Verdict.UNKNOWN, None
    quantum = quantum_of(plan)
    model = DevicesModel(plan, micro_batches, devices, quantum, makespan // quantum)
    answer = ask(model.cp, replace(effort, workers=1, relaxation=False), control)
    if not answer.verdict.found:
        return answer.verdict, None
    exact = Schedule.from_starts(plan, compacted(Schedule.from_starts(plan, model.starts(answer))))
    return (Verdict.FOUND, exact) if not check_schedule(exact) else (Verdict.UNKNOWN, None)
