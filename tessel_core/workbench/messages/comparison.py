"""Convert a comparison of schedules to columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.inspection import IdleSplit, Jittered
from tessel_core.scheduling.comparison import Row
from tessel_core.units import many, show_memory, time_scale
from tessel_core.workbench.messages.idle import MEANINGS

WHY_NOT = "Why not"
"""Heading of the last column. The table has this column only if some pair has no valid schedule."""

CHANCE = (
    "Share of random draws in which the schedule ends first (ties are split), among schedules that fit in memory and "
    "do equal work."
)
_TIME_PER = {
    "micro-batch": "Makespan / micro-batches, so warmup and cooldown are included.",
    "sample": "Makespan / samples. All pairs have the same number of samples.",
}

ROW_PIXELS, _MAX_LINES = 33, 11
"""Height of a row in pixels in the app, and number of lines, heading included, that a table shows without scrolling."""

Cell = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, with one value per pair of plan and scheduler."""

    heading: str
    help: str
    values: tuple[Cell, ...]
    format: str = ""
    """Format of the numbers, as in `format(value, ...)`. Empty for text."""
    brief: bool = True
    """Whether narrow tables show this column."""

    @property
    def printf(self) -> str:
        """Format of the numbers in printf's syntax."""
        return f"%{self.format}" if self.format else ""

    def shown(self, row: int) -> str:
        """Return the value in a row as text."""
        value = self.values[row]
        return "" if value is None else value if isinstance(value, str) else format(value, self.format)


def table_pixels(rows: int) -> int:
    """Return the height of a table in pixels.

    Rows after the tenth scroll. A fixed height keeps the elements below in place while the browser loads the table.
    """
    return min(rows + 1, _MAX_LINES) * ROW_PIXELS + 2


def comparison_columns(rows: Sequence[Row], time_unit: str) -> tuple[Column, ...]:
    """Return the columns.

    Columns whose values differ between pairs come first. Columns without any value are left out.
    """
    under = [row.jittered for row in rows]
    longest = max((row.makespan for row in rows if row.makespan is not None), default=1)
    spans = time_scale(longest, time_unit)
    what, each = rows[0].each, [row.time_each for row in rows]
    beats = time_scale(float(max((time for time in each if time is not None), default=1)), time_unit)
    ends, bounds = [row.makespan for row in rows], [row.makespan_bound for row in rows]
    periods, least = [row.period for row in rows], [row.period_bound for row in rows]
    found = (
        Column("Pair", "Scheduler and plan.", tuple(map(_name, rows))),
        Column("Outcome", "What was found, and what is proved optimal.", tuple(row.outcome for row in rows)),
        _times("Makespan", "Time from the first start to the last end, over all micro-batches.", ends, spans),
        _ratios(
            "Speed-up",
            "Makespan of the reference / makespan. Above 1 is faster.",
            [r.makespan_ratio for r in rows],
        ),
        _times("p50", "Under jitter, half of the draws end by this time.", _each(under, "p50"), spans),
        _times("p95", "Under jitter, 95 % of the draws end by this time.", _each(under, "p95"), spans),
        Column("Chance to win (%)", CHANCE, tuple(_percent(each) for each in _each(under, "chance")), ".1f"),
        _detail(_times("Makespan bound", "Proved: no schedule ends before this time.", bounds, spans)),
        replace(_times(f"Time per {what}", _TIME_PER[what], each, beats), brief=what == "sample"),
        replace(
            _times(
                "Least period", f"Least period found per {what}, even if the schedule does not keep it.", periods, beats
            ),
            brief=what != "sample",
        ),
        _detail(
            _ratios(
                "Period speed-up",
                "Period of the reference / period. Above 1 is faster.",
                [r.period_ratio for r in rows],
            )
        ),
        _detail(_times("Period bound", "Proved: no schedule has a shorter period.", least, beats)),
        _share("Idle", "idle", [row.idle for row in rows]),
        _detail(_share("Imbalance", "imbalance", [row.idle for row in rows])),
        _detail(_share("Bubble", "bubble", [row.idle for row in rows])),
        _detail(_share("Open", "open", [row.idle for row in rows])),
        _detail(_share("Steady idle", "idle", [row.steady_idle for row in rows])),
        _detail(_share("Steady bubble", "bubble", [row.steady_idle for row in rows])),
        Column("Peak memory", "Largest memory that any device holds.", tuple(map(_peak, rows))),
        _detail(Column("Took (s)", "Wall time of the search.", tuple(row.wall_s for row in rows), ".2f")),
        _detail(Column(WHY_NOT, "Why there is no valid schedule.", tuple(r.why_none for r in rows))),
    )
    shown = [column for column in found if any(value not in (None, "") for value in column.values)]
    return tuple(sorted(shown, key=lambda each: (not each.brief, len(set(each.values)) == 1 and each not in found[:2])))


def work_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return one sentence for each plan whose work differs from the reference's.

    The ratios in the table include that difference.
    """
    reference = next((row for row in rows if row.is_reference), None)
    if reference is None:
        return ()
    other = {row.plan: row.work / reference.work for row in rows if row.work != reference.work}
    return tuple(
        f"{plan} has {percent_of(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} work per {reference.each} than "
        f"{reference.plan}. Its ratios include this difference."
        for plan, ratio in other.items()
    )


def percent_of(share: Fraction) -> str:
    """Return a share in percent with three digits, or "less than 0.01 %"."""
    return "less than 0.01 %" if share < Fraction(1, 10_000) else f"{float(100 * share):.3g} %"


def _name(row: Row) -> str:
    return f"{row.label} (reference)" if row.is_reference else row.label


def _detail(column: Column) -> Column:
    return replace(column, brief=False)


def _each(jittered: Sequence[Jittered | None], what: str) -> list[float | None]:
    return [None if each is None else getattr(each, what) for each in jittered]


def _times(name: str, help: str, values: Sequence[Fraction | float | None], scale: tuple[float, str]) -> Column:
    divisor, unit = scale
    shown = tuple(None if value is None else float(value) / divisor for value in values)
    return Column(f"{name} ({many(unit)})", help, shown, ".4g")


def _ratios(name: str, help: str, values: Sequence[float | None]) -> Column:
    return Column(name, help, tuple(values), ".3f")


def _share(name: str, part: str, splits: Sequence[IdleSplit | None]) -> Column:
    shares = (None if split is None else getattr(split, part) for split in splits)
    return Column(f"{name} (%)", MEANINGS[part], tuple(map(_percent, shares)), ".1f")


def _percent(share: Fraction | float | None) -> float | None:
    return None if share is None else float(100 * share)


def _peak(row: Row) -> str | None:
    return None if row.peak is None or row.memory_unit is None else show_memory(row.peak, row.memory_unit)
