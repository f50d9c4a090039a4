"""Holes: idle intervals of a device between two runs, before its first run or after its last run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from tessel_core.inspection.causes import CAUSES, Cause, IdleCauses, idle_causes
from tessel_core.inspection.moments import Moments, numbers_of
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn

_NONE = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a hole with one cause."""

    cause: Cause
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Filler:
    """A run that could start at a moment in a hole. It may still be too long for the hole."""

    row: int
    moment: int
    undisturbed: bool
    """Whether it can move there while all other runs stay: it ends before the next run on each of its devices, and its
    memory fits until its old start."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Idle time of a device between two runs: the rows `before` and `after`, or None at the ends of the schedule."""

    device: int
    start: int
    end: int
    before: int | None
    after: int | None
    pieces: tuple[Piece, ...]
    share_of_device: Fraction
    """Share in the idle time of the device."""
    share_of_all: Fraction
    """Share in the idle time of all devices."""

    @property
    def length(self) -> int:
        """Length in ticks."""
        return self.end - self.start

    @property
    def cause(self) -> Cause:
        """Cause of most of its ticks; the first in `Cause` on a tie."""
        ticks = {cause: sum(p.end - p.start for p in self.pieces if p.cause is cause) for cause in CAUSES}
        return max(CAUSES, key=ticks.__getitem__)


@dataclass(frozen=True, slots=True)
class _HoleColumns:
    """Holes of a device as columns. The pieces of hole i are those from `first[i]` to `first[i + 1]`."""

    start: IntColumn
    end: IntColumn
    before: IntColumn
    after: IntColumn
    first: IntColumn


@dataclass(frozen=True, eq=False)
class Holes:
    """All holes of a schedule that keeps all rules except perhaps the memory rule."""

    schedule: Schedule
    causes: IdleCauses

    @classmethod
    def of(cls, schedule: Schedule) -> Holes:
        """Find all idle intervals of a schedule and their causes. Raises ValueError if runs are missing."""
        return cls(schedule, idle_causes(schedule))

    def on(self, device: int) -> tuple[Hole, ...]:
        """Return the holes of a device in order of time."""
        return tuple(self._hole(device, place) for place in range(len(self._columns[device].start)))

    def at(self, device: int, moment: int) -> Hole | None:
        """Return the hole at a moment; None if the device works then or the schedule is over."""
        holes = self._columns[device]
        place = int(np.searchsorted(holes.start, moment, side="right")) - 1
        return None if place < 0 or holes.end[place] <= moment else self._hole(device, place)

    def longest(self, device: int | None = None) -> Hole | None:
        """Return the first longest hole of a device, or of all devices; None without idle time."""
        most, where = 0, None
        for d in range(self.causes.devices) if device is None else (device,):
            length = self._columns[d].end - self._columns[d].start
            if length.max(initial=0) > most:
                most, where = int(length.max()), (d, int(length.argmax()))
        return None if where is None else self._hole(*where)

    def filler(self, hole: Hole) -> Filler | None:
        """Return a run that could start in a hole, or None. A run that moves no other run is preferred.

        Only the beginnings of pieces with the cause *order* are tried.
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
        """Yield the runs of a device that could start at a moment, at most one per block, in order of their starts."""
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
        """Return when a device of the block becomes busy, ignoring the block's own run that starts at `own`."""
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
        """Whether the devices of a block have room for its memory from `start` to `end`."""
        plan, memory = self.schedule.plan, self.schedule.plan.blocks[block].memory
        for d in plan.blocks[block].devices:
            capacity = plan.devices[d].memory_capacity
            most = int(self._moments.memory.most_between(d, np.array([start, end]))[0])
            if capacity is not None and most + memory > capacity:
                return False
        return True

    def _hole(self, device: int, place: int) -> Hole:
        holes = self._columns[device]
        start, end = int(holes.start[place]), int(holes.end[place])
        before, after = int(holes.before[place]), int(holes.after[place])
        return Hole(
            device,
            start,
            end,
            None if before == _NONE else before,
            None if after == _NONE else after,
            self._pieces[device][holes.first[place] : holes.first[place + 1]],
            Fraction(end - start, self._idle[device]),
            Fraction(end - start, sum(self._idle)),
        )

    @cached_property
    def _columns(self) -> tuple[_HoleColumns, ...]:
        """Return the holes of each device."""
        holes = []
        for d in range(self.causes.devices):
            here, runs = self.causes.device == d, self._runs[d]
            start, end = self.causes.start[here], self.causes.end[here]
            first = np.flatnonzero(np.append(True, start[1:] != end[:-1])) if len(start) else start
            start, end = start[first], end[np.append(first[1:] - 1, -1)] if len(end) else end
            # `before` ends at the start of the hole or earlier, `after` starts at its end or later.
            before = np.searchsorted(self.schedule.end[runs], start, side="right") - 1
            after = np.searchsorted(self.schedule.start[runs], end, side="left")
            framed = np.concatenate(([_NONE], runs, [_NONE]))
            first = np.append(first, np.count_nonzero(here))
            holes.append(_HoleColumns(start, end, framed[before + 1], framed[after + 1], first))
        return tuple(holes)

    @cached_property
    def _pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """Return the idle time of each device, divided into pieces with one cause each."""
        found: list[list[Piece]] = [[] for _ in range(self.causes.devices)]
        columns = (self.causes.device, self.causes.cause, self.causes.start, self.causes.end)
        for d, cause, start, end in zip(*(column.tolist() for column in columns), strict=True):
            found[d].append(Piece(CAUSES[cause], start, end))
        return tuple(map(tuple, found))

    @cached_property
    def _idle(self) -> list[int]:
        """Return the number of idle ticks of each device."""
        idle: list[int] = self.causes.table.sum(axis=1).tolist()
        return idle

    @cached_property
    def _runs(self) -> tuple[IntColumn, ...]:
        """Return the rows of the runs of each device, in order of start."""
        return tuple(self.schedule.runs_on(d) for d in range(self.causes.devices))

    @cached_property
    def _moments(self) -> Moments:
        return Moments.of(self.schedule)

    @cached_property
    def _numbers(self) -> IntColumn:
        return numbers_of(self.schedule)
