"""Describe the winning schedules of *What if*, in sentences and in cells of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tessel_core.editing.what_if import Slider
from tessel_core.editing.which_wins import Axis, Cell, Standing, WhichWins
from tessel_core.model import MicroBatchPlan
from tessel_core.scheduling import Comparison
from tessel_core.units import show_time
from tessel_core.workbench.messages.comparison import percent_of

_MAX_NAMED = 3
"""Number of pairs that a sentence names. Further ones are only counted."""


def winner_line(labels: Sequence[str], found: Standing, time_unit: str, *, so_far: bool = False) -> str:
    """Return the winner, its makespan, and its lead over the next schedule.

    With `so_far`, some schedules have no answer yet.
    """
    if found.makespan is None:
        return "No schedule fits." if found.misfits and not so_far else "No schedule that fits is known yet."
    names, length = [labels[i] for i in found.winners], show_time(found.makespan, time_unit)
    who = f"{names[0]} wins" if len(names) == 1 else f"{_listed(names)} tie"
    who += " so far" * so_far
    if found.second is None or found.ahead is None:
        alone = len(names) == 1 and found.misfits and not so_far
        return f"{who}: {length}" + (", the only one that fits." if alone else ".")
    return f"{who}: {length}, {percent_of(found.ahead)} before {labels[found.second]}."


def standing_notes(comparison: Comparison, found: Standing) -> tuple[str, ...]:
    """Return notes on schedules that do not compete, and on plans of unequal work.

    `comparison` has the plans before any slider moved.
    """
    labels, notes = comparison.labels(), list[str]()
    if found.misfits:
        notes.append(f"Does not fit in memory: {_names(labels, found.misfits)}.")
    if found.without:
        notes.append(f"Without a schedule: {_names(labels, found.without)}.")
    if found.apart:
        notes.append(f"Not compared, because a micro-batch has other work: {_names(labels, found.apart)}.")
    if found.undecided:
        notes.append(f"A longer search could change the winner: {_names(labels, found.undecided)}.")
    return (*notes, *_works(comparison, found))


def waiting_note(labels: Sequence[str], waiting: Sequence[int], *, begun: bool) -> str:
    """Return a note on schedules that have no answer yet for the sliders' values.

    Their search is running, or starts when the sliders stop moving.
    """
    if begun:
        return f"Searching: {_names(labels, waiting)}."
    return f"Pale, from earlier values, and searched again when the sliders stop: {_names(labels, waiting)}."


def left_out_note(labels: Sequence[str], made: Sequence[int]) -> str:
    """Return a note on schedules that were changed by hand. They do not follow the sliders."""
    return f"Left out, because a schedule changed by hand fits only its own plan: {_names(labels, made)}."


def _works(comparison: Comparison, found: Standing) -> list[str]:
    """Return a note for each compared plan whose work per sample differs from the winner's."""
    if not comparison.per_sample or not found.winners:
        return []
    first, *others = (
        comparison.pairs[i].plan for i in (*found.winners, *([] if found.second is None else [found.second]))
    )
    ratios = {each.name: _work(each) / _work(first) for each in others}
    return [
        f"{name} has {percent_of(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} work per sample than {first.name}, "
        "and the lead includes this."
        for name, ratio in ratios.items()
        if ratio != 1
    ]


def _work(plan: MicroBatchPlan) -> Fraction:
    return Fraction(sum(plan.work), plan.samples or 1)


def map_caption(shown: Sequence[Slider], of: WhichWins) -> str:
    """Return the caption of the map: the titles of its two axes, and the values of the other moved sliders."""
    titles = {each.field: each.title for each in shown}
    sides = f"{titles[of.across.field]} from left to right, {_inside(titles[of.down.field])} from top to bottom"
    others = [
        f"{_inside(each.title)} {each.texts[each.at(of.base)]}"
        for each in shown
        if each.at(of.base) != each.own and each.field not in (of.across.field, of.down.field)
    ]
    return "; everywhere ".join((sides, ", ".join(others))) if others else sides


def _inside(title: str) -> str:
    """Return a title with a small first letter, for use inside a sentence."""
    return title[:1].lower() + title[1:]


@dataclass(frozen=True, slots=True)
class CellText:
    """Text of one cell of the map."""

    who: str
    """Scheduler of the winner. Empty if no schedule wins."""
    how: str
    """Makespan of the winner. A question mark follows if a longer search could change the winner."""
    about: str
    """Full text for the tooltip."""


def side(shown: Sequence[Slider], axis: Axis) -> tuple[str, list[str]]:
    """Return the title of one axis of the map, and the text of each of its values."""
    slider = next(each for each in shown if each.field == axis.field)
    return slider.title, [slider.texts[slider.stops.index(value)] for value in axis.values]


def cell_text(comparison: Comparison, shown: Sequence[Slider], of: WhichWins, cell: Cell) -> CellText:
    """Return the text of a cell of the map. `comparison` has the plans before any slider moved."""
    found, pairs = cell.standing, comparison.pairs
    (across, columns), (down, rows) = (side(shown, axis) for axis in (of.across, of.down))
    place = f"{across} {columns[cell.column]}, {_inside(down)} {rows[cell.row]}"
    if found is None:
        return CellText("", "–", f"{place}: {cell.complaint}.")
    unit = pairs[0].plan.time_unit
    about = " ".join((f"{place}: {winner_line(comparison.labels(), found, unit)}", *standing_notes(comparison, found)))
    if found.makespan is None:
        return CellText("", "none fits", about)
    titles = list(dict.fromkeys(pairs[i].title for i in found.winners))
    who = titles[0] if len(found.winners) == 1 else "tie"
    return CellText(who, show_time(found.makespan, unit) + "?" * bool(found.undecided), about)


def _names(labels: Sequence[str], positions: Sequence[int]) -> str:
    return _listed([labels[i] for i in positions], most=_MAX_NAMED)


def _listed(names: Sequence[str], most: int = _MAX_NAMED) -> str:
    """Return names joined with "; " and "and". If there are more than `most` names, the last item counts the others."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return "; ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]
