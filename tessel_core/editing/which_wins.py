"""Find the schedule with the shortest makespan, for one setting and over a grid of two parameters."""

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
"""Largest relative difference of makespans that count as equal, because plans round durations to ticks."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranking of compared pairs of plan and scheduler.  Pairs are indices in the comparison."""

    winners: tuple[int, ...]
    """Comparable pairs with the shortest makespan. Several winners are a tie. Empty if no schedule fits into memory."""
    makespan: int | None
    """Makespan of the winners."""
    second: int | None
    """Pair with the next makespan after the winners'."""
    ahead: Fraction | None
    """Lead of the winners, as a share of the makespan of `second`."""
    misfits: tuple[int, ...]
    """Pairs whose schedules exceed a memory capacity."""
    without: tuple[int, ...]
    """Pairs whose scheduler does not apply or found no schedule in time."""
    apart: tuple[int, ...]
    """Pairs that are not comparable: their micro-batches do different work, and their sample counts are unknown."""
    undecided: tuple[int, ...]
    """Pairs for which a longer search might find a shorter makespan than the winners."""


def comparable(comparison: Comparison, reference: int = 0) -> tuple[int, ...]:
    """Return the pairs whose makespans are comparable with that of `reference`.

    These are all pairs if all run the same samples, or else the pairs that do the same work as `reference`.
    """
    if comparison.per_sample:
        return tuple(range(len(comparison.pairs)))
    groups = alike([pair.micro_batches * sum(pair.plan.work) for pair in comparison.pairs])
    return tuple(sorted(next(group for group in groups if reference in group)))


def standing(answers: Sequence[Answer], rivals: Sequence[int]) -> Standing:
    """Rank the `rivals` by makespan.  Pairs without an answer yet are ignored."""
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
    """Return whether a longer search might find a schedule that wins.

    A bound that one search proves holds for all pairs of that plan.
    """
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
    """One axis of the grid: values of one field of `WhatIf`."""

    field: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, slider: Slider, most: int) -> Axis:
        """Return an axis with at most `most` stops of a slider."""
        return cls(slider.field, tuple(slider.stops[i] for i in slider.spread(most)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the grid, with the ranking for its two values."""

    column: int
    row: int
    standing: Standing | None
    complaint: str = ""
    """Reason why the pairs cannot have these values. Then `standing` is None."""


@dataclass(frozen=True, slots=True)
class WhichWins:
    """Grid over two parameters of `base`.  Each cell solves every pair again."""

    pairs: tuple[Question, ...]
    rivals: tuple[int, ...]
    base: WhatIf
    across: Axis
    down: Axis
    limit_s: float
    """Time limit of each search in seconds."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.across.values) * len(self.down.values)

    def at(self, column: int, row: int) -> WhatIf:
        """Return the changes of a cell. Positions outside the grid give the nearest cell."""
        columns, rows = self.across.values, self.down.values
        here = {self.across.field: columns[min(max(0, column), len(columns) - 1)]}
        return replace(self.base, **here, **{self.down.field: rows[min(max(0, row), len(rows) - 1)]})

    def find(self, what_if: WhatIf) -> tuple[int, int] | None:
        """Return (column, row) of the cell with exactly these changes. None if no cell has them."""
        places = ((column, row) for row in range(len(self.down.values)) for column in range(len(self.across.values)))
        return next((place for place in places if self.at(*place) == what_if), None)

    def solve(self, control: Control) -> tuple[Cell, ...]:
        """Solve the cells row by row and deliver each cell to `control`. A cell that was interrupted is left out."""
        cells = list[Cell]()
        for row in range(len(self.down.values)):
            for column in range(len(self.across.values)):
                cell = self._cell(column, row, control)
                if control.stopped:
                    return tuple(cells)
                cells.append(cell)
                control.deliver(cell)
        return tuple(cells)

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
