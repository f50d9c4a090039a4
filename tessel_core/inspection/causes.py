"""Why devices stand idle, moment by moment: an exact second split of idle time."""

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
    """Why a device is idle at a moment: the first that applies.

    A run still to come is one of the device's runs that starts after the moment.  It is judged by this moment alone:
    whether it would end before the next run of its devices does not matter.
    """

    WARMUP = "warmup"
    """The device has run nothing yet."""
    COOLDOWN = "cooldown"
    """The device has run everything."""
    ORDER = "order"
    """A run still to come could start: its predecessors have ended, its lags are over, all its devices are free, and
    what each holds now, with the run's memory, is within its capacity."""
    MEMORY = "memory"
    """A run still to come lacks only room."""
    PARTNERS = "partners"
    """A run still to come lacks only free devices of its group, and perhaps room."""
    COMMUNICATION = "communication"
    """A run still to come lacks only the end of lags, and perhaps partners or room."""
    DATA = "data"
    """Every run still to come waits for a predecessor, or the device has no blocks at all."""


CAUSES = tuple(Cause)
_ROW = {cause: row for row, cause in enumerate(CAUSES)}


@dataclass(frozen=True, eq=False)
class IdleCauses:
    """The idle intervals of every device, each of one cause, sorted by device and start.

    The columns are of one length.  Two neighbours that touch differ in their cause.
    """

    length: int
    """Ticks that were looked at: the makespan, or one period of the infinite repetition."""
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
        """Idle ticks of one device by cause; together its idle time."""
        return dict(zip(CAUSES, self.table[device].tolist(), strict=True))

    @property
    def shares(self) -> dict[Cause, Fraction]:
        """Of all devices' time, the exact share of each cause; together `IdleSplit.idle`."""
        return self.shares_of(range(self.devices))

    def shares_of(self, devices: Sequence[int]) -> dict[Cause, Fraction]:
        """Of the time of some devices; of those of most work, together `IdleSplit.bubble`."""
        whole = max(1, self.length * len(devices))
        totals = self.table[list(devices)].astype(object).sum(axis=0)  # of many devices, 64 bits may be too few
        return {cause: Fraction(int(ticks), whole) for cause, ticks in zip(CAUSES, totals, strict=True)}

    def within(self, start: int, end: int) -> IdleCauses:
        """The part in [start, end)."""
        begins, ends = np.maximum(self.start, start), np.minimum(self.end, end)
        kept = begins < ends
        return IdleCauses(
            max(0, end - start), self.devices, self.device[kept], begins[kept], ends[kept], self.cause[kept]
        )


@lru_cache(maxsize=8)
def idle_causes(schedule: Schedule) -> IdleCauses:
    """Every idle tick of every device from 0 to the makespan, by cause; those of the last few schedules are kept.

    For schedules that keep the rules or break only the memory rule; raises ValueError where runs are missing.
    """
    return _split(Moments.of(schedule))


def steady_idle_causes(repetend: Repetend) -> IdleCauses:
    """Every idle tick of one period of the infinite repetition, in which nothing is warmup or cooldown."""
    return _split(Moments.of_repetend(repetend))


def _split(moments: Moments) -> IdleCauses:
    """Per cause, the moments at which it or a cause before it applies; then the first one of each idle moment."""
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
    """The idle time of devices between 0 and `length`; each moment has the first cause of `CAUSES` whose test holds.

    Per device, when it is busy, and when the test of each cause holds; *data* is what no test holds for.
    """
    columns: list[tuple[IntColumn, ...]] = []
    for d, (working, holds) in enumerate(zip(busy, tests, strict=True)):
        found = _first_of([holds.get(cause, NEVER) for cause in CAUSES[:-1]], working.outside(0, length))
        columns.append((np.full(len(found[0]), d), *found))
    return IdleCauses(length, len(busy), *(np.concatenate(each) for each in zip(*columns, strict=True)))


def ends_of(used: Stretches, length: int) -> dict[Cause, Stretches]:
    """The warmup and the cooldown of a device that is used then; none of one that never is."""
    if not len(used.start):
        return {}
    first, last = used.start[:1], used.end[-1:]
    return {
        Cause.WARMUP: Stretches(np.zeros_like(first), first),
        Cause.COOLDOWN: Stretches(last, np.full_like(last, length)),
    }


def _startable(moments: Moments) -> tuple[list[Stretches], list[Stretches]]:
    """Per device, when a run still to come could start, and when one could if only there were room.

    Runs of the same devices and memory differ in nothing but when they are ready.  While a group of devices is free,
    none of them acquires or releases, so that a glance at the beginning says what fits.
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
    """The idle moments as pieces (start, end, position of the first test that they pass, the number of tests if none).

    Pieces are as long as can be: they end with the idle time or where the cause changes.
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
