"""A plan's durations and lags as a run had them, and what they predict.

A run begins some time after the last thing it waited for: a run before it on one of its devices, or a dependency.
Which that was is judged by the least time that ever passed after each; then the median is taken over the runs that
waited for it.
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
    """That the next run begins after something: a run of a block on the same device, or a dependency."""

    turn: bool
    of: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What a run had, in nanoseconds."""

    plan: MicroBatchPlan
    """With durations, the median of each block, and lags."""
    turns: tuple[int, ...]
    """Per block, from its end until the next on its device begins, if that waits for nothing else."""

    @classmethod
    def of(cls, plan: MicroBatchPlan, found: Expected) -> Fit:
        """Of a plan, from what an earlier run of it makes one expect."""
        blocks = (replace(block, duration=max(1, ns)) for block, ns in zip(plan.blocks, found.block_ns, strict=True))
        arcs = (replace(arc, lag=ns) for arc, ns in zip(plan.dependencies, found.lag_ns, strict=True))
        return cls(replace(plan, blocks=tuple(blocks), dependencies=tuple(arcs), time_unit="ns"), found.turn_ns)

    def timed(self, schedule: Schedule) -> Schedule:
        """The order of a schedule of the plan, every run as early as it, lags and turns allow."""
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
    """What a run makes one expect of the next.

    A dependency that no run waited for last has the usual lag between devices, at most what there was room for.
    """
    plan, least, last = run.schedule.plan, dict[_Wait, int](), defaultdict[_Wait, list[int]](list)
    for start, waits in _waits(run):
        for wait, end in waits.items():
            least[wait] = min(start - end, least.get(wait, start - end))
    for start, waits in _waits(run):
        if waits:
            wait = max(waits, key=lambda each: waits[each] + least[each])
            last[wait].append(start - waits[wait])
    found = {wait: max(0, int(median(gaps))) for wait, gaps in last.items()}
    usual = sorted(gap for wait, gap in found.items() if not wait.turn and _crosses(plan, wait.of))
    otherwise = usual[len(usual) // 2] if usual else 0

    def lag(arc: int) -> int:
        room = least.get(_Wait(False, arc), 0)
        return found.get(_Wait(False, arc), max(0, min(room, otherwise if _crosses(plan, arc) else 0)))

    turns = tuple(found.get(_Wait(True, b), 0) for b in range(len(plan.blocks)))
    return Expected(run.block_ns, turns, tuple(lag(a) for a in range(len(plan.arcs))), run.peak_bytes)


def _waits(run: MeasuredRun) -> Iterator[tuple[int, dict[_Wait, int]]]:
    """Per run, when it began, and when each of what it waited for had ended."""
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
    """Whether something is sent along a dependency."""
    before, after, _ = plan.arcs[arc]
    return not set(plan.blocks[before].devices) >= set(plan.blocks[after].devices)
