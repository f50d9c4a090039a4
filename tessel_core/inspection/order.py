"""Graph of the order of runs on the devices. It gives the slack of each run, and the savings by faster blocks.

A run waits for its predecessors and their lags, and for the preceding run on each of its devices. Memory needs no arcs:
the memory that a device holds depends only on the order of its runs, not on their times.
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

_MAX_PATH_LENGTHS = 16_000_000
"""Largest number of path lengths in memory (runs x columns), which take 128 MB."""

Ticks = TypeVar("Ticks", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class OrderGraph:
    """Arcs between the runs (rows) of a schedule: run `late` starts at least `ticks` after run `early` ends."""

    schedule: Schedule
    early: IntColumn
    late: IntColumn
    ticks: IntColumn

    @classmethod
    def of(cls, schedule: Schedule) -> OrderGraph:
        """Build the graph of a schedule that keeps the rules. Raises ValueError if runs are missing or repeated."""
        number, runs = numbers_of(schedule), len(schedule.start)
        arcs = schedule.plan.arcs
        waits = [(number[:, before], number[:, after], np.full(len(number), lag)) for before, after, lag in arcs]
        turns = [rows[1:] * runs + rows[:-1] for rows in map(schedule.runs_on, range(len(schedule.plan.devices)))]
        late, early = np.divmod(points_of(*turns), max(1, runs))
        waits.append((early, late, np.zeros_like(early)))
        return cls(schedule, *(np.concatenate(each) for each in zip(*waits, strict=True)))

    @cached_property
    def slack(self) -> IntColumn:
        """Ticks by which each run could start later in this order without a longer schedule."""
        start, end = self.schedule.start, self.schedule.end
        back = _Sweep.of(-end, -start, (self.late, self.early, self.ticks))
        rest = np.empty_like(start)
        rest[back.order] = back.longest_paths(self.schedule.duration[back.order, None])[:-1, 0]
        slack: IntColumn = self.schedule.makespan - rest - start
        return slack

    @property
    def makespan(self) -> int:
        """Makespan of this order in ticks. It is less than that of the schedule if runs start later than necessary."""
        return self._makespans(self._durations[:, None])[0]

    def makespans(self, lasting: NDArray[Ticks]) -> NDArray[Ticks]:
        """Return the makespan of this order for each column of durations `lasting`, shaped (runs, columns), in ticks.

        Runs keep their order on each device, and start as early as the order, dependencies and lags allow.
        """
        needed: NDArray[Ticks] = self._forward.longest_paths(lasting).max(axis=0)
        return needed

    @cached_property
    def _forward(self) -> _Sweep:
        """Sweep from the first run to the last. The runs of a schedule are already in order of start."""
        return _Sweep.of(self.schedule.start, self.schedule.end, (self.early, self.late, self.ticks))

    def savings(self, faster: Fraction = Fraction(1, 10)) -> tuple[Fraction, ...]:
        """Return for each block by how many ticks `makespan` falls if all runs of the block are shorter by `faster`.

        Each value is exact: the makespan is computed again for each block.
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
        """Return the makespan for each column of durations, shaped (blocks, columns), with lags times `scale`."""
        scaled = replace(self, ticks=self.ticks * scale)
        width = max(1, _MAX_PATH_LENGTHS // max(1, len(self.schedule.start)))
        needed: list[int] = []
        for first in range(0, durations.shape[1], width):
            needed += scaled.makespans(durations[self.schedule.block, first : first + width]).tolist()
        return needed


@dataclass(frozen=True, slots=True, eq=False)
class _Sweep:
    """Runs in topological order, and the arcs into each of them.

    An arc (from, to, lag) leads from a run that ends before the other begins.  So runs that all begin before any of
    them ends have no arcs between them, and their times are computed together.
    """

    order: IntColumn
    source: IntColumn
    lag: IntColumn
    first: IntColumn
    """Position of the first arc into each run."""
    edges: list[int]
    """Positions at which groups of runs computed together begin, and the number of runs."""

    @classmethod
    def of(cls, begin: IntColumn, end: IntColumn, arcs: tuple[IntColumn, IntColumn, IntColumn]) -> _Sweep:
        """Build the sweep from begin and end of runs in ticks, and arcs as columns (from, to, lag)."""
        runs = len(begin)
        order = np.argsort(begin, kind="stable")
        place = np.empty(runs, dtype=np.int64)
        place[order] = np.arange(runs)
        # Every run also has an arc from a virtual source, the last position, whose path length stays 0.
        source = np.concatenate((place[arcs[0]], np.full(runs, runs)))
        target = np.concatenate((place[arcs[1]], np.arange(runs)))
        lag = np.concatenate((arcs[2], np.zeros(runs, dtype=np.int64)))
        by_target = np.argsort(target, kind="stable")
        first = np.searchsorted(target[by_target], np.arange(runs + 1))
        edges = _together(begin[order].tolist(), end[order].tolist())
        return cls(order, source[by_target], lag[by_target, None], first, edges)

    def longest_paths(self, lasting: NDArray[Ticks]) -> NDArray[Ticks]:
        """Return the longest path to the end of each run, shaped (runs + 1, columns), in ticks and in `order`.

        The last row is the 0 of the virtual source.  `lasting` holds the durations, shaped (runs, columns), in `order`.
        """
        lengths = np.zeros((len(lasting) + 1, lasting.shape[1]), dtype=lasting.dtype)
        for (here, there), (a, z) in zip(pairwise(self.edges), pairwise(self.first[self.edges].tolist()), strict=True):
            arrivals = lengths[self.source[a:z]]
            arrivals += self.lag[a:z]
            latest = np.maximum.reduceat(arrivals, self.first[here:there] - a)
            np.add(latest, lasting[here:there], out=lengths[here:there])
        return lengths


def _together(begin: list[int], end: list[int]) -> list[int]:
    """Return where groups begin: a group ends before the first run that begins after a run of the group has ended."""
    edges, least = [0], end[0] if end else 0
    for i, (begins, ends) in enumerate(zip(begin, end, strict=True)):
        if begins >= least:
            edges.append(i)
            least = ends
        least = min(least, ends)
    return [*edges, len(begin)] if begin else edges
