"""Sets of ticks as sorted intervals [start, end) that neither overlap nor touch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.schedule import IntColumn


class Stretches(NamedTuple):
    """A set of ticks. `start` and `end` have the same length."""

    start: IntColumn
    end: IntColumn

    @property
    def ticks(self) -> int:
        """Number of ticks in the set."""
        return int((self.end - self.start).sum())

    def contain(self, times: IntColumn) -> NDArray[np.bool_]:
        """Whether each of `times` lies in the set."""
        begun = np.searchsorted(self.start, times, side="right")
        return begun > np.searchsorted(self.end, times, side="right")

    def within(self, start: int, end: int) -> Stretches:
        """Return the part in [start, end)."""
        clipped = Stretches(np.maximum(self.start, start), np.minimum(self.end, end))
        kept = clipped.start < clipped.end
        return Stretches(clipped.start[kept], clipped.end[kept])

    def outside(self, start: int, end: int) -> Stretches:
        """Return the part of [start, end) that is not in the set."""
        inside = self.within(start, end)
        starts, ends = np.append(start, inside.end), np.append(inside.start, end)
        kept = starts < ends
        return Stretches(starts[kept], ends[kept])

    def meeting(self, other: Stretches) -> Stretches:
        """Return the intersection of both sets."""
        points = points_of(*self, *other)
        inside = np.concatenate(([False], self.contain(points) & other.contain(points)))
        turns = points[inside[1:] != inside[:-1]]
        return Stretches(turns[::2], turns[1::2])


NEVER = Stretches(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def points_of(*columns: IntColumn) -> IntColumn:
    """Return all distinct times of some columns in ascending order.

    This is several times as fast as numpy.unique, which hashes.
    """
    times = np.sort(np.concatenate(columns))
    return times[np.append(True, times[1:] != times[:-1])] if len(times) else times


def union(start: IntColumn, end: IntColumn) -> Stretches:
    """Return the union of any intervals [start, end). Intervals that end at their start or before it are empty.

    >>> union(np.array([4, 0, 1, 6]), np.array([6, 2, 3, 6]))
    Stretches(start=array([0, 4]), end=array([3, 6]))
    """
    kept = start < end
    order = np.argsort(start[kept], kind="stable")
    begins, until = start[kept][order], np.maximum.accumulate(end[kept][order])
    opens = np.ones(len(begins), dtype=bool)
    opens[1:] = begins[1:] > until[:-1]
    return Stretches(begins[opens], until[np.append(opens[1:], True)] if len(until) else until)


def union_of(sets: Iterable[Stretches]) -> Stretches:
    """Return the union of the sets."""
    listed = list(sets)
    none = np.zeros(0, dtype=np.int64)
    return union(np.concatenate([none, *(s.start for s in listed)]), np.concatenate([none, *(s.end for s in listed)]))


def wrapped(start: IntColumn, end: IntColumn, period: int) -> Stretches:
    """Return the ticks of [0, period) that any interval covers if each interval repeats every `period` ticks for ever.

    >>> wrapped(np.array([-1, 12]), np.array([1, 13]), 5)
    Stretches(start=array([0, 2, 4]), end=array([1, 3, 5]))
    """
    kept = start < end
    length = np.minimum(end[kept] - start[kept], period)
    first = start[kept] % period
    over = np.maximum(first + length - period, 0)
    return union(np.concatenate((first, np.zeros_like(over))), np.concatenate((first + length - over, over)))
