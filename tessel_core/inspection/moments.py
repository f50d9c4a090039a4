"""A schedule, or a repetend that repeats for ever, as what each moment of it says: who works, who waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core.inspection.stretches import Stretches, union, union_of, wrapped
from tessel_core.model import MemoryProfile, MicroBatchPlan, Repetend, Schedule, ScheduleReport
from tessel_core.model.schedule import IntColumn


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments 0 … `length` - 1 of a whole schedule, or of one period of the infinite repetition.

    The matrices are shaped (micro-batches, blocks).  A run waits for its predecessors until `ended`, for the lags
    after them until `ready`, and for whatever else until `start`; it works until `end`.
    """

    plan: MicroBatchPlan
    length: int
    start: IntColumn
    end: IntColumn
    ended: IntColumn
    ready: IntColumn
    memory: MemoryProfile
    folded: Callable[[IntColumn, IntColumn], Stretches]
    """The moments that lie in any of some intervals."""
    repeats: bool

    @classmethod
    def of(cls, schedule: Schedule) -> Moments:
        """Those of a schedule that runs every block of every micro-batch once; raises ValueError for any other."""
        start, length = schedule.starts, schedule.makespan
        end, ended, ready = _waits(schedule.plan, start, np.zeros_like(start))
        memory = MemoryProfile.of(schedule)
        return cls(schedule.plan, length, start, end, ended, ready, memory, union, False)

    @classmethod
    def of_repetend(cls, repetend: Repetend) -> Moments:
        """Those of one period from time 0 on, with infinitely many micro-batches before and after.

        A run without predecessors has always been ready: the next one of its block is, at any moment.
        """
        start, period = repetend.first_start, repetend.period
        end, ended, ready = _waits(repetend.plan, start, start - period)
        memory = repeated_memory(repetend)
        return cls(repetend.plan, period, start, end, ended, ready, memory, lambda a, b: wrapped(a, b, period), True)

    @cached_property
    def busy(self) -> tuple[Stretches, ...]:
        """When each device works."""
        return tuple(self.during(self.start, self.end, mask) for mask in self.on)

    @cached_property
    def on(self) -> tuple[NDArray[np.bool_], ...]:
        """Per device, which blocks run there."""
        return tuple(
            np.array([d in block.devices for block in self.plan.blocks]) for d in range(len(self.plan.devices))
        )

    def free(self, devices: Iterable[int]) -> Stretches:
        """When none of some devices works."""
        return union_of(self.busy[d] for d in devices).outside(0, self.length)

    def during(self, begin: IntColumn, end: IntColumn, blocks: NDArray[np.bool_]) -> Stretches:
        """The moments from `begin` to `end` of any run of the blocks that a mask selects."""
        return self.folded(begin[:, blocks].ravel(), end[:, blocks].ravel())


def numbers_of(schedule: Schedule) -> IntColumn:
    """The row of each run, shaped (micro-batches, blocks); raises ValueError where runs are missing or repeated."""
    number = np.empty_like(schedule.starts)
    number[schedule.micro_batch, schedule.block] = np.arange(len(schedule.start))
    return number


def _waits(plan: MicroBatchPlan, start: IntColumn, always: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Ends of the runs, and when their predecessors have ended and their lags are over; `always` without any."""
    end = start + np.array([block.duration for block in plan.blocks], dtype=np.int64)
    ended, ready = np.empty_like(start), np.empty_like(start)
    for b, before in enumerate(plan.predecessors):
        if not before:
            ended[:, b] = ready[:, b] = always[:, b]
            continue
        ended[:, b] = np.max([end[:, a] for a, _ in before], axis=0)
        ready[:, b] = np.max([end[:, a] + lag for a, lag in before], axis=0)
    return end, ended, ready


def repeated_part(schedule: Schedule) -> Repetend | None:
    """What a schedule repeats, to be judged as if it went on for ever.

    None where nothing repeats, or where the stretch is too short to tell and could not go on: runs would overlap, or
    devices hold more than their capacity that do not in the schedule.
    """
    steady = schedule.repetend
    if steady is None:
        return None
    first = steady.first_micro_batch
    found = Repetend(schedule.plan, steady.period, schedule.starts[first : first + steady.unroll])
    moments = Moments.of_repetend(found)
    works = [found.unroll * work for work in schedule.plan.work]
    if any(busy.ticks < work for busy, work in zip(moments.busy, works, strict=True)):
        return None
    excess = zip(moments.memory.excess, MemoryProfile.of(schedule).excess, strict=True)
    return None if any(more and not before for more, before in excess) else found


def steadiest(report: ScheduleReport) -> Repetend | None:
    """The steadiest state that a search found, else what its schedule repeats; None where nothing repeats."""
    if report.repetend is not None or report.drawable is None:
        return report.repetend
    return repeated_part(report.drawable)


def repeated_memory(repetend: Repetend) -> MemoryProfile:
    """What each device holds in one period of the infinite repetition, from time 0 on.

    A change at t has happened floor((now - t) / period) + 1 times since its first, and what is left of the rest
    cancels, because the memory of one micro-batch sums to 0.
    """
    plan, period = repetend.plan, repetend.period
    duration = np.array([block.duration for block in plan.blocks], dtype=np.int64)
    memory = np.array([block.memory for block in plan.blocks], dtype=np.int64)
    changes = np.where(memory > 0, repetend.first_start, repetend.first_start + duration)
    times, levels = [], []
    for d, device in enumerate(plan.devices):
        on = [b for b in plan.blocks_on[d] if memory[b]]
        when, amount = changes[:, on].ravel(), np.tile(memory[on], len(changes))
        before_zero = device.static_memory + int((amount * ((-1 - when) // period + 1)).sum())
        order = np.lexsort((amount > 0, when % period))
        at = np.concatenate(([0], (when % period)[order]))
        level = before_zero + np.concatenate(([0], np.cumsum(amount[order])))
        last_of_instant = np.append(at[1:] != at[:-1], True)
        times.append(at[last_of_instant])
        levels.append(level[last_of_instant])
    return MemoryProfile(plan, tuple(times), tuple(levels))
