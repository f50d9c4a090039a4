"""Which schedule wins, at one place and over a map of two changes, each cell of which is solved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from tessel_core.control import Control
from tessel_core.editing.what_if import Slider, WhatIf
from tessel_core.errors import InputError
from tessel_core.inspection.jitter import alike
from tessel_core.model import ScheduleReport, Status
from tessel_core.scheduling import BASELINES, Answer, Comparison, Question
from tessel_core.scheduling.comparison import Pair

_TIE = 1e-6
"""Makespans that differ by less, relatively, are a tie: plans round durations to ticks."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Who ends first, pairs by position."""

    winners: tuple[int, ...]
    """Of those that fit and are comparable; several are a tie, none has a schedule that fits."""
    makespan: int | None
    second: int | None
    """The first of those that end after the winners."""
    ahead: Fraction | None
    """Share of the second's makespan by which the winners end earlier."""
    misfits: tuple[int, ...]
    """Those whose schedules exceed a capacity."""
    without: tuple[int, ...]
    """Those that do not apply, or of which none was found in time."""
    apart: tuple[int, ...]
    """Those that are not comparable: their micro-batches have other work, and nothing says of how many samples."""
    undecided: tuple[int, ...]
    """Those of which a longer search might still find a schedule that wins alone."""


def comparable(comparison: Comparison, reference: int = 0) -> tuple[int, ...]:
    """Pairs whose makespans are one question: all where all run the same samples, else those that do the same work."""
    if comparison.per_sample:
        return tuple(range(len(comparison.pairs)))
    groups = alike([pair.micro_batches * sum(pair.plan.work) for pair in comparison.pairs])
    return tuple(sorted(next(group for group in groups if reference in group)))


def standing(answers: Sequence[Answer], rivals: Sequence[int]) -> Standing:
    """Who ends first of the `rivals`; pairs without any answer yet count for nothing."""
    reports = {i: answers[i].report for i in rivals}
    ends = {i: each.makespan or 0 for i, each in reports.items() if each is not None and each.solution is not None}
    least = min(ends.values(), default=None)
    winners = tuple(i for i, end in ends.items() if least is not None and end <= least * (1 + _TIE))
    second = min((i for i in ends if i not in winners), key=ends.__getitem__, default=None)
    misfits = tuple(i for i, each in reports.items() if each is not None and each.status is Status.INFEASIBLE)
    return Standing(
        winners=winners,
        makespan=least,
        second=second,
        ahead=None if second is None or least is None else 1 - Fraction(least, ends[second]),
        misfits=misfits,
        without=tuple(i for i in rivals if i not in ends and i not in misfits and answers[i].why_none),
        apart=tuple(i for i in range(len(answers)) if i not in rivals),
        undecided=tuple(
            i for i, each in reports.items() if i not in winners and _undecided(each, least, reports.values())
        ),
    )


def _undecided(report: ScheduleReport | None, least: int | None, reports: Iterable[ScheduleReport | None]) -> bool:
    """Whether more search might win; what is proved of a plan holds for every search of it."""
    if report is None or report.solver in BASELINES or report.status in (Status.PROVED_OPTIMAL, Status.INFEASIBLE):
        return False
    if least is None or report.drawable is None:
        return True
    plan, known = report.drawable.plan, [each for each in reports if each is not None]
    return (
        max(each.makespan_bound for each in known if each.drawable is not None and each.drawable.plan == plan) < least
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one field of `WhatIf` along a side of the map."""

    field: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, slider: Slider, most: int) -> Axis:
        """Up to so many stops of a slider."""
        return cls(slider.field, tuple(slider.stops[i] for i in slider.spread(most)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the map."""

    column: int
    row: int
    standing: Standing | None
    complaint: str = ""
    """Why the pairs cannot be so; there is no standing then."""


@dataclass(frozen=True, slots=True)
class WhichWins:
    """The map: at each place two things are other than `base` says, and every pair is timed or searched anew."""

    pairs: tuple[Question, ...]
    rivals: tuple[int, ...]
    base: WhatIf
    across: Axis
    down: Axis
    limit_s: float
    """Seconds that each search may take at most."""

    @property
    def cells(self) -> int:
        """How many there are to solve."""
        return len(self.across.values) * len(self.down.values)

    def at(self, column: int, row: int) -> WhatIf:
        """What is other there; the nearest cell for a place beside the map."""
        columns, rows = self.across.values, self.down.values
        here = {self.across.field: columns[min(max(0, column), len(columns) - 1)]}
        return replace(self.base, **here, **{self.down.field: rows[min(max(0, row), len(rows) - 1)]})

    def find(self, what_if: WhatIf) -> tuple[int, int] | None:
        """The column and the row where just this is other; None where it is in no cell."""
        places = ((column, row) for row in range(len(self.down.values)) for column in range(len(self.across.values)))
        return next((place for place in places if self.at(*place) == what_if), None)

    def solve(self, control: Control) -> tuple[Cell, ...]:
        """All cells, row by row; each is delivered as soon as it is there, and none that was not solved whole."""
        found = list[Cell]()
        for row in range(len(self.down.values)):
            for column in range(len(self.across.values)):
                cell = self._cell(column, row, control)
                if control.stopped:
                    return tuple(found)
                found.append(cell)
                control.deliver(cell)
        return tuple(found)

    def _cell(self, column: int, row: int, control: Control) -> Cell:
        try:
            changed = self.at(column, row).comparison(Comparison(self.pairs))
        except InputError as error:
            return Cell(column, row, None, str(error))
        answers = [
            Answer() if control.stopped else Answer.to(self._limited(pair), control.quiet()) for pair in changed.pairs
        ]
        return Cell(column, row, standing(answers, self.rivals))

    def _limited(self, pair: Pair) -> Pair:
        if not isinstance(pair, Question):
            return pair
        own = getattr(pair.config, "time_limit", None)
        return pair if own is None else replace(pair, config=replace(pair.config, time_limit=min(self.limit_s, own)))
