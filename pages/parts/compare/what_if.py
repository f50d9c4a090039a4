"""What if: sliders that change the compared plans, the winner at their values, and a map of winners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.parts.compare.state import ALL, BUILT, WhatIfState
from pages.parts.compare.views import picture_of
from pages.parts.compare.what_if_widgets import map_widget, sliders_widget
from pages.shared.address import keep_address
from pages.shared.comparing import change, known_answer, solve
from pages.shared.run_panel import answer, start_search, watch_parts
from pages.shared.session import session, unbroken, workspace
from pages.shared.timeline.component import small_timeline
from pages.shared.widgets import button, choose, complain, complaining, literal
from tessel_core.charts.timeline import Titled
from tessel_core.editing.what_if import WhatIf, at_once, settled, sliders
from tessel_core.editing.which_wins import Axis, Cell, Standing, WhichWins, comparable, standing
from tessel_core.errors import InputError
from tessel_core.scheduling import BASELINES, Answer, Comparison, Question
from tessel_core.workbench.messages.what_if import left_out_note, standing_notes, waiting_note, winner_line

_COLUMNS, _ROWS = 7, 6
_MAP_PIXELS, _LINE_PIXELS, _NOTES_PIXELS = 380, 56, 104
"""Fixed heights of containers, so that changing content moves nothing below them."""
_CELL_S, _MAX_SEARCHES_INCLUDED_AT_FIRST = 2.0, 2
_FIRST_CELLS_S, _QUICK_S, _WAITED_S = 0.3, 0.1, 0.2
"""A search that took less than `_QUICK_S` is repeated while a slider moves, and the page waits `_WAITED_S` for it."""


def what_if(chosen: Sequence[int], reference: int) -> None:
    """Show *What if* for the chosen pairs, or for all pairs if none is chosen.

    Only pairs comparable with the reference can win.
    """
    everything = workspace().comparison
    asked = _asked(everything, chosen)
    comparison = everything.only(asked)
    if not asked:
        st.info(
            "Schedules changed by hand cannot be solved again. Add a scheduler to the list.", icon=":material/pan_tool:"
        )
        return
    left_out = [i for i in chosen or range(len(everything.pairs)) if i not in asked]
    if left_out:
        st.caption(literal(left_out_note(everything.labels(), left_out)))
    pair = everything.pairs[reference]
    at = comparison.pairs.index(pair) if pair in comparison.pairs else 0
    st.fragment(_what_if)(comparison, comparable(comparison, at))


def _asked(everything: Comparison, chosen: Sequence[int] = ()) -> list[int]:
    """Return the positions of the chosen pairs, or of all pairs.

    Schedules made by hand are left out, because they fit only their own plan.
    """
    pairs = everything.pairs
    return [i for i in (chosen or range(len(pairs))) if isinstance(pairs[i], Question)]


def _questions(comparison: Comparison) -> tuple[Question, ...]:
    """Return the pairs of a comparison, except schedules made by hand."""
    return tuple(pair for pair in comparison.pairs if isinstance(pair, Question))


def _what_if(comparison: Comparison, rivals: tuple[int, ...]) -> None:
    state, pairs = session().of(WhatIfState), _questions(comparison)
    devices = [each.name for each in pairs[0].plan.devices]
    state.values = settled(pairs, state.values)
    before, state.drawn = state.drawn, state.values
    if before not in (None, state.values):  # this fragment runs alone; only a run of the whole page writes the address
        keep_address()
    shown, state.opened = sliders(pairs, state.values.device), False
    left, right = st.columns([4, 5], gap="medium")
    with left:
        moving = st.container()
        winner = st.container(height=_LINE_PIXELS, border=False)
        actions = st.container(horizontal=True)
        remarks = st.container(height=_NOTES_PIXELS, border=False)
    with right:
        _map(comparison, rivals)
    try:
        now = state.values.comparison(comparison)
    except InputError as error:
        with moving:
            sliders_widget(shown, state.values, devices, (state.serial, state.turn), _moved, rests=False)
        complain(error)
        return
    answers = _answers(comparison, now)
    waiting = [i for i, each in enumerate(answers) if each is None]
    with moving:
        rests = bool(waiting) and not state.resting
        sliders_widget(shown, state.values, devices, (state.serial, state.turn), _moved, rests=rests)
    found = standing([each or Answer() for each in answers], rivals)
    labels, notes = comparison.labels(), list(standing_notes(comparison, found))
    if waiting:
        notes.insert(0, waiting_note(labels, waiting, begun=state.resting))
    line = winner_line(labels, found, pairs[0].plan.time_unit, so_far=bool(waiting))
    winner.markdown(f"**{literal(line)}**")
    remarks.caption("  \n".join(map(literal, notes)))
    with actions:
        _actions(comparison)
    _timelines(comparison, answers, found)
    if state.resting and now != comparison:
        solve([_questions(now)[i] for i in waiting])


def _moved(values: WhatIf, serial: int, turn: int, rests: bool) -> None:
    state = session().of(WhatIfState)
    state.serial = serial
    if turn == state.turn:
        state.values, state.resting = values, rests


def _answers(comparison: Comparison, now: Comparison) -> list[Answer | None]:
    """Return the answer to each changed pair. An answer is None if it still needs a search."""
    state, pairs, found = session().of(WhatIfState), _questions(now), list[Answer | None]()
    quick = at_once(pairs)
    for run in map(answer, set(state.asked) - {*pairs, *comparison.pairs}):
        if run is not None and run.running:
            run.cancel()
    state.before = {pair: each for pair, each in state.before.items() if pair in comparison.pairs}
    state.asked = tuple(pair for pair in pairs if pair not in quick)
    for was, pair in zip(_questions(comparison), pairs, strict=True):
        each = Answer.to(pair) if pair in quick else known_answer(pair)
        if each == Answer() and _follows(state.before.get(was)):
            start_search(pair).wait(_WAITED_S)
            each = known_answer(pair)
        found.append(None if each == Answer() else each)
        if each != Answer():
            state.before[was] = each
    return found


def _follows(before: Answer | None) -> bool:
    """Return whether the last search of a pair was quick enough to be repeated while a slider moves."""
    report = None if before is None else before.report
    return report is not None and report.solver not in BASELINES and report.wall_s < _QUICK_S


def _actions(comparison: Comparison) -> None:
    """Show the buttons that reset the sliders and that apply them to the compared plans."""
    state = session().of(WhatIfState)
    off = state.values == WhatIf(device=state.values.device)
    st.button("Reset sliders", icon=":material/restart_alt:", type="tertiary", disabled=off, on_click=_reset)
    if button("Apply to the list", icon=":material/table_rows:", type="tertiary", disabled=off, help=_PUT):
        everything = workspace().comparison.only(_asked(workspace().comparison))
        with complaining():
            change(state.values.of_whole(comparison, everything).comparison(everything))
            _reset()
            st.rerun()


_PUT = (
    "Change all plans in the list as the sliders say, for the table and every view. This drops schedules changed by "
    "hand. Undo restores the list."
)


@unbroken
def _reset() -> None:
    _set(WhatIf(device=session().of(WhatIfState).values.device))


def _set(values: WhatIf) -> None:
    """Set the sliders. A message that they sent before this is ignored."""
    state = session().of(WhatIfState)
    state.values, state.resting, state.turn = values, True, state.turn + 1


def _timelines(comparison: Comparison, answers: Sequence[Answer | None], found: Standing) -> None:
    """Show every schedule. A schedule that still needs a search is shown pale, as it was before."""
    state, shown, past = session().of(WhatIfState), list[Titled](), list[int]()
    for i, (label, pair, each) in enumerate(zip(comparison.labels(), _questions(comparison), answers, strict=True)):
        drawn = each or state.before.get(pair, Answer())
        if drawn.report is None or drawn.report.drawable is None:
            continue
        if each is None:
            past.append(len(shown))
        ends = "wins" if found.winners == (i,) else "ties" if i in found.winners else ""
        title = [label, "as before" if each is None else ends]
        shown.append((" · ".join(filter(None, title)), drawn.report.drawable))
    if shown and not small_timeline(tuple(shown), "what-if-timeline", past=past):
        picture_of(tuple(shown), memory=False)


def _map(comparison: Comparison, rivals: tuple[int, ...]) -> None:
    """Show the choice of the map's axes, the button that computes the map, and its cells so far."""
    state, shown = session().of(WhatIfState), sliders(_questions(comparison), session().of(WhatIfState).values.device)
    titles = {each.field: each.title for each in shown}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        linked = state.map_asked.split(".") if state.map is None and state.map_asked else []
        first, second, kinds = linked or ("micro_batches", "capacity", "")
        across = choose("Across", titles, first, key="what-if-across", width=150)
        others = {field: title for field, title in titles.items() if field != across}
        down = choose("Down", others, second, key=f"what-if-down-{across}", width=150)
        searched = sum(1 for pair in comparison.pairs if pair.scheduler not in BASELINES)
        look: dict[str, Any] = {
            "help": f"Also run the searches, with {_CELL_S:g} s for each search in each cell.",
            "disabled": not searched,
        }
        on = (
            kinds == ALL
            if kinds
            else 0 < searched <= _MAX_SEARCHES_INCLUDED_AT_FIRST or searched == len(comparison.pairs)
        )
        searches = st.toggle("Include searches", on, key=f"what-if-searches-{searched}", **look)
        some = searches or searched < len(comparison.pairs)
        press = button("Solve the map", icon=":material/grid_on:", type="primary", disabled=not some)
    if press or (linked and some):
        _solve(comparison, rivals, across, down, searches=searches)
    of, run = state.map, answer(state.map)
    with st.container(height=_MAP_PIXELS, border=False):
        if of is None or run is None or state.map_of != (comparison.pairs, rivals):
            st.caption("Each cell is solved separately. Click a cell to set the sliders to its values.")
        else:
            watch_parts(run, of.cells, "cells", lambda cells: _cells(comparison, of, cells, running=run.running))


