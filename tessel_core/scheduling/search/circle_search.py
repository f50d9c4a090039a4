"""Search for repetends of any number of micro-batches, as circular orders of runs on each device ("circles").

There are three sources of candidates. *Timetables* (`kernels.timetables`) give each block of a few micro-batches a
fixed time within the period. They fit into little more than the busiest device's work if memory is not tight. *Windows*
are parts of a list schedule of many micro-batches, which may need less memory. Any window can be repeated for ever.
Whole list schedules can be repeated too.

To *close* a window or schedule means to make circles of it. `kernels.cycles` computes their exact period and memory.
Tabu search shortens the circles, and the worse half of them is dropped after each round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import chain
from math import ceil

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.cycles import (
    Circles,
    close,
    least_period,
    no_circles,
    shorten_circles,
    time_runs,
    timing_of,
    windows,
)
from tessel_core.scheduling.kernels.tables import tables_of
from tessel_core.scheduling.kernels.timetables import fit_period
from tessel_core.scheduling.search.list_search import ListSearch, lists_by_every_rule
from tessel_core.scheduling.search.slices import SLICES_PER_SECOND, side_by_side

_WINDOW_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56)
"""Numbers of micro-batches in a window. Some list schedules with limited memory only repeat after 56 micro-batches."""
_TIMETABLE_SIZES = (1, 2, 3, 4)
"""Numbers of micro-batches in a timetable."""
_PERIOD_EXCESSES = (0.0, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6, 1.0)
"""Fractions of the bound by which the period of a timetable may exceed it. They are tried in order until one fits."""
_FIRST_PATIENCE_RUNS = 50_000
"""The first attempt at a timetable ends after placing this many runs without progress, in under 0.1 seconds."""
_PATIENCE_FACTOR, _MAX_PATIENCE_GROWTHS = 4, 3
"""Each later attempt lasts four times as long as the one before. After three such steps, the length stays the same."""
_MAX_EXCESS_RUNS = 3
"""A later attempt is made only if the last one exceeded memory by at most the memory of this many runs."""
_MAX_WINDOW_RUNS = 6_000
"""Largest number of runs (micro-batches times blocks) in a window."""
_MAX_LIST_RUNS = 120_000
"""Largest number of runs in a list schedule from which windows are taken.

