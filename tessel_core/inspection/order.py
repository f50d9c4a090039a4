"""What the order of runs on the devices allows: how much later a run could start, what faster blocks would bring.

An order is a graph: a run waits for its predecessors and their lags, and for the run before it on each of its devices.
What devices hold depends on their order alone, so that no arc is needed for memory: it is kept however runs are timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from tessel_core.inspection.moments import numbers_of
from tessel_core.inspection.stretches import points_of
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn

_MOST_WAYS = 16_000_000
"""Longest ways kept at once, of every run for several changes: 128 MB."""


@dataclass(frozen=True, eq=False)
class OrderGraph:
    """The arcs between the runs (rows) of a schedule: `late` starts at least `ticks` after `early` ends."""

    schedule: Schedule
    early: IntColumn
    late: IntColumn
    ticks: IntColumn

    @classmethod
    def of(cls, schedule: Schedule) -> OrderGraph:
        """The order of a schedule that keeps the rules; raises ValueError where runs are missing or repeated."""
        number, runs = numbers_of(schedule), len(schedule.start)
        arcs = schedule.plan.arcs
        waits = [(number[:, before], number[:, after], np.full(len(number), lag)) for before, after, lag in arcs]
        turns = [rows[1:] * runs + rows[:-1] for rows in map(schedule.runs_on, range(len(schedule.plan.devices)))]
        late, early = np.divmod(points_of(*turns), max(1, runs))
        waits.append((early, late, np.zeros_like(early)))
        return cls(schedule, *(np.concatenate(each) for each in zip(*waits, strict=True)))

    @cached_property
    def slack(self) -> IntColumn:
        """Per run, how many ticks later it could start, in this order, without a later end of the whole schedule."""
        start, end = self.schedule.start, self.schedule.end
        rest = _longest_ways(
            -end, -start, (self.late, self.early, self.ticks), self.schedule.block, self._durations[:, None]
        )[:, 0]
        slack: IntColumn = self.schedule.makespan - rest - start
        return slack

    @property
    def makespan(self) -> int:
        """Ticks that this order needs; less than the schedule's where runs start later than they need to."""
        return self._makespans(self._durations[:, None])[0]

    def savings(self, faster: Fraction = Fraction(1, 10)) -> tuple[Fraction, ...]:
        """Per block, how many ticks less this order needs when all its runs are shorter by the share `faster`.

        Recomputed exactly, each block by itself, against `makespan`.
        """
        blocks, scale = len(self._durations), faster.denominator
        durations = np.repeat(self._durations[:, None] * scale, blocks + 1, axis=1)
        durations[range(blocks), range(blocks)] = self._durations * (scale - faster.numerator)
        needed = self._makespans(durations, scale)
        return tuple(Fraction(needed[-1] - each, scale) for each in needed[:-1])

    @property
    def _durations(self) -> IntColumn:
        return np.array([block.duration for block in self.schedule.plan.blocks], dtype=np.int64)

    def _makespans(self, durations: IntColumn, scale: int = 1) -> list[int]:
        """Per column of durations, shaped (blocks, columns), what this order needs; lags are scaled."""
        start, end = self.schedule.start, self.schedule.end
        arcs = self.early, self.late, self.ticks * scale
        width = max(1, _MOST_WAYS // max(1, len(start)))
        needed: list[int] = []
        for first in range(0, durations.shape[1], width):
            ways = _longest_ways(start, end, arcs, self.schedule.block, durations[:, first : first + width])
            needed += ways.max(axis=0, initial=0).tolist()
        return needed


def _longest_ways(
    begin: IntColumn, end: IntColumn, arcs: tuple[IntColumn, IntColumn, IntColumn], block: IntColumn, ticks: IntColumn
) -> IntColumn:
    """The longest way to the end of each run, shaped (runs, columns); `ticks` of blocks are shaped (blocks, columns).

    An arc (from, to, lag) leads from a run that ends by the time the other begins.  So runs that all begin before any
    of them ends have no arcs between them, and are timed together.
    """
    runs = len(begin)
    order = np.argsort(begin, kind="stable")
    place = np.empty(runs + 1, dtype=np.int64)
    place[order], place[runs] = np.arange(runs), runs
    # Every run also comes from a beginning, whose way is the last and stays 0.
    source = place[np.concatenate((arcs[0], np.full(runs, runs)))]
    target = place[np.concatenate((arcs[1], np.arange(runs)))]
    lag = np.concatenate((arcs[2], np.zeros(runs, dtype=np.int64)))
    by_target = np.argsort(target, kind="stable")
    source, lag = source[by_target], lag[by_target, None]
    first = np.searchsorted(target[by_target], np.arange(runs + 1))
    ways, blocks = np.zeros((runs + 1, ticks.shape[1]), dtype=np.int64), block[order]
    edges = _together(begin[order].tolist(), end[order].tolist())
    for (here, there), (a, z) in zip(pairwise(edges), pairwise(first[edges].tolist()), strict=True):
        arrivals = ways[source[a:z]] + lag[a:z]
        ways[here:there] = np.maximum.reduceat(arrivals, first[here:there] - a) + ticks[blocks[here:there]]
    found: IntColumn = ways[place[:runs]]
    return found


def _together(begin: list[int], end: list[int]) -> list[int]:
    """Where a group of runs, in order of their beginnings, ends because the next one begins after one of them ends."""
    edges, least = [0], end[0] if end else 0
    for i, (begins, ends) in enumerate(zip(begin, end, strict=True)):
        if begins >= least:
            edges.append(i)
            least = ends
        least = min(least, ends)
    return [*edges, len(begin)] if begin else edges
