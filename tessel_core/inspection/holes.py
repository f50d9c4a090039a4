"""Holes: where a device stands idle between two runs, before its first or after its last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from tessel_core.inspection.causes import CAUSES, Cause, IdleCauses, idle_causes
from tessel_core.inspection.moments import Moments, numbers_of
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a hole with one cause."""

    cause: Cause
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Filler:
    """A run that could start in a hole, judged by that moment alone."""

    row: int
    moment: int
    undisturbed: bool
    """Whether it may move there with every other run where it is: it ends before the next one on each of its devices,
    and what it acquires has room until its old start."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A device's idle time from one run to the next; `before` and `after` are rows, None at the schedule's ends."""

    device: int
    start: int
    end: int
    before: int | None
    after: int | None
    pieces: tuple[Piece, ...]
    share_of_device: Fraction
    """Of the device's idle time."""
    share_of_all: Fraction
    """Of the idle time of all devices."""

    @property
    def length(self) -> int:
        """Ticks."""
        return self.end - self.start

    @property
    def cause(self) -> Cause:
        """The cause of most of its ticks, the first of `Cause` on a tie."""
        ticks = {cause: sum(p.end - p.start for p in self.pieces if p.cause is cause) for cause in CAUSES}
        return max(CAUSES, key=ticks.__getitem__)


@dataclass(frozen=True, eq=False)
class Holes:
    """Every hole of a schedule that keeps the rules, or breaks only the memory rule."""

    schedule: Schedule
    causes: IdleCauses

    @classmethod
    def of(cls, schedule: Schedule) -> Holes:
        """The holes with their causes; raises ValueError where runs are missing."""
        return cls(schedule, idle_causes(schedule))

    def on(self, device: int) -> tuple[Hole, ...]:
        """A device's holes in order of time."""
        return tuple(self._hole(device, int(i)) for i in range(len(self._bounds[device]) - 1))

    def at(self, device: int, moment: int) -> Hole | None:
        """The hole that a moment lies in; None where the device works then, or the schedule is over."""
        rows, bounds = self._rows[device], self._bounds[device]
        place = int(np.searchsorted(self.causes.start[rows], moment, side="right")) - 1
        if place < 0 or self.causes.end[rows[place]] <= moment:
            return None
        return self._hole(device, int(np.searchsorted(bounds, place, side="right")) - 1)

    def longest(self, device: int | None = None) -> Hole | None:
        """The longest hole of a device, or of all; the first of several, None where nothing is idle."""
        devices = range(self.causes.devices) if device is None else (device,)
        found: tuple[int, int, int] | None = None
        for d in devices:
            bounds, rows = self._bounds[d], self._rows[d]
            if not len(rows):
                continue
            length = self.causes.end[rows[bounds[1:] - 1]] - self.causes.start[rows[bounds[:-1]]]
            place = int(length.argmax())
            if found is None or int(length[place]) > found[0]:
                found = int(length[place]), d, place
        return None if found is None else self._hole(found[1], found[2])

    def filler(self, hole: Hole) -> Filler | None:
        """The run that would fill a hole: one that disturbs nothing if there is any, else the first that could start.

        Looks at the beginning of each piece whose cause is the order; None where no run could start.
        """
        first: Filler | None = None
        for piece in hole.pieces:
            if piece.cause is not Cause.ORDER:
                continue
            for each in self._startable(hole.device, piece.start):
                if each.undisturbed:
                    return each
                first = first or each
        return first

    def _startable(self, device: int, moment: int) -> Iterator[Filler]:
        """The runs of a device that could start at a moment: of each block the next one, in order of their starts."""
        moments, plan = self._moments, self.schedule.plan
        found: list[tuple[int, int, int]] = []
        for b in plan.blocks_on[device]:
            ready = np.flatnonzero((moments.ready[:, b] <= moment) & (moments.start[:, b] > moment))
            if len(ready) and self._free_until(b, moment) > moment and self._fits(b, moment, moment + 1):
                m = int(ready[moments.start[ready, b].argmin()])
                found.append((int(moments.start[m, b]), b, m))
        for start, b, m in sorted(found):
            ends = moment + plan.blocks[b].duration
            undisturbed = ends <= self._free_until(b, moment, start) and self._fits(b, moment, start)
            yield Filler(int(self._numbers[m, b]), moment, undisturbed)

    def _free_until(self, block: int, moment: int, own: int | None = None) -> int:
        """When the first of a block's devices is busy again, not counting the block's own run that starts at `own`."""
        until = self.schedule.makespan + self.schedule.plan.blocks[block].duration
        for d in self.schedule.plan.blocks[block].devices:
            rows = self._runs[d]
            starts, ends = self.schedule.start[rows], self.schedule.end[rows]
            place = int(np.searchsorted(ends, moment, side="right"))
            if place < len(rows) and own is not None and starts[place] == own:
                place += 1
            if place < len(rows):
                until = min(until, int(starts[place]))
        return until

    def _fits(self, block: int, start: int, end: int) -> bool:
        """Whether its devices have room, from `start` to `end`, for what a block acquires."""
        plan, memory = self.schedule.plan, self.schedule.plan.blocks[block].memory
        for d in plan.blocks[block].devices:
            capacity = plan.devices[d].memory_capacity
            most = int(self._moments.memory.most_between(d, np.array([start, end]))[0])
            if capacity is not None and most + memory > capacity:
                return False
        return True

    def _hole(self, device: int, place: int) -> Hole:
        rows, bounds = self._rows[device], self._bounds[device]
        pieces = tuple(
            Piece(CAUSES[int(self.causes.cause[i])], int(self.causes.start[i]), int(self.causes.end[i]))
            for i in rows[bounds[place] : bounds[place + 1]]
        )
        start, end = pieces[0].start, pieces[-1].end
        own = self._runs[device]
        before = int(np.searchsorted(self.schedule.end[own], start, side="right")) - 1
        after = int(np.searchsorted(self.schedule.start[own], end, side="left"))
        return Hole(
            device,
            start,
            end,
            int(own[before]) if before >= 0 else None,
            int(own[after]) if after < len(own) else None,
            pieces,
            Fraction(end - start, self._idle[device]),
            Fraction(end - start, sum(self._idle)),
        )

    @cached_property
    def _rows(self) -> tuple[IntColumn, ...]:
        """Per device, its intervals of `causes`."""
        edges = np.searchsorted(self.causes.device, np.arange(self.causes.devices + 1))
        return tuple(np.arange(a, z) for a, z in pairwise(edges.tolist()))

    @cached_property
    def _bounds(self) -> tuple[IntColumn, ...]:
        """Per device, where among its intervals each hole begins, and their number."""
        bounds = []
        for rows in self._rows:
            opens = np.ones(len(rows), dtype=bool)
            opens[1:] = self.causes.start[rows[1:]] != self.causes.end[rows[:-1]]
            bounds.append(np.append(np.flatnonzero(opens), len(rows)) if len(rows) else np.zeros(1, dtype=np.int64))
        return tuple(bounds)

    @cached_property
    def _idle(self) -> list[int]:
        """Idle ticks of each device."""
        idle: list[int] = self.causes.table.sum(axis=1).tolist()
        return idle

    @cached_property
    def _runs(self) -> tuple[IntColumn, ...]:
        """Per device, the rows of its runs in order."""
        return tuple(self.schedule.runs_on(d) for d in range(self.causes.devices))

    @cached_property
    def _moments(self) -> Moments:
        return Moments.of(self.schedule)

    @cached_property
    def _numbers(self) -> IntColumn:
        return numbers_of(self.schedule)
