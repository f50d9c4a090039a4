"""Fit durations and lags of a plan to a measured execution, and predict other schedules with them.

A run is one block of one micro-batch. It starts some time after the last event for which it waited: the previous run on
one of its devices, or a dependency. To find the last event, the smallest delay that was observed after each kind of
event is added to the time of each event. The fitted delay is the median over the runs for which the event was the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from tessel_core.model import Expected, MeasuredRun, MicroBatchPlan, Schedule


class _Wait(NamedTuple):
    """An event for which a run waits: the end of the previous run on its device (`turn`), or a dependency."""

    turn: bool
    of: int
    """Block of the previous run, or index of the dependency."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Times fitted to a measured run, in nanoseconds."""

    plan: MicroBatchPlan
    """The plan with fitted lags and the median duration of each block."""
    turns: tuple[int, ...]
    """Nanoseconds from the end of each block to the start of the next one on its device, if only the device keeps it
    waiting.
    """

    @classmethod
    def of(cls, plan: MicroBatchPlan, times: Expected) -> Fit:
        """Build a fit for `plan` from the times of an earlier run of it."""
        blocks = (replace(block, duration=max(1, ns)) for block, ns in zip(plan.blocks, times.block_ns, strict=True))
        arcs = (replace(arc, lag=ns) for arc, ns in zip(plan.dependencies, times.lag_ns, strict=True))
        return cls(replace(plan, blocks=tuple(blocks), dependencies=tuple(arcs), time_unit="ns"), times.turn_ns)

    def timed(self, schedule: Schedule) -> Schedule:
        """Return a schedule with the same order, in which each run starts as early as the fitted times allow."""
        plan, free = self.plan, [0] * len(self.plan.devices)
        starts = np.zeros((schedule.micro_batches, len(plan.blocks)), dtype=np.int64)
        for b, m in zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True):
            block, before = plan.blocks[b], plan.predecessors[b]
            ready = (int(starts[m, other]) + plan.blocks[other].duration + lag for other, lag in before)
            starts[m, b] = max([*ready, *(free[d] for d in block.devices)])
            for d in block.devices:
                free[d] = int(starts[m, b]) + block.duration + self.turns[b]
        return Schedule.at_starts(plan, starts)


def expected(run: MeasuredRun) -> Expected:
    """Fit block durations, lags and the time between blocks of a device to a measured execution.

    If a dependency was never the last event for a run, its lag is the median lag between devices, or 0 inside a
    device, and at most the smallest delay observed after it.
    """
    plan, least, last = run.schedule.plan, dict[_Wait, int](), defaultdict[_Wait, list[int]](list)
    for start, waits in _waits(run):
        for wait, end in waits.items():
            least[wait] = min(start - end, least.get(wait, start - end))
    for start, waits in _waits(run):
        if waits:
            wait = max(waits, key=lambda each: waits[each] + least[each])
            last[wait].append(start - waits[wait])
    delays = {wait: max(0, int(median(gaps))) for wait, gaps in last.items()}
    lags = sorted(delay for wait, delay in delays.items() if not wait.turn and _crosses(plan, wait.of))
    default_lag = lags[len(lags) // 2] if lags else 0

    def lag(arc: int) -> int:
        smallest = least.get(_Wait(False, arc), 0)
        return delays.get(_Wait(False, arc), max(0, min(smallest, default_lag if _crosses(plan, arc) else 0)))

    turns = tuple(delays.get(_Wait(True, b), 0) for b in range(len(plan.blocks)))
    return Expected(run.block_ns, turns, tuple(lag(a) for a in range(len(plan.arcs))), run.peak_bytes)


def _waits(run: MeasuredRun) -> Iterator[tuple[int, dict[_Wait, int]]]:
    """Yield the start of each run, and the end of each event for which it waited."""
    schedule, plan = run.schedule, run.schedule.plan
    ended, last = dict[tuple[int, int], int](), dict[int, tuple[int, int]]()
    incoming = [[a for a, (_, after, _) in enumerate(plan.arcs) if after == b] for b in range(len(plan.blocks))]
    columns = schedule.block.tolist(), schedule.micro_batch.tolist(), run.start.tolist(), run.end.tolist()
    for b, m, start, end in zip(*columns, strict=True):
        waits = {_Wait(False, a): ended[plan.arcs[a][0], m] for a in incoming[b]}
        for before, moment in (last[d] for d in plan.blocks[b].devices if d in last):
            waits[_Wait(True, before)] = max(moment, waits.get(_Wait(True, before), 0))
        yield start, waits
        ended[b, m] = end
        last |= dict.fromkeys(plan.blocks[b].devices, (b, end))


def _crosses(plan: MicroBatchPlan, arc: int) -> bool:
    """Return whether a dependency sends a tensor to another device."""
    before, after, _ = plan.arcs[arc]
    return not set(plan.blocks[before].devices) >= set(plan.blocks[after].devices)
