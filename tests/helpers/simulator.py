"""The rules of schedules, checked run by run in plain Python, independent of the referee."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

from tessel_core.model import MicroBatchPlan, Schedule

Run = tuple[int, int, int]
"""(block, micro-batch, start)."""


def runs_of(schedule: Schedule) -> list[Run]:
    """Return the rows of a schedule as integers."""
    return [
        (int(b), int(m), int(s)) for b, m, s in zip(schedule.block, schedule.micro_batch, schedule.start, strict=True)
    ]


def broken_rules(schedule: Schedule) -> set[str]:
    """Return the names of broken rules; empty for a valid schedule."""
    plan, runs = schedule.plan, runs_of(schedule)
    broken = set()
    if not covers(plan, schedule.micro_batches, runs):
        broken.add("coverage")
    if overlaps(plan, runs):
        broken.add("no overlap")
    if not waits_for_dependencies(plan, runs):
        broken.add("dependency")
    if any(
        device.memory_capacity is not None and peak > device.memory_capacity
        for device, peak in zip(plan.devices, peaks(plan, runs), strict=True)
    ):
        broken.add("memory")
    if not repeats(schedule, runs):
        broken.add("repetend repeats")
    return broken


def covers(plan: MicroBatchPlan, micro_batches: int, runs: Iterable[Run]) -> bool:
    """Whether every block of every micro-batch runs exactly once, at 0 or later."""
    wanted = {(b, m): 1 for b in range(len(plan.blocks)) for m in range(micro_batches)}
    return Counter((b, m) for b, m, _ in runs) == wanted and all(start >= 0 for _, _, start in runs)


def overlaps(plan: MicroBatchPlan, runs: Iterable[Run]) -> bool:
    """Whether some device runs two blocks at once."""
    busy = defaultdict(list)
    for b, _, start in runs:
        for device in plan.blocks[b].devices:
            busy[device].append((start, start + plan.blocks[b].duration))
    return any(here[1] > there[0] for intervals in busy.values() for here, there in pairwise(sorted(intervals)))


def waits_for_dependencies(plan: MicroBatchPlan, runs: Iterable[Run]) -> bool:
    """Whether every run starts after its predecessors have ended and their lags are over. Missing runs are ignored."""
    start = {(plan.blocks[b].name, m): when for b, m, when in runs}
    duration = {block.name: block.duration for block in plan.blocks}
    return all(
        start[dep.successor, m] >= when + duration[dep.predecessor] + dep.lag
        for dep in plan.dependencies
        for (name, m), when in start.items()
        if name == dep.predecessor and (dep.successor, m) in start
    )


def peaks(plan: MicroBatchPlan, runs: Iterable[Run]) -> list[int]:
    """Return the peak memory of each device: acquire at the start, release at the end, releases first."""
    events = sorted(
        (start + (block.duration if block.memory < 0 else 0), block.memory > 0, device, block.memory)
        for b, _, start in runs
        for block in [plan.blocks[b]]
        for device in block.devices
    )
    held = [device.static_memory for device in plan.devices]
    most = list(held)
    for _, _, device, memory in events:
        held[device] += memory
        most[device] = max(most[device], held[device])
    return most


def repeats(schedule: Schedule, runs: Iterable[Run]) -> bool:
    """Whether the stated repetend is in the schedule and repeats."""
    steady = schedule.repetend
    if steady is None:
        return True
    start = {(b, m): when for b, m, when in runs}
    stretch = range(steady.first_micro_batch, steady.last_micro_batch + 1)
    return steady.last_micro_batch < schedule.micro_batches and all(
        start[b, m + steady.unroll] == when + steady.period
        for (b, m), when in start.items()
        if m in stretch and m + steady.unroll in stretch and (b, m + steady.unroll) in start
    )
