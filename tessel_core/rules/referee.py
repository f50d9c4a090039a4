"""The rules that a schedule must keep: one function per rule, listed in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tessel_core.errors import RefereeError
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.model.schedule import runs_in_order
from tessel_core.units import TICKS_PER_SECOND, show_amounts, show_times


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its name, the place, and the reason."""

    rule: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why} [{self.rule}]"


Rule = Callable[[Schedule], Iterator[Violation]]


def coverage(schedule: Schedule) -> Iterator[Violation]:
    """Every block of every micro-batch 0 … N-1 runs exactly once, at a start of 0 or later."""
    blocks, micro_batches = len(schedule.plan.blocks), schedule.micro_batches
    in_range = (schedule.micro_batch >= 0) & (schedule.micro_batch < micro_batches)
    for row in np.flatnonzero(~in_range).tolist():
        why = f"the schedule has micro-batches 0 to {micro_batches - 1} only"
        yield Violation("coverage", _run(schedule, row), why)
    for row in np.flatnonzero(schedule.start < 0).tolist():
        (early,) = _moments(schedule, -schedule.start[row])
        yield Violation("coverage", _run(schedule, row), f"starts {early} before time 0")
    counts = np.zeros((micro_batches, blocks), dtype=np.int64)
    np.add.at(counts, (schedule.micro_batch[in_range], schedule.block[in_range]), 1)
    for m, b in np.argwhere(counts != 1):
        where = f"block {schedule.plan.blocks[b].name} of micro-batch {m}"
        yield Violation("coverage", where, "never runs" if counts[m, b] == 0 else f"runs {counts[m, b]} times")


def no_overlap(schedule: Schedule) -> Iterator[Violation]:
    """Runs on one device are disjoint: end(r) <= start(q) or end(q) <= start(r)."""
    for d, device in enumerate(schedule.plan.devices):
        rows = schedule.runs_on(d)
        busy_until = np.maximum.accumulate(schedule.end[rows])
        for i in np.flatnonzero(schedule.start[rows[1:]] < busy_until[:-1]):
            later = rows[i + 1]
            start, until = _moments(schedule, schedule.start[later], busy_until[i])
            why = f"starts at {start} while the device is busy until {until}"
            yield Violation("no overlap", f"device {device.name}, {_run(schedule, later)}", why)


def dependency(schedule: Schedule) -> Iterator[Violation]:
    """start(successor, m) >= end(predecessor, m) + lag."""
    blocks, micro_batches = len(schedule.plan.blocks), schedule.micro_batches
    start = np.full((micro_batches, blocks), -1, dtype=np.int64)
    in_range = (schedule.micro_batch >= 0) & (schedule.micro_batch < micro_batches)
    start[schedule.micro_batch[in_range], schedule.block[in_range]] = schedule.start[in_range]
    for before, after, lag in schedule.plan.arcs:
        ready = start[:, before] + schedule.plan.blocks[before].duration + lag
        runs = (start[:, before] >= 0) & (start[:, after] >= 0)
        for m in np.flatnonzero(runs & (start[:, after] < ready)):
            names = schedule.plan.blocks[before].name, schedule.plan.blocks[after].name
            early, earliest = _moments(schedule, start[m, after], ready[m])
            why = f"starts at {early}, but {names[0]} lets it start at {earliest} at the earliest"
            yield Violation("dependency", f"block {names[1]} of micro-batch {m}", why)


def memory(schedule: Schedule) -> Iterator[Violation]:
    """static + acquired - released <= capacity at every tick, on every device."""
    profile = MemoryProfile.of(schedule)
    for d, device in enumerate(schedule.plan.devices):
        if device.memory_capacity is None:
            continue
        over = np.flatnonzero(profile.levels[d] > device.memory_capacity)
        if len(over):
            first = over[0]
            amounts = profile.levels[d][first], profile.peaks[d], device.memory_capacity
            level, peak, capacity = _amounts(schedule, *amounts)
            (at,) = _moments(schedule, profile.times[d][first])
            why = f"holds {level} at {at} and {peak} at its peak, capacity {capacity}"
            yield Violation("memory", f"device {device.name}", why)


def repetend_repeats(schedule: Schedule) -> Iterator[Violation]:
    """start(b, m + unroll) = start(b, m) + period for all micro-batches of the steady state."""
    steady = schedule.repetend
    if steady is None:
        return
    if steady.last_micro_batch >= schedule.micro_batches:
        why = f"last_micro_batch is {steady.last_micro_batch}, but the schedule ends with {schedule.micro_batches - 1}"
        yield Violation("repetend repeats", "repetend", why)
        return
    starts = {(m, b): start for b, m, start in runs_in_order(schedule)}
    for m in range(steady.first_micro_batch, steady.last_micro_batch - steady.unroll + 1):
        for b, block in enumerate(schedule.plan.blocks):
            here, there = starts.get((m, b)), starts.get((m + steady.unroll, b))
            if here is not None and there is not None and there != here + steady.period:
                late, period, early = _moments(schedule, there, steady.period, here)
                why = f"starts at {late}, not one period of {period} after {early}"
                yield Violation("repetend repeats", f"block {block.name} of micro-batch {m + steady.unroll}", why)


RULES: dict[str, Rule] = {
    "coverage": coverage,
    "no overlap": no_overlap,
    "dependency": dependency,
    "memory": memory,
    "repetend repeats": repetend_repeats,
}
"""All rules, by their names in violations."""


def check_schedule(schedule: Schedule, *, without: Iterable[str] = ()) -> list[Violation]:
    """Return the violations of all rules except those named in `without`. Empty for a valid schedule."""
    skipped = set(without)
    return [found for name, rule in RULES.items() if name not in skipped for found in rule(schedule)]


def insist(schedule: Schedule, solver: str, *, without: Iterable[str] = ()) -> None:
    """Raise RefereeError if a schedule that `solver` returned breaks a rule."""
    violations = check_schedule(schedule, without=without)
    if violations:
        raise RefereeError(f"{solver} returned an invalid schedule: {violations[0]}")


def _moments(schedule: Schedule, *ticks: int) -> tuple[str, ...]:
    """Write times that one sentence compares, without a unit if the plan counts steps."""
    unit = schedule.plan.time_unit
    return show_times([int(each) for each in ticks], unit) if unit in TICKS_PER_SECOND else tuple(map(str, ticks))


def _amounts(schedule: Schedule, *amounts: int) -> tuple[str, ...]:
    """Write amounts of memory that one sentence compares, without a unit if the plan counts slots."""
    unit = schedule.plan.memory_unit
    return show_amounts([int(each) for each in amounts], unit) if unit == "B" else tuple(map(str, amounts))


def _run(schedule: Schedule, row: int) -> str:
    block = schedule.plan.blocks[int(schedule.block[row])].name
    return f"block {block} of micro-batch {schedule.micro_batch[row]}"
