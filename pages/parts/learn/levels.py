"""The list of levels, the open level, and what all levels show: hints, verdicts, and searches in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from pages.shared.learn_state import DECK, OWN_SLIDES, WORDS, LearnState
from pages.shared.run_panel import Solvable, answer, start_search, watch
from pages.shared.session import session, workspace
from pages.shared.widgets import button, complain, literal
from tessel_core.errors import InputError
from tessel_core.learning import Level, find_deck, find_level, list_decks, list_levels
from tessel_core.learning.deck import Deck
from tessel_core.workbench.jobs import Run
from tessel_core.workbench.workspace import OWN

Result = TypeVar("Result")


def level_shown() -> Level | Deck | str:
    """Return the open level or deck, or `OWN`, `OWN_SLIDES` or `WORDS`. Without a choice, return the next level."""
    state = session().of(LearnState)
    if state.level in (OWN, OWN_SLIDES, WORDS):
        return state.level
    try:
        if state.level.startswith(DECK):
            return find_deck(state.level.removeprefix(DECK))
        return find_level(state.level) if state.level else _first_open(state)
    except InputError as error:
        level = _first_open(state)
        state.said = str(error)
        return level


def _first_open(state: LearnState) -> Level:
    """Open the unfinished level that was played last, or else the first unsolved one."""
    levels = {each.name: each for each in list_levels()}
    left = [play.level for play in workspace().played if not play.reached and play.level in levels]
    unsolved = [name for name in levels if not workspace().play(name).reached]
    level = levels[(left[-1:] or unsolved or list(levels))[0]]
    state.open(level.name)
    return level


def level_list(shown: Level | Deck | str) -> None:
    """Show a button for each level (ticked if solved), the open plan, each deck, the user's slides and the glossary."""
    with st.container(gap=None, key="list-levels"):
        for level in list_levels():
            _entry(level.name, f"{level.number}  {level.title}", chosen=shown is level)
        _entry(OWN, f"Your plan: {workspace().plan.name}", chosen=shown == OWN)
        for deck in list_decks():
            _entry(DECK + deck.name, deck.title, chosen=shown is deck, icon="slideshow")
        _entry(OWN_SLIDES, "Your slides", chosen=shown == OWN_SLIDES, icon="slideshow")
        _entry(WORDS, "Words explained", chosen=shown == WORDS, icon="menu_book")


def _entry(name: str, title: str, *, chosen: bool, icon: str = "circle") -> None:
    play = workspace().play(name)
    icon = "check_circle" if play.reached else "pending" if play.placed or play.chosen is not None else icon
    kind = "secondary" if chosen else "tertiary"
    if button(title, key=f"level-{name}", type=kind, icon=f":material/{icon}:", width="stretch"):
        session().of(LearnState).open(name)
        st.rerun()


def reach(name: str, reached: bool) -> None:
    """Record that a level is solved."""
    play = workspace().play(name)
    if reached and not play.reached:
        session().change(workspace().playing(replace(play, reached=True)))
        st.rerun()


def next_level(level: Level) -> None:
    """Show a button that opens the next level, if there is one."""
    after = next((each for each in list_levels() if each.number > level.number), None)
    if after is not None and button(f"Next: {after.title}", type="primary", icon=":material/arrow_forward:"):
        session().of(LearnState).open(after.name)
        st.rerun()


def hints(level: Level) -> None:
    """Show the menu with the hints of a level."""
    with st.popover("Hints", icon=":material/lightbulb:"):
        for hint in level.hints:
            st.markdown(literal(hint))


def show_verdict(level: Level, sentence: str, *, reached: bool) -> None:
    """Show the verdict on a player's answer. If it solves the level, show also the reasons and the next level."""
    if not reached:
        st.info(literal(sentence), icon=":material/flag:")
        return
    reach(level.name, reached)
    st.success(literal(sentence), icon=":material/verified:")
    show_reasons(level)


def show_reasons(level: Level) -> None:
    """Show why the right answer is right, and the button that opens the next level."""
    st.markdown("  \n".join(map(literal, level.reasons())), help=level.source or None)
    with st.container(horizontal=True):
        next_level(level)


def result_of(question: Solvable[Result], wait_s: float) -> tuple[Run[Result], Result | None]:
    """Start or join the search for a question. Return the run and its result, None if it is not ready."""
    run = answer(question) or start_search(question)
    run.wait(wait_s)
    return run, run.result


def waiting(run: Run[Result], line: Callable[[], object]) -> None:
    """Show the progress of a run without a result, or why it ended without one."""
    if run.running:
        watch(run, line)
    else:
        complain(run.complaint or "the search was stopped before it found anything. Reload the page to try again")