def _solve(comparison: Comparison, rivals: tuple[int, ...], across: str, down: str, *, searches: bool) -> None:
    state = session().of(WhatIfState)
    former = answer(state.map)
    if former is not None:
        former.cancel()
    chosen = [i for i, pair in enumerate(comparison.pairs) if searches or pair.scheduler in BASELINES]
    of = {each.field: each for each in sliders(_questions(comparison), state.values.device)}
    sides = Axis.of(of[across], _COLUMNS), Axis.of(of[down], _ROWS)
    left = tuple(n for n, i in enumerate(chosen) if i in rivals)
    state.map = WhichWins(_questions(comparison.only(chosen)), left, state.values, *sides, _CELL_S)
    state.map_of, state.map_asked = (_questions(comparison), rivals), f"{across}.{down}.{ALL if searches else BUILT}"
    start_search(state.map).wait(_FIRST_CELLS_S)


def _cells(comparison: Comparison, of: WhichWins, cells: Sequence[Cell], *, running: bool) -> None:
    state = session().of(WhatIfState)
    if running and state.opened:
        st.rerun()  # the sliders are outside the fragment that redraws the cells
    part = comparison.only([comparison.pairs.index(pair) for pair in of.pairs])
    map_widget(part, sliders(_questions(comparison), of.base.device), of, cells, of.find(state.values), _open)


def _open(column: int, row: int) -> None:
    state = session().of(WhatIfState)
    assert state.map is not None
    _set(state.map.at(column, row))
    state.opened = True
