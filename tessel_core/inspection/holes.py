"""Holes: where a device stands idle between two runs, before its first or after its last one."""

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


@dataclass(frozen=True, slots=True)
class _Line:
    """A device's holes as columns; the pieces of hole i are those from `first[i]` to `first[i + 1]`."""

    start: IntColumn
    end: IntColumn
    before: IntColumn
    after: IntColumn
    first: IntColumn


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
        return tuple(self._hole(device, place) for place in range(len(self._lines[device].start)))

    def at(self, device: int, moment: int) -> Hole | None:
        """The hole that a moment lies in; None where the device works then, or the schedule is over."""
        line = self._lines[device]
        place = int(np.searchsorted(line.start, moment, side="right")) - 1
        return None if place < 0 or line.end[place] <= moment else self._hole(device, place)

    def longest(self, device: int | None = None) -> Hole | None:
        """The longest hole of a device, or of all; the first of several, None where nothing is idle."""
        most, where = 0, None
        for d in range(self.causes.devices) if device is None else (device,):
            length = self._lines[d].end - self._lines[d].start
            if length.max(initial=0) > most:
                most, where = int(length.max()), (d, int(length.argmax()))
        return None if where is None else self._hole(*where)

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
        line = self._lines[device]
        start, end = int(line.start[place]), int(line.end[place])
        before, after = int(line.before[place]), int(line.after[place])
        return Hole(
            device,
            start,
            end,
            None if before == _NONE else before,
            None if after == _NONE else after,
            self._pieces[device][line.first[place] : line.first[place + 1]],
            Fraction(end - start, self._idle[device]),
            Fraction(end - start, sum(self._idle)),
        )

    @cached_property
    def _lines(self) -> tuple[_Line, ...]:
        """Per device, its holes."""
        lines = []
        for d in range(self.causes.devices):
            mine, runs = self.causes.device == d, self._runs[d]
            start, end = self.causes.start[mine], self.causes.end[mine]
            first = np.flatnonzero(np.append(True, start[1:] != end[:-1])) if len(start) else start
            start, end = start[first], end[np.append(first[1:] - 1, -1)] if len(end) else end
            # A run that ends with the hole's beginning is before it, one that starts with its end after it.
            before = np.searchsorted(self.schedule.end[runs], start, side="right") - 1
            after = np.searchsorted(self.schedule.start[runs], end, side="left")
            framed = np.concatenate(([_NONE], runs, [_NONE]))
            first = np.append(first, np.count_nonzero(mine))
            lines.append(_Line(start, end, framed[before + 1], framed[after + 1], first))
        return tuple(lines)

    @cached_property
    def _pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """Per device, the parts of its idle time that have one cause."""
        found: list[list[Piece]] = [[] for _ in range(self.causes.devices)]
        columns = (self.causes.device, self.causes.cause, self.causes.start, self.causes.end)
        for d, cause, start, end in zip(*(column.tolist() for column in columns), strict=True):
            found[d].append(Piece(CAUSES[cause], start, end))
        return tuple(map(tuple, found))

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
