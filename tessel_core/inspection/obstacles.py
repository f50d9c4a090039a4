"""Why a run does not start earlier: the obstacles that bind its start, and the chain of obstacles back to time 0.

All other runs keep their times, and the schedule need not stay periodic. Obstacles of data, communication or memory
make every earlier start impossible. The preceding run on a device does so only if no earlier gap is long enough for the
run. Otherwise, the run *could start earlier*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tessel_core.inspection.moments import Moments, numbers_of
from tessel_core.inspection.stretches import Stretches
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.model.schedule import IntColumn

_NONE = -1


class Reason(StrEnum):
    """What a run waits for until its start. If several bind, the first in this order is named."""

    DATA = "data"
    """A predecessor ends at the start of the run."""
    COMMUNICATION = "communication"
    """The lag after a predecessor ends at the start of the run."""
    MEMORY = "memory"
    """The preceding run on one of its devices ends at the start of the run and releases the memory that it needs.
    Memory comes before device, because the preceding run always binds as a device obstacle too."""
    DEVICE = "device"
    """The preceding run on the device in question ends at the start of the run."""
    PARTNERS = "partners"
    """The preceding run on another device of its group ends at the start of the run."""
    COULD = "could start earlier"
    """No obstacle: an earlier start breaks no rule."""
    BEGINNING = "time 0"
    """The run starts at time 0."""


REASONS = tuple(Reason)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle that binds at the start of a run."""

    reason: Reason
    row: int | None = None
    """Row of the run that it waits for."""
    device: int | None = None
    """The device on which it waits; None for data and communication."""


@dataclass(frozen=True, slots=True)
class Link:
    """A run of a chain, and its obstacle: the run of the next link."""

    row: int
    obstacle: Obstacle


@dataclass(frozen=True, eq=False)
class Obstacles:
    """For each run (row of `schedule`), one obstacle that prevents an earlier start on its first device. If there are
    several, it is the first from which obstacles lead back to time 0, or else the first of all. The schedule must keep
    all rules except perhaps the memory rule. Devices that exceed their capacity count as unlimited.
    """

    schedule: Schedule
    reason: IntColumn
    """Positions in `REASONS`. `COULD` means that no obstacle binds at the start."""
    row: IntColumn
    """Row of the run waited for, -1 without one."""
    device: IntColumn
    """Device on which the run waits, or -1 if it waits for data or communication."""
    earliest: IntColumn
    """Earliest legal start of each run if all other runs keep their times, in ticks."""
    grounded: NDArray[np.bool_]
    """Whether obstacles lead from the run back to time 0."""
    _ties: _Ties = field(repr=False)

    @classmethod
    def of(cls, schedule: Schedule) -> Obstacles:
        """Find the obstacles of all runs. Raises ValueError if runs are missing or repeated."""
        return _Ties(schedule).named()

    def why(self, row: int) -> Obstacle:
        """Return why a run does not start earlier."""
        if self.earliest[row] < self.schedule.start[row]:
            return Obstacle(Reason.COULD)
        before, where = int(self.row[row]), int(self.device[row])
        return Obstacle(
            REASONS[self.reason[row]], None if before == _NONE else before, None if where == _NONE else where
        )

    def binding(self, row: int, device: int | None = None) -> tuple[Obstacle, ...]:
        """Return all obstacles at the start of a run, in the order of `Reason`, then of the plan.

        `device` is the device in question, by default the first of the run; its other devices are partners.
        """
        return self._ties.binding(row, device)

    def chain(self, row: int) -> tuple[Link, ...]:
        """Return the chain of obstacles from a run back to time 0, or to a run that could start earlier."""
        return self._walk(row, self.earliest < self.schedule.start)

    def critical_path(self) -> tuple[Link, ...]:
        """Return the chain of obstacles from the run that ends last, for the given order of runs on each device.

        If several runs end last, it starts from the first from which obstacles lead back to time 0, if any.  Unlike
        `chain`, it continues past a run that could move to an earlier gap.  So it ends at time 0, unless a run starts
        later than its order requires.
        """
        return () if self.last is None else self._walk(self.last, np.zeros(len(self.row), dtype=bool))

    @property
    def last(self) -> int | None:
        """Row of the run where the critical path ends; None without runs."""
        if not len(self.schedule.start):
            return None
        last = np.flatnonzero(self.schedule.end == self.schedule.makespan)
        return int(last[self.grounded[last].argmax()])

    def _walk(self, row: int, ends: NDArray[np.bool_]) -> tuple[Link, ...]:
        """Follow obstacles from a run to one without an obstacle, or one marked in `ends`."""
        reason, by, device, end = (column.tolist() for column in (self.reason, self.row, self.device, ends))
        links = []
        while by[row] != _NONE and not end[row]:
            where = None if device[row] == _NONE else device[row]
            links.append(Link(row, Obstacle(REASONS[reason[row]], by[row], where)))
            row = by[row]
        return (*links, Link(row, Obstacle(Reason.COULD if end[row] else REASONS[reason[row]])))


