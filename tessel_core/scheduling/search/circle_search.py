"""Repetends of many micro-batches: windows of long list schedules, closed to circles and shortened.

A list schedule of many micro-batches settles into a rhythm of its own.  Any window of it, continued for ever, is an
order of runs on every device; its exact period follows (`kernels.cycles`), and so does whether it fits the memory.
The best windows are shortened by reversing neighbours on their critical circles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import cycle
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
    new_timing,
    no_circles,
    shorten_circles,
    time_runs,
    windows,
)
from tessel_core.scheduling.kernels.tables import tables_of
from tessel_core.scheduling.search.list_search import RULES, ListSearch
from tessel_core.scheduling.search.slices import SLICES_PER_SECOND, side_by_side

_MOST_COPIES = 56
"""Micro-batches of the largest windows: bounded list schedules were seen to settle into up to as many."""
_MOST_NODES = 6_000
"""Copies times blocks of the largest windows."""
_POSITIONS = 8
"""Windows of each size that are closed."""
_CLOSED_NODES = 200_000
"""Runs of all windows that are closed at a time: half a second."""
_VISITS_PER_SLICE = 300_000
"""Steps times runs of a circle that a core manages in about a fifth of a second."""
_ROUNDING = 4
"""Ticks above the ratio, itself a floating-point number, within which the exact period lies."""
_KEPT = 6
"""Windows that are shortened further."""
_LISTS = 6
"""Lines of list schedules, half of them built from the end."""
_FRESH_SLICES = 12
"""Slices after which the lists, evolved further, are asked for windows again."""


@dataclass(slots=True)
class _Candidate:
    """A repetend as circles, and how long it has not become shorter."""

    copies: int
    circles: Circles
    period: float
    idle_slices: int = 0

    @property
    def per_micro_batch(self) -> float:
        return self.period / self.copies


@dataclass
class CircleSearch:
    """The best repetends of any number of micro-batches, improved in slices.

    `order` is one of the plan's blocks in which one micro-batch alone fits; `bound` a period per micro-batch that none
    can beat.
    """

    plan: MicroBatchPlan
    order: Sequence[int]
    bound: Fraction
    effort: Effort
    best: Repetend | None = None
    _lists: list[ListSearch] = field(default_factory=list)
    _candidates: list[_Candidate] = field(default_factory=list)
    _slices: int = 0

    def __post_init__(self) -> None:
        self._tables = tables_of(self.plan, self.order)
        devices, blocks = len(self.plan.devices), len(self.plan.blocks)
        self._most_copies = max(2, min(_MOST_COPIES, _MOST_NODES // blocks))
        micro_batches = min(3 * devices + 2 * self._most_copies, max(8, 30_000 // blocks))
        rules = cycle(RULES)
        self._lists = [
            ListSearch(self.plan, self.order, micro_batches, next(rules), self.effort.seed + i, from_the_end=i % 2 == 1)
            for i in range(_LISTS)
        ]

    @property
    def done(self) -> bool:
        return self.best is not None and self.best.period_per_micro_batch <= self.bound

    def advance(self, seconds: float, control: Control) -> Repetend | None:
        """Improve for about so many seconds; the best repetend so far."""
        part = control if self.effort.repeatable else control.part(seconds)
        slices = max(1, ceil(seconds * SLICES_PER_SECOND))
        while not part.stopped and not self.done and (slices > 0 or not self.effort.repeatable):
            slices -= 1
            going = self._fresh(control) if self._slices % _FRESH_SLICES == 0 else self._shorten(control)
            self._slices += 1
            if not going:
                return self.best
            self._settle()
        return self.best

    def _fresh(self, control: Control) -> bool:
        """Evolve the lists and close windows of the best ones."""
        workers = self.effort.workers
        for first in range(0, len(self._lists), workers):
            team = self._lists[first : first + workers]
            if not side_by_side([each.evolve for each in team], control):
                return False
        best = sorted((each for each in self._lists if each.makespan > 0), key=lambda each: each.makespan)[:2]
        found: list[list[_Candidate]] = [[] for _ in best]
        tasks = [partial(self._close, each.starts, into) for each, into in zip(best, found, strict=True)]
        if not side_by_side(tasks, control):
            return False
        pool = sorted([*self._candidates, *(each for some in found for each in some)], key=_short_and_small)
        self._candidates = _distinct(pool)[:_KEPT]
        return True

    def _close(self, starts: IntColumn, candidates: list[_Candidate]) -> None:
        """Add the best windows, of sizes that differ, of the middle of a schedule."""
        trim = min(len(self.plan.devices), len(starts) // 4)
        middle = np.ascontiguousarray(starts[trim : len(starts) - trim // 2])
        most = min(self._most_copies, len(middle) - 2)
        if most < 1:
            return
        sizes = _spread(most, _CLOSED_NODES // (_POSITIONS * len(self.plan.blocks)))
        stride = max(1, (len(middle) - most - 1) // _POSITIONS)
        found = np.full((len(sizes), _POSITIONS), np.inf)
        windows(self._tables, middle, sizes, stride, found)
        self._close_whole(starts, candidates)
        for i in np.argsort(found.min(axis=1))[:_KEPT]:
            if not np.isfinite(found[i].min()):
                continue
            copies, first = int(sizes[i]), int(found[i].argmin()) * stride
            circles = no_circles(self._tables, copies)
            length = int((middle[first + copies] - middle[first]).max())
            close(self._tables, middle[first : first + copies], length, circles)
            candidates.append(_Candidate(copies, circles, float(found[i].min()) * copies))

    def _close_whole(self, starts: IntColumn, candidates: list[_Candidate]) -> None:
        """Add all of a schedule, over and over: never longer, and its end overlaps with its beginning.

        Where blocks run far ahead of others (embeddings that hold nothing), no window of the middle repeats.
        """
        circles = no_circles(self._tables, len(starts))
        length = int((starts + self._tables.duration).max())
        if close(self._tables, starts, length, circles):
            period, root = least_period(self._tables, circles, new_timing(self._tables, len(starts)))
            if root >= 0:
                candidates.append(_Candidate(len(starts), circles, period))

    def _shorten(self, control: Control) -> bool:
        """A slice of reversals on each of the most promising candidates."""
        if not self._candidates:
            return True
        fresh = sorted(self._candidates, key=lambda c: (c.idle_slices // 4, c.per_micro_batch))
        team = fresh[: self.effort.workers]
        return side_by_side([partial(self._improve, each) for each in team], control)

    def _improve(self, candidate: _Candidate) -> None:
        runs = candidate.copies * len(self.plan.blocks)
        steps = max(1, _VISITS_PER_SLICE // max(runs, 50))
        seed = (self.effort.seed + self._slices * 7919 + candidate.copies) % 2**31
        least = float(self.bound * candidate.copies)
        found = shorten_circles(self._tables, candidate.circles, candidate.copies, least, steps, steps, seed)
        candidate.idle_slices = 0 if found < candidate.period * (1 - 1e-9) else candidate.idle_slices + 1
        candidate.period = min(found, candidate.period)

    def _settle(self) -> None:
        """Time the best candidate exactly where it beats what is known."""
        least = None if self.best is None else float(self.best.period_per_micro_batch)
        for candidate in sorted(self._candidates, key=_short_and_small)[:1]:
            if least is not None and ceil(candidate.period * (1 - 1e-9)) / candidate.copies >= least:
                continue
            found = self._timed(candidate)
            if found is not None and (
                self.best is None or found.period_per_micro_batch < self.best.period_per_micro_batch
            ):
                self.best = found

    def _timed(self, candidate: _Candidate) -> Repetend | None:
        """The candidate in ticks: the least whole period from the greatest ratio on that its circles allow."""
        timing = new_timing(self._tables, candidate.copies)
        ratio, root = least_period(self._tables, candidate.circles, timing)
        if root < 0:
            return None
        blocks = len(self.plan.blocks)
        starts = np.zeros(candidate.copies * blocks, dtype=np.int64)
        period = max(ceil(self.bound * candidate.copies), ceil(ratio * (1 - 1e-12)))
        for longer in range(_ROUNDING):
            if time_runs(self._tables, candidate.circles, timing.head, period + longer, starts):
                return Repetend(self.plan, period + longer, starts.reshape(candidate.copies, blocks))
        return None


def _spread(most: int, budget: int) -> IntColumn:
    """Sizes from 1 to `most`, all of them or ever fewer until they sum to `budget` at most."""
    for step in range(1, most + 1):
        sizes = np.arange(1, most + 1, step, dtype=np.int64)
        if sizes.sum() <= budget:
            return sizes
    return np.array([1], dtype=np.int64)


def _short_and_small(candidate: _Candidate) -> tuple[float, int]:
    """The least period first; of those that differ by rounding only, the one of the fewest micro-batches."""
    return float(f"{candidate.per_micro_batch:.9g}"), candidate.copies


def _distinct(candidates: list[_Candidate]) -> list[_Candidate]:
    """The first of each number of copies."""
    found: dict[int, _Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.copies, candidate)
    return list(found.values())
