"""Split idle time exactly by its cause at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from tessel_core.inspection.moments import Moments
from tessel_core.inspection.stretches import NEVER, Stretches, points_of, union_of
from tessel_core.model import Repetend, Schedule
from tessel_core.model.schedule import IntColumn


class Cause(StrEnum):
    """Why a device is idle at a moment. If several causes apply, the first in this list counts.

    A *pending run* is a run of the device that starts later. A pending run counts as able to start even if it would not
    end before the next run of its devices.
    """

    WARMUP = "warmup"
    """The first run of the device has not started."""
    COOLDOWN = "cooldown"
    """The last run of the device has ended."""
    ORDER = "order"
    """A pending run could start: predecessors and lags have ended, its devices are idle and have enough memory."""
    MEMORY = "memory"
    """A pending run could start if its devices had enough memory."""
    PARTNERS = "partners"
    """A pending run waits only for busy devices of its group, and perhaps for memory."""
    COMMUNICATION = "communication"
    """A pending run waits only for the end of lags, and perhaps for other devices of its group or for memory."""
    DATA = "data"
    """Every pending run waits for a predecessor, or the device has no blocks."""


CAUSES = tuple(Cause)


@dataclass(frozen=True, eq=False)
class IdleCauses:
    """Idle intervals of all devices, sorted by device and start. Each interval has one cause.

    All columns have the same length.  Adjacent intervals of a device have different causes.
    """

    length: int
    """Length of the analysed time in ticks: the makespan, or one period of the infinite repetition."""
    devices: int
    device: IntColumn
    start: IntColumn
    end: IntColumn
    cause: IntColumn
    """Positions in `CAUSES`."""

    @cached_property
    def table(self) -> IntColumn:
        """Idle ticks, shaped (devices, causes)."""
        ticks = np.zeros((self.devices, len(CAUSES)), dtype=np.int64)
        np.add.at(ticks, (self.device, self.cause), self.end - self.start)
        ticks.flags.writeable = False
        return ticks

    def ticks(self, device: int) -> dict[Cause, int]:
        """Return the idle ticks of one device by cause; they sum to its idle time."""
        return dict(zip(CAUSES, self.table[device].tolist(), strict=True))

    @property
    def shares(self) -> dict[Cause, Fraction]:
        """Exact share of each cause in the time of all devices; the shares sum to `IdleSplit.idle`."""
        return self.shares_of(range(self.devices))

    def shares_of(self, devices: Sequence[int]) -> dict[Cause, Fraction]:
        """Return the share of each cause in the time of `devices`.

        For the busiest devices, they sum to `IdleSplit.bubble`.
        """
        whole = max(1, self.length * len(devices))
        totals = self.table[list(devices)].astype(object).sum(axis=0)  # sums over many devices may exceed 64 bits
        return {cause: Fraction(int(ticks), whole) for cause, ticks in zip(CAUSES, totals, strict=True)}

    def within(self, start: int, end: int) -> IdleCauses:
        """Return the part in [start, end)."""
        begins, ends = np.maximum(self.start, start), np.minimum(self.end, end)
        kept = begins < ends
        return IdleCauses(
            max(0, end - start), self.devices, self.device[kept], begins[kept], ends[kept], self.cause[kept]
        )


@lru_cache(maxsize=8)
def idle_causes(schedule: Schedule) -> IdleCauses:
    """Assign a cause to every idle tick of every device from 0 to the makespan. Cached for the last few schedules.

    The schedule must keep all rules except perhaps the memory rule.  Raises ValueError if runs are missing.
    """
    return _split(Moments.of(schedule))


def steady_idle_causes(repetend: Repetend) -> IdleCauses:
    """Assign a cause to every idle tick of one period of the infinite repetition, which has no warmup or cooldown."""
    return _split(Moments.of_repetend(repetend))


def _split(moments: Moments) -> IdleCauses:
    """Find the moments at which each cause applies, and assign to each idle moment the first cause that applies."""
    could, roomless = _startable(moments)
    tests = (
        {
            **({} if moments.repeats else ends_of(busy, moments.length)),
            Cause.ORDER: could[d],
            Cause.MEMORY: roomless[d],
            Cause.PARTNERS: moments.during(moments.ready, moments.start, mask),
            Cause.COMMUNICATION: moments.during(moments.ended, moments.start, mask),
        }
        for d, (mask, busy) in enumerate(zip(moments.on, moments.busy, strict=True))
    )
    return split_idle(moments.length, moments.busy, tests)


def split_idle(length: int, busy: Sequence[Stretches], tests: Iterable[Mapping[Cause, Stretches]]) -> IdleCauses:
    """Assign to each idle moment between 0 and `length` the first cause of `CAUSES` whose test holds, else *data*.

    `busy` and `tests` have one entry per device: when it works, and when the test of each cause holds.
    """
    columns: list[tuple[IntColumn, ...]] = []
    for d, (working, holds) in enumerate(zip(busy, tests, strict=True)):
        found = _first_of([holds.get(cause, NEVER) for cause in CAUSES[:-1]], working.outside(0, length))
        columns.append((np.full(len(found[0]), d), *found))
    return IdleCauses(length, len(busy), *(np.concatenate(each) for each in zip(*columns, strict=True)))


def ends_of(used: Stretches, length: int) -> dict[Cause, Stretches]:
    """Return warmup and cooldown of a device: the times before the first and after the last tick of `used`.

    The result is empty if the device never works.
    """
    if not len(used.start):
        return {}
    first, last = used.start[:1], used.end[-1:]
    return {
        Cause.WARMUP: Stretches(np.zeros_like(first), first),
        Cause.COOLDOWN: Stretches(last, np.full_like(last, length)),
    }


def _startable(moments: Moments) -> tuple[list[Stretches], list[Stretches]]:
    """Return, for each device, when a pending run could start, and when one could start if memory were unlimited.

    Runs with the same devices and memory differ only in when they are ready, so they are treated together. While a
    group of devices is free, their memory does not change, so it is enough to test the free memory when the group
    becomes free.
    """
    plan = moments.plan
    groups: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for b, block in enumerate(plan.blocks):
        groups.setdefault(tuple(sorted(block.devices)), {}).setdefault(block.memory, []).append(b)
    could: list[list[Stretches]] = [[] for _ in plan.devices]
    roomless: list[list[Stretches]] = [[] for _ in plan.devices]
    for group, by_memory in groups.items():
        free = moments.free(group)
        for memory, blocks in by_memory.items():
            mask = np.isin(np.arange(len(plan.blocks)), blocks)
            waiting = moments.during(moments.ready, moments.start, mask)
            fits = np.ones(len(free.start), dtype=bool)
            for d in group:
                capacity = plan.devices[d].memory_capacity
                if capacity is not None:
                    fits &= moments.memory.at(d, free.start) + memory <= capacity
            started, squeezed = waiting.meeting(Stretches(free.start[fits], free.end[fits])), waiting.meeting(free)
            for d in group:
                could[d].append(started)
                roomless[d].append(squeezed)
    return [union_of(sets) for sets in could], [union_of(sets) for sets in roomless]


def _first_of(tests: Sequence[Stretches], idle: Stretches) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Cut idle time into pieces (start, end, position of the first test that holds, or the number of tests if none).

    A piece ends where the idle time ends or the position changes.
    """
    points = points_of(*idle, *(times for test in tests for times in test))
    points = points[idle.contain(points)]
    passed = np.array([test.contain(points) for test in tests] + [np.ones(len(points), dtype=bool)])
    first = passed.argmax(axis=0)
    hole = np.searchsorted(idle.start, points, side="right") - 1
    opens = np.ones(len(points), dtype=bool)
    opens[1:] = (hole[1:] != hole[:-1]) | (first[1:] != first[:-1])
    start, hole, first = points[opens], hole[opens], first[opens]
    end = idle.end[hole]
    if len(start):
        same = hole[1:] == hole[:-1]
        end[:-1][same] = start[1:][same]
    return start, end, first