class _Ties:
    """Finds the obstacles of a schedule. A *tie* is a run whose start an obstacle binds, with the run waited for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.moments = schedule, Moments.of(schedule)
        self.plan: MicroBatchPlan = schedule.plan
        self.number = numbers_of(schedule)
        self.on = [schedule.runs_on(d) for d in range(len(self.plan.devices))]
        self.memory = np.array([block.memory for block in self.plan.blocks], dtype=np.int64)
        excess = self.moments.memory.excess
        self.limits = [None if excess[d] else device.memory_capacity for d, device in enumerate(self.plan.devices)]

    def named(self) -> Obstacles:
        """Return one obstacle per run."""
        start = self.schedule.start
        ties = [np.empty((4, 0), dtype=np.int64)]

        def name(why: Reason, rows: IntColumn, before: IntColumn, where: int = _NONE) -> None:
            same = np.full_like(rows, REASONS.index(why)), np.full_like(rows, where)
            ties.append(np.array([rows, before, *same]))

        for why, lagged in ((Reason.DATA, False), (Reason.COMMUNICATION, True)):
            for before, after, lag in self.plan.arcs:
                if (lag > 0) == lagged:
                    tight = self.moments.start[:, after] == self.moments.end[:, before] + lag
                    name(why, self.number[tight, after], self.number[tight, before])
        stops = [self._stops(d) for d in range(len(self.plan.devices))]
        places = [(b, place, d) for b, block in enumerate(self.plan.blocks) for place, d in enumerate(block.devices)]
        for why in (Reason.MEMORY, Reason.DEVICE, Reason.PARTNERS):
            for b, place, d in places:
                if (why is Reason.DEVICE and place) or (why is Reason.PARTNERS and not place):
                    continue
                rows, before = (column[stops[d].block == b] for column in stops[d].tight)
                if why is Reason.MEMORY:
                    releases = self._too_full_before(d, b, rows) & (self.memory[self.schedule.block[before]] < 0)
                    rows, before = rows[releases], before[releases]
                name(why, rows, before, d)
        rows, before, why_of, where_of = np.concatenate(ties, axis=1)
        chosen, grounded = _grounded(start == 0, rows, before)
        found = chosen != _NONE
        reason = np.where(start == 0, REASONS.index(Reason.BEGINNING), REASONS.index(Reason.COULD))
        by, device = np.full(len(start), _NONE), np.full(len(start), _NONE)
        reason[found], by[found], device[found] = why_of[chosen[found]], before[chosen[found]], where_of[chosen[found]]
        return Obstacles(self.schedule, reason, by, device, self._earliest(), grounded, self)

    def binding(self, row: int, device: int | None = None) -> tuple[Obstacle, ...]:
        """Return all obstacles of one run, as `Obstacles.binding`."""
        schedule, start = self.schedule, int(self.schedule.start[row])
        b, m = int(schedule.block[row]), int(schedule.micro_batch[row])
        found: dict[Reason, list[Obstacle]] = {reason: [] for reason in REASONS}
        for before, after, lag in self.plan.arcs:
            if after == b and self.moments.end[m, before] + lag == start:
                reason = Reason.COMMUNICATION if lag else Reason.DATA
                found[reason].append(Obstacle(reason, int(self.number[m, before])))
        devices = self.plan.blocks[b].devices
        asked = devices[0] if device is None else device
        for d in devices:
            position = int(np.searchsorted(self.on[d], row))
            other = int(self.on[d][position - 1]) if position else _NONE
            if other == _NONE or schedule.end[other] != start:
                continue
            reason = Reason.DEVICE if d == asked else Reason.PARTNERS
            found[reason].append(Obstacle(reason, other, d))
            if self.memory[schedule.block[other]] < 0 and self._too_full_before(d, b, np.array([row]))[0]:
                found[Reason.MEMORY].append(Obstacle(Reason.MEMORY, other, d))
        return tuple(each for reason in REASONS for each in found[reason])

    def _stops(self, device: int) -> _Stops:
        rows = self.on[device]
        tight = self.schedule.end[rows[:-1]] == self.schedule.start[rows[1:]]
        return _Stops(self.schedule.block[rows[1:][tight]], (rows[1:][tight], rows[:-1][tight]))

    def _too_full_before(self, device: int, block: int, rows: IntColumn) -> NDArray[np.bool_]:
        """Whether each run of a block would exceed the capacity of a device if it started one tick earlier (but not
        before 0).
        """
        limit = self.limits[device]
        if limit is None or self.memory[block] <= 0:
            return np.zeros(len(rows), dtype=bool)
        full: NDArray[np.bool_] = (
            self.moments.memory.at(device, self.schedule.start[rows] - 1) + self.memory[block] > limit
        )
        return full

    def _earliest(self) -> IntColumn:
        """Return the earliest legal start of each run."""
        moments, earliest = self.moments, np.empty_like(self.schedule.start)
        free: dict[tuple[int, ...], Stretches] = {}
        for b, block in enumerate(self.plan.blocks):
            group = tuple(sorted(block.devices))
            if group not in free:
                free[group] = moments.free(group)
            least = moments.ready[:, b].copy()
            for d in group:
                np.maximum(least, self._room_since(d, b), out=least)
            earliest[self.number[:, b]] = _first_place(free[group], block.duration, least, moments.start[:, b])
        return earliest

    def _room_since(self, device: int, block: int) -> IntColumn:
        """Return, for each micro-batch, the time since which the device has always had enough memory for the block."""
        start, limit = self.moments.start[:, block], self.limits[device]
        if limit is None or self.memory[block] <= 0:
            return np.zeros_like(start)
        times, levels = self.moments.memory.times[device], self.moments.memory.levels[device]
        over = np.flatnonzero(levels + self.memory[block] > limit)
        last = np.searchsorted(times[over], start, side="left") - 1
        until = np.append(np.append(times, self.moments.length)[over + 1], 0)
        since: IntColumn = np.minimum(until[last], start)
        return since


@dataclass(frozen=True, slots=True)
class _Stops:
    """Runs on a device that start when their preceding run ends: their blocks, and rows of (runs, preceding runs)."""

    block: IntColumn
    tight: tuple[IntColumn, IntColumn]


def _grounded(begins: NDArray[np.bool_], rows: IntColumn, before: IntColumn) -> tuple[IntColumn, NDArray[np.bool_]]:
    """Choose one tie per run. Also return whether ties lead back from it to a run for which `begins` is true.

    The chosen tie is the first that leads back, or else the first.  One pass is enough, because a run only waits for
    earlier rows.
    """
    chosen, grounded = [_NONE] * len(begins), begins.tolist()
    order = np.argsort(rows, kind="stable")
    for tie, row, other in zip(order.tolist(), rows[order].tolist(), before[order].tolist(), strict=True):
        if grounded[other] and not grounded[row]:
            chosen[row], grounded[row] = tie, True
        elif chosen[row] == _NONE:
            chosen[row] = tie
    return np.array(chosen, dtype=np.int64), np.array(grounded, dtype=bool)


def _first_place(free: Stretches, duration: int, least: IntColumn, start: IntColumn) -> IntColumn:
    """Return the first time in [`least`, `start`] at which the devices are free for a run of `duration`.

    The time of the run itself is not in `free`, so it is added to a free stretch that ends at its start.
    """
    roomy = free.end - free.start >= duration
    starts, ends = free.start[roomy], np.append(free.end[roomy], np.iinfo(np.int64).max)
    first = np.searchsorted(ends, least + duration, side="left")
    place = np.where(ends[first] <= start, np.maximum(np.append(starts, 0)[first], least), start)
    touching = np.searchsorted(free.end, start, side="left")
    joins = np.append(free.end, _NONE)[touching] == start
    joined = np.where(joins, np.maximum(np.append(free.start, 0)[touching], least), start)
    return np.minimum(place, joined)
