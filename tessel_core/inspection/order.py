"""What the order of runs on the devices allows: how much later a run could start, what faster blocks would bring.

An order is a graph: a run waits for its predecessors and their lags, and for the run before it on each of its devices.
What devices hold depends on their order alone, so that no arc is needed for memory: it is kept however runs are timed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.inspection.moments import numbers_of
from tessel_core.inspection.stretches import points_of
from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn

_MOST_WAYS = 16_000_000
"""Longest ways kept at once, of every run for several changes: 128 MB."""

Ticks = TypeVar("Ticks", np.int64, np.float64)


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
        back = _Sweep.of(-end, -start, (self.late, self.early, self.ticks))
        rest = np.empty_like(start)
        rest[back.order] = back.longest_ways(self.schedule.duration[back.order, None])[:-1, 0]
        slack: IntColumn = self.schedule.makespan - rest - start
        return slack

    @property
    def makespan(self) -> int:
        """Ticks that this order needs; less than the schedule's where runs start later than they need to."""
        return self._makespans(self._durations[:, None])[0]

    def makespans(self, lasting: NDArray[Ticks]) -> NDArray[Ticks]:
        """Per column of `lasting`, shaped (runs, columns), the ticks that this order needs if its runs last so long.

        On each device runs keep their order and start as early as it, dependencies and lags allow.
        """
        needed: NDArray[Ticks] = self._forward.longest_ways(lasting).max(axis=0)
        return needed

    @cached_property
    def _forward(self) -> _Sweep:
        """Runs lie in order of start already."""
        return _Sweep.of(self.schedule.start, self.schedule.end, (self.early, self.late, self.ticks))

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
        scaled = replace(self, ticks=self.ticks * scale)
        width = max(1, _MOST_WAYS // max(1, len(self.schedule.start)))
        needed: list[int] = []
        for first in range(0, durations.shape[1], width):
            needed += scaled.makespans(durations[self.schedule.block, first : first + width]).tolist()
        return needed


@dataclass(frozen=True, slots=True, eq=False)
class _Sweep:
    """Runs in an order that has what comes first first, and the arcs to each of them.

    An arc (from, to, lag) leads from a run that ends by the time the other begins.  So runs that all begin before any
    of them ends have no arcs between them, and are timed together.
    """

    order: IntColumn
    source: IntColumn
    lag: IntColumn
    first: IntColumn
    """Where the arcs to each run begin."""
    edges: list[int]
    """Where the runs that are timed together begin, and the number of runs."""

    @classmethod
    def of(cls, begin: IntColumn, end: IntColumn, arcs: tuple[IntColumn, IntColumn, IntColumn]) -> _Sweep:
        """Of runs that begin and end so, in ticks, and arcs as columns of from, to and lag."""
        runs = len(begin)
        order = np.argsort(begin, kind="stable")
        place = np.empty(runs, dtype=np.int64)
        place[order] = np.arange(runs)
        # Every run also comes from a beginning, whose way is the last and stays 0.
        source = np.concatenate((place[arcs[0]], np.full(runs, runs)))
        target = np.concatenate((place[arcs[1]], np.arange(runs)))
        lag = np.concatenate((arcs[2], np.zeros(runs, dtype=np.int64)))
        by_target = np.argsort(target, kind="stable")
        first = np.searchsorted(target[by_target], np.arange(runs + 1))
        edges = _together(begin[order].tolist(), end[order].tolist())
        return cls(order, source[by_target], lag[by_target, None], first, edges)

    def longest_ways(self, lasting: NDArray[Ticks]) -> NDArray[Ticks]:
        """The longest way to the end of each run and, last, the 0 of the beginning, shaped (runs + 1, columns).

        `lasting` are the ticks of each run, shaped (runs, columns), both in `order`.
        """
        ways = np.zeros((len(lasting) + 1, lasting.shape[1]), dtype=lasting.dtype)
        for (here, there), (a, z) in zip(pairwise(self.edges), pairwise(self.first[self.edges].tolist()), strict=True):
            arrivals = ways[self.source[a:z]]
            arrivals += self.lag[a:z]
            latest = np.maximum.reduceat(arrivals, self.first[here:there] - a)
            np.add(latest, lasting[here:there], out=ways[here:there])
        return ways


def _together(begin: list[int], end: list[int]) -> list[int]:
    """Where a group of runs, in order of their beginnings, ends because the next one begins after one of them ends."""
    edges, least = [0], end[0] if end else 0
    for i, (begins, ends) in enumerate(zip(begin, end, strict=True)):
        if begins >= least:
            edges.append(i)
            least = ends
        least = min(least, ends)
    return [*edges, len(begin)] if begin else edges
