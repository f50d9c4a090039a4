"""State of a schedule or of an infinitely repeated repetend at each moment: working devices and waiting runs."""

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

    Matrices are shaped (micro-batches, blocks).  A run waits for its predecessors until `ended`, for their lags until
    `ready`, and for devices or memory until `start`.  It works until `end`.
    """

    plan: MicroBatchPlan
    length: int
    start: IntColumn
    end: IntColumn
    ended: IntColumn
    ready: IntColumn
    memory: MemoryProfile
    folded: Callable[[IntColumn, IntColumn], Stretches]
    """Function from the starts and ends of intervals to the moments in any of them."""
    repeats: bool

    @classmethod
    def of(cls, schedule: Schedule) -> Moments:
        """Return the moments of a schedule. Raises ValueError unless it runs every block of every micro-batch once."""
        start, length = schedule.starts, schedule.makespan
        end, ended, ready = _waits(schedule.plan, start, np.zeros_like(start))
        memory = MemoryProfile.of(schedule)
        return cls(schedule.plan, length, start, end, ended, ready, memory, union, False)

    @classmethod
    def of_repetend(cls, repetend: Repetend) -> Moments:
        """Return the moments of one period from time 0, with infinitely many micro-batches before and after.

        A block without predecessors always has a run that is ready.
        """
        start, period = repetend.first_start, repetend.period
        end, ended, ready = _waits(repetend.plan, start, start - period)
        memory = repeated_memory(repetend)
        return cls(repetend.plan, period, start, end, ended, ready, memory, lambda a, b: wrapped(a, b, period), True)

    @cached_property
    def busy(self) -> tuple[Stretches, ...]:
        """Times at which each device works."""
        return tuple(self.during(self.start, self.end, mask) for mask in self.on)

    @cached_property
    def on(self) -> tuple[NDArray[np.bool_], ...]:
        """For each device, a Boolean mask of the blocks on it."""
        return tuple(
            np.array([d in block.devices for block in self.plan.blocks]) for d in range(len(self.plan.devices))
        )

    def free(self, devices: Iterable[int]) -> Stretches:
        """Return the times at which none of the devices works."""
        return union_of(self.busy[d] for d in devices).outside(0, self.length)

    def during(self, begin: IntColumn, end: IntColumn, blocks: NDArray[np.bool_]) -> Stretches:
        """Return the moments from `begin` to `end` of any run of the blocks in a mask."""
        return self.folded(begin[:, blocks].ravel(), end[:, blocks].ravel())


def numbers_of(schedule: Schedule) -> IntColumn:
    """Return the row of each run, shaped (micro-batches, blocks). Raises ValueError if runs are missing or repeated."""
    number = np.empty_like(schedule.starts)
    number[schedule.micro_batch, schedule.block] = np.arange(len(schedule.start))
    return number


def _waits(plan: MicroBatchPlan, start: IntColumn, always: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return three matrices of ticks: when runs end, when their predecessors have ended, and when their lags are over.

    Runs without predecessors get the time in `always` for the last two.
    """
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
    """Return the repetend of a schedule; None if nothing repeats, or if it could not repeat for ever.

    If only few micro-batches repeat, further copies may overlap, or exceed a capacity that the schedule keeps.
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
    """Return the steadiest state that a search found, else the repetend of its schedule; None if nothing repeats."""
    if report.repetend is not None or report.drawable is None:
        return report.repetend
    return repeated_part(report.drawable)


def repeated_memory(repetend: Repetend) -> MemoryProfile:
    """Return the memory that each device holds in one period of the infinite repetition, from time 0.

    Up to a moment `now`, a change at t has happened floor((now - t) / period) + 1 times, counted from its copy at t.
    Earlier copies cancel, because the memory changes of one micro-batch sum to 0.
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