A schedule closed as a whole has twice as many.
"""
_CLOSED_LISTS = 4
"""Windows are taken from this many of the shortest list schedules."""
_MAX_WHOLE_MICRO_BATCHES, _EVOLVED_RUNS = 500, 1_000_000
"""Largest number of micro-batches in a schedule that is closed as a whole, and number of runs placed to shorten it."""
_WINDOWS_PER_SIZE = 4
"""Number of windows per size and schedule."""
_RUNS_PER_SLICE = 100_000
"""Tabu steps times runs per slice: a core does about this many in a tenth of a second."""
_MAX_ROUNDING_TICKS = 4
"""The exact period exceeds the cycle ratio, a floating-point number, by at most this many ticks."""
_CANDIDATES_PER_SIZE, _SURVIVING_CANDIDATES = 2, 3
"""Number of candidates per size that are shortened, and number of candidates that always remain."""
_MAX_STALLED_SLICES = 8
"""Drop a candidate after this many slices without improvement."""


@dataclass(slots=True)
class _Candidate:
    """A repetend of `copies` micro-batches as circles. `period` is its period in ticks, up to rounding.

    `idle_slices` counts the slices since it was last shortened.
    """

    copies: int
    circles: Circles
    period: float
    slices: int = 0
    idle_slices: int = 0


@dataclass
class CircleSearch:
    """A search for repetends of any number of micro-batches, in slices.

    `order` lists the blocks so that one micro-batch alone fits in memory. `bound` is a lower bound on the period per
    micro-batch. `best` is the best repetend. `kept` is the best with fewer than `micro_batches` in its period, so that
    it can repeat within a schedule.
    """

    plan: MicroBatchPlan
    order: Sequence[int]
    bound: Fraction
    effort: Effort
    micro_batches: int
    best: Repetend | None = None
    kept: Repetend | None = None
    _candidates: list[_Candidate] = field(default_factory=list)
    _excess: dict[tuple[int, int], int] = field(default_factory=dict)
    """Memory by which the last timetable exceeded the capacities, by (copies, period)."""
    _round_slices: int = 1
    _looks: int = 0

    def __post_init__(self) -> None:
        self._tables = tables_of(self.plan, self.order)
        devices, blocks = len(self.plan.devices), len(self.plan.blocks)
        exact = self.bound.denominator  # only multiples of this number of micro-batches meet the bound in whole ticks
        sizes = [
            size
            for size in sorted({*_WINDOW_SIZES, exact})
            if size <= max(2, min(_WINDOW_SIZES[-1], _MAX_WINDOW_RUNS // blocks))
        ]
        micro_batches = min(3 * devices + 2 * sizes[-1], max(8, _MAX_LIST_RUNS // blocks))
        self._sizes = np.array([size for size in sizes if size < micro_batches // 2], dtype=np.int64)
        self._lists = lists_by_every_rule(self.plan, self.order, micro_batches, self.effort.seed)

    @property
    def done(self) -> bool:
        """Whether `best` meets the bound, and so does `kept`.

        If a repetend at the bound has too many micro-batches for the schedule, `kept` need not meet it.
        """
        kept = self.kept is not None and self.kept.period_per_micro_batch <= self.bound
        return self._at_bound and (kept or not self._can_keep(self.bound.denominator))

    @property
    def _at_bound(self) -> bool:
        return self.best is not None and self.best.period_per_micro_batch <= self.bound

    def advance(self, seconds: float, control: Control) -> Repetend | None:
        """Search for about `seconds` seconds and return the best repetend so far."""
        part = control if self.effort.repeatable else control.part(seconds)
        slices = max(1, ceil(seconds * SLICES_PER_SECOND))
        while not part.stopped and not self.done and (slices > 0 or not self.effort.repeatable):
            slices -= 1
            if self._candidates:
                going = self._shorten(control)
            else:
                going = self._tabulate(control) and (self.done or self._look(control))
            if not going:
                break
            for candidates in (self._candidates, [each for each in self._candidates if self._can_keep(each.copies)]):
                if candidates:
                    self._settle(min(candidates, key=_short_and_small))
            if self._at_bound:
                self._candidates = [each for each in self._candidates if self._can_keep(each.copies)]
        return self.best

    def _can_keep(self, unroll: int) -> bool:
        return unroll < self.micro_batches

    def _tabulate(self, control: Control) -> bool:
        """Add timetables to the candidates, with few micro-batches first. Return False if the control stopped."""
        workers = self.effort.workers
        for first in range(0, len(_TIMETABLE_SIZES), workers):
            team = _TIMETABLE_SIZES[first : first + workers]
            found = side_by_side([partial(self._timetable, copies, control) for copies in team], workers, control)
            if found is None:
                return False
            for each in found:
                if each is not None:
                    self._candidates.append(each)
                    self._settle(each)
            if self.done:
                break
        return True

    def _timetable(self, copies: int, control: Control) -> _Candidate | None:
        """Return a timetable of `copies` micro-batches with the least period for which one is found, or None.

        Periods that are no shorter than that of the best repetend are not tried.
        """
        topological = np.array(self.plan.topological_order, dtype=np.int64)
        starts = np.zeros((copies, len(self.plan.blocks)), dtype=np.int64)
        circles = no_circles(self._tables, copies)
        patience = max(
            10, _FIRST_PATIENCE_RUNS * _PATIENCE_FACTOR ** min(self._looks, _MAX_PATIENCE_GROWTHS) // starts.size
        )
        for longer in _PERIOD_EXCESSES:
            period = ceil(self.bound * copies * (1 + Fraction(longer)))
            known = self.best is not None and self.best.period_per_micro_batch * copies <= period
            if control.stopped or known:
                return None
            if not 0 <= self._excess.get((copies, period), 0) <= _MAX_EXCESS_RUNS * self._tables.memory.max():
                continue
            seed = self.effort.seed + copies + 100 * self._looks
            excess = fit_period(self._tables, topological, period, starts, circles, patience, seed)
            self._excess[copies, period] = excess
            if excess == 0:
                return _Candidate(copies, circles, least_period(timing_of(self._tables, circles))[0])
        return None

    def _look(self, control: Control) -> bool:
        """Improve the list schedules, and close windows of the shortest ones. Return False if the control stopped.

        The first time, the list schedules follow the plain rules.
        """
        workers = self.effort.workers
        tasks = [each.evolve if self._looks else partial(each.restart, 2) for each in self._lists]
        if side_by_side(tasks, workers, control) is None:
            return False
        # Several rules may lead to the same schedule.
        distinct = {each.makespan: each for each in self._lists if each.makespan > 0}
        best = [distinct[makespan] for makespan in sorted(distinct)[:_CLOSED_LISTS]]
        found = side_by_side([partial(self._close, each.starts) for each in best], workers, control)
        if found is None:
            return False
        whole = (best[0].stretched(self._longest) if self._looks else None) or best[0]
        closed = side_by_side([partial(self._close_whole, whole.starts)], 1, control)
        if closed is None:
            return False
        self._looks, self._round_slices = self._looks + 1, 1
        of_a_size: dict[int, int] = defaultdict(int)
        for each in sorted(chain.from_iterable(found + closed), key=_short_and_small):
            of_a_size[each.copies] += 1
            if each.copies > self._sizes[-1]:
                self._settle(each)
            elif of_a_size[each.copies] <= _CANDIDATES_PER_SIZE:
                self._candidates.append(each)
        return True

    def _close(self, starts: IntColumn) -> list[_Candidate]:
        """Return one candidate per size: the best window of this size in the middle of a schedule."""
        trim = min(len(self.plan.devices), len(starts) // 4)
        middle = np.ascontiguousarray(starts[trim : len(starts) - trim // 2])
        sizes = self._sizes[self._sizes < len(middle) - 1]
        if not sizes.size:
            return []
        candidates = []
        stride = max(1, (len(middle) - int(sizes[-1]) - 1) // _WINDOWS_PER_SIZE)
        found = np.full((sizes.size, _WINDOWS_PER_SIZE), np.inf)
        windows(self._tables, middle, sizes, stride, found)
        for i, size in enumerate(sizes):
            if not np.isfinite(found[i].min()):
                continue
            copies, first = int(size), int(found[i].argmin()) * stride
            circles = no_circles(self._tables, copies)
            length = int((middle[first + copies] - middle[first]).max())
            close(self._tables, middle[first : first + copies], length, circles)
            candidates.append(_Candidate(copies, circles, float(found[i].min()) * copies))
        return candidates

    @property
    def _longest(self) -> int:
        return min(_MAX_WHOLE_MICRO_BATCHES, max(8, 2 * _MAX_LIST_RUNS // len(self.plan.blocks)))

    def _close_whole(self, starts: IntColumn) -> list[_Candidate]:
        """Return a candidate that repeats a whole schedule, or an empty list if that exceeds the memory.

        Its end overlaps with its beginning. It helps if some blocks run far ahead of others, such as embeddings without
        memory: then no window repeats.
        """
        circles = no_circles(self._tables, len(starts))
        length = int((starts + self._tables.duration).max())
        if not close(self._tables, starts, length, circles):
            period, root = least_period(timing_of(self._tables, circles))
            if root >= 0:
                return [_Candidate(len(starts), circles, period)]
        return []

    def close_long(self, lists: Sequence[ListSearch], control: Control) -> Repetend | None:
        """Build very long schedules by the rules of `lists` and of this search, and close the shortest.

        Return the best repetend so far.
        """
        workers = self.effort.workers
        tasks = [partial(each.stretched, self._longest) for each in (*lists, *self._lists)]
        stretched = side_by_side(tasks, workers, control) or []
        shortest = sorted((each for each in stretched if each), key=lambda each: each.makespan)[:workers]
        tries = _EVOLVED_RUNS // (self._longest * len(self.plan.blocks))
        if side_by_side([partial(each.evolve, tries) for each in shortest], workers, control) is not None:
            found = side_by_side([partial(self._close_whole, each.starts) for each in shortest], workers, control)
            for candidate in chain.from_iterable(found or []):
                self._settle(candidate)
        return self.best

    def _shorten(self, control: Control) -> bool:
        """Shorten the candidates that had the fewest slices. After each round, drop the worse half."""
        if all(each.slices >= self._round_slices for each in self._candidates):
            best = sorted(self._candidates, key=_short_and_small)
            self._candidates = best[: max(_SURVIVING_CANDIDATES, len(best) // 2)]
            self._round_slices *= 2
        team = sorted(self._candidates, key=lambda each: each.slices)[: self.effort.workers]
        if side_by_side([partial(self._improve, each) for each in team], len(team), control) is None:
            return False
        self._candidates = [each for each in self._candidates if each.idle_slices < _MAX_STALLED_SLICES]
        return True

    def _improve(self, candidate: _Candidate) -> None:
        runs = candidate.copies * len(self.plan.blocks)
        steps = max(1, _RUNS_PER_SLICE // max(runs, 50))
        seed = (self.effort.seed + candidate.slices * 7919 + candidate.copies) % 2**31
        least = float(self.bound * candidate.copies)
        found = shorten_circles(self._tables, candidate.circles, candidate.copies, least, steps, steps, seed)
        candidate.slices += 1
        candidate.idle_slices = 0 if found < candidate.period * (1 - 1e-9) else candidate.idle_slices + 1
        candidate.period = min(found, candidate.period)

    def _settle(self, candidate: _Candidate) -> None:
        """Compute the exact period of a candidate if it may improve `best` or `kept`, and update them."""
        keeps = self._can_keep(candidate.copies)
        known = self.kept if keeps else self.best
        if known is not None:
            least = float(known.period_per_micro_batch)
            if ceil(candidate.period * (1 - 1e-9)) / candidate.copies >= least:
                return
        found = self._timed(candidate)
        if found is None:
            return
        if keeps and (self.kept is None or found.period_per_micro_batch < self.kept.period_per_micro_batch):
            self.kept = found
        if self.best is None or found.period_per_micro_batch < self.best.period_per_micro_batch:
            self.best = found

    def _timed(self, candidate: _Candidate) -> Repetend | None:
        """Return the repetend with its least period in whole ticks, or None if the order contradicts itself."""
        timing = timing_of(self._tables, candidate.circles)
        ratio, root = least_period(timing)
        if root < 0:
            return None
        blocks = len(self.plan.blocks)
        starts = np.zeros(candidate.copies * blocks, dtype=np.int64)
        period = max(ceil(self.bound * candidate.copies), ceil(ratio * (1 - 1e-12)))
        for longer in range(_MAX_ROUNDING_TICKS):
            if time_runs(timing, period + longer, starts):
                return Repetend(self.plan, period + longer, starts.reshape(candidate.copies, blocks))
        return None


def _short_and_small(candidate: _Candidate) -> tuple[float, int]:
    """Return a sort key: the period per micro-batch to nine digits, then the number of micro-batches."""
    return float(f"{candidate.period / candidate.copies:.9g}"), candidate.copies
