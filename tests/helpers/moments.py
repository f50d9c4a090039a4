"""Causes of idle time by brute force, independent of `tessel_core.inspection`."""

from __future__ import annotations

from collections import Counter

from helpers.simulator import Run, runs_of
from tessel_core.model import MicroBatchPlan, Repetend, Schedule

CAUSES = "order", "memory", "partners", "communication", "data"


class Moment:
    """The state of some runs at a tick."""

    def __init__(self, plan: MicroBatchPlan, runs: list[Run], now: int) -> None:
        self.plan, self.runs, self.now = plan, runs, now
        self.begin = {(b, m): start for b, m, start in runs}
        self.busy = {d for b, m, start in runs if start <= now < self.end(b, m) for d in plan.blocks[b].devices}
        self.held = [device.static_memory for device in plan.devices]
        for b, m, start in runs:
            memory = plan.blocks[b].memory
            if (start if memory > 0 else self.end(b, m)) <= now:
                for d in plan.blocks[b].devices:
                    self.held[d] += memory

    def end(self, block: int, micro_batch: int) -> int:
        return self.begin[block, micro_batch] + self.plan.blocks[block].duration

    def lacks(self, block: int, micro_batch: int) -> int:
        """Return the position in `CAUSES` of the reason why a run cannot start now; 0 if it can."""
        before = [(self.end(a, micro_batch), lag) for a, lag in self.plan.predecessors[block]]
        if any(end > self.now for end, _ in before):
            return 4
        if any(end + lag > self.now for end, lag in before):
            return 3
        devices = self.plan.blocks[block].devices
        if any(d in self.busy for d in devices):
            return 2
        memory = self.plan.blocks[block].memory
        for d in devices:
            capacity = self.plan.devices[d].memory_capacity
            if capacity is not None and self.held[d] + memory > capacity:
                return 1
        return 0

    def cause(self, device: int) -> str:
        """Return the cause for a device that is idle between its first and its last run."""
        coming = [self.lacks(b, m) for b, m, s in self.runs if s > self.now and device in self.plan.blocks[b].devices]
        return CAUSES[min(coming, default=4)]


def causes_by_tick(schedule: Schedule) -> list[list[str | None]]:
    """Return the cause of idle time per device and tick; None while the device works."""
    plan, runs = schedule.plan, runs_of(schedule)
    found: list[list[str | None]] = [[] for _ in plan.devices]
    for now in range(schedule.makespan):
        moment = Moment(plan, runs, now)
        for d, line in enumerate(found):
            own = [(start, moment.end(b, m)) for b, m, start in runs if d in plan.blocks[b].devices]
            if d in moment.busy:
                line.append(None)
            elif own and now < min(start for start, _ in own):
                line.append("warmup")
            elif own and now >= max(end for _, end in own):
                line.append("cooldown")
            else:
                line.append(moment.cause(d))
    return found


def steady_causes_by_tick(repetend: Repetend) -> list[list[str | None]]:
    """Return `causes_by_tick` for a period in the middle of many, beginning at time 0 of the repetend."""
    plan, period = repetend.plan, repetend.period
    spans = repetend.latency // period + 2
    schedule = repetend.expand(2 * spans * repetend.unroll)
    runs = runs_of(schedule)
    found: list[list[str | None]] = [[] for _ in plan.devices]
    for now in range(spans * period, (spans + 1) * period):
        moment = Moment(plan, runs, now)
        for d, line in enumerate(found):
            line.append(None if d in moment.busy else moment.cause(d))
    return found


def counted(line: list[str | None]) -> dict[str, int]:
    """Count idle ticks by cause."""
    return dict(Counter(cause for cause in line if cause is not None))
