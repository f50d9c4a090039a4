"""Which schedule wins, in sentences and in the cells of a map."""

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

_NAMED = 3
"""Pairs of which a sentence gives the names; of more it counts the others."""


def winner_line(labels: Sequence[str], found: Standing, time_unit: str, *, so_far: bool = False) -> str:
    """Who wins, with how long it takes and how much earlier it ends than the next; or that nobody does.

    `so_far`: others are not answered yet.
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
    """What the winner was not held against, and what its lead counts too; `comparison` is before any change."""
    labels, notes = comparison.labels(), list[str]()
    if found.misfits:
        notes.append(f"Out, since memory does not suffice: {_names(labels, found.misfits)}.")
    if found.without:
        notes.append(f"Without a schedule: {_names(labels, found.without)}.")
    if found.apart:
        notes.append(f"Not compared, since a micro-batch has other work: {_names(labels, found.apart)}.")
    if found.undecided:
        notes.append(f"A longer search could still change it: {_names(labels, found.undecided)}.")
    return (*notes, *_works(comparison, found))


def waiting_note(labels: Sequence[str], waiting: Sequence[int], *, begun: bool) -> str:
    """What is not answered at these values yet: it is searched, or will be once the sliders rest."""
    if begun:
        return f"Still searched: {_names(labels, waiting)}."
    return f"Pale, as before, and searched anew when the sliders rest: {_names(labels, waiting)}."


def left_out_note(labels: Sequence[str], made: Sequence[int]) -> str:
    """Which rows do not follow the sliders: a schedule that was made by hand has no other answer."""
    return f"Left out, because a schedule made by hand belongs to the plan as it is: {_names(labels, made)}."


def _works(comparison: Comparison, found: Standing) -> list[str]:
    """A line on each plan that the sentence holds against the winner's and that does other work per sample."""
    if not comparison.per_sample or not found.winners:
        return []
    first, *others = (
        comparison.pairs[i].plan for i in (*found.winners, *([] if found.second is None else [found.second]))
    )
    ratios = {each.name: _work(each) / _work(first) for each in others}
    return [
        f"{name} has {percent_of(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} work per sample than {first.name}, "
        "which counts too."
        for name, ratio in ratios.items()
        if ratio != 1
    ]


def _work(plan: MicroBatchPlan) -> Fraction:
    return Fraction(sum(plan.work), plan.samples or 1)


def map_caption(shown: Sequence[Slider], of: WhichWins) -> str:
    """What its two sides are, and what else is other than the plans say."""
    titles = {each.field: each.title for each in shown}
    sides = f"{titles[of.across.field]} from left to right, {_inside(titles[of.down.field])} from top to bottom"
    others = [
        f"{_inside(each.title)} {each.texts[each.at(of.base)]}"
        for each in shown
        if each.at(of.base) != each.own and each.field not in (of.across.field, of.down.field)
    ]
    return "; everywhere ".join((sides, ", ".join(others))) if others else sides


def _inside(title: str) -> str:
    """A title within a sentence."""
    return title[:1].lower() + title[1:]


@dataclass(frozen=True, slots=True)
class CellText:
    """A cell of the map as people read it."""

    who: str
    """The winner by its scheduler; empty where nobody wins."""
    how: str
    """How long it takes, with a question mark where a longer search could change it."""
    about: str


def side(shown: Sequence[Slider], axis: Axis) -> tuple[str, list[str]]:
    """The title of one side of the map, and what its values mean."""
    slider = next(each for each in shown if each.field == axis.field)
    return slider.title, [slider.texts[slider.stops.index(value)] for value in axis.values]


def cell_text(comparison: Comparison, shown: Sequence[Slider], of: WhichWins, cell: Cell) -> CellText:
    """What stands in a cell of the map; `comparison` is before any change."""
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
    return _listed([labels[i] for i in positions], most=_NAMED)


def _listed(names: Sequence[str], most: int = _NAMED) -> str:
    """Names with "and" before the last; beyond so many they are counted."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return "; ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]
