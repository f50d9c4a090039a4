"""Learn page: levels to play, slides, a glossary, and the open plan as a puzzle."""

from collections.abc import Callable

import streamlit as st

from pages.parts.learn.assign import play_assignment
from pages.parts.learn.coming_back import come_back, offer_to_go_on, remember
from pages.parts.learn.knob import play_knob
from pages.parts.learn.levels import level_list, level_shown
from pages.parts.learn.order import play_ordering
from pages.parts.learn.own_slides import own_slides
from pages.parts.learn.play import play_puzzle
from pages.parts.learn.slides import show_deck
from pages.parts.learn.stamp import play_stamping
from pages.shared.keeping import keeping
from pages.shared.learn_state import OWN_SLIDES, WORDS, LearnState
from pages.shared.session import session, workspace
from pages.shared.widgets import complain, heading_row, literal, title_of
from tessel_core.errors import InputError
from tessel_core.learning import GLOSSARY, Assignment, Knob, Level, Ordering, Puzzle, Stamping
from tessel_core.learning.deck import Deck


def page() -> None:
    """Show the list of levels on the left and the open level on the right."""
    come_back()
    state = session().of(LearnState)
    level = level_shown()
    with heading_row("learn"):
        if isinstance(level, Level):
            title_of(level.title, f"level {level.number}")
        elif isinstance(level, Deck):
            title_of(level.title, f"{len(level.slides)} slides")
        elif level == OWN_SLIDES:
            title_of("Your slides", workspace().name)
        elif level == WORDS:
            title_of("Words explained", "with the numbers of the open plan")
        else:
            title_of(workspace().name, workspace().source)
        keeping()
    left, right = st.columns([3, 10], gap="medium")
    with left:
        offer_to_go_on()
        level_list(level)
    with right:
        if state.said:
            complain(state.said)
        if level == WORDS:
            glossary()
        elif level == OWN_SLIDES:
            own_slides()
        elif isinstance(level, Deck):
            show_deck(level, goes=state.goes)
        else:
            open_level(level if isinstance(level, Level) else None)
    remember()


def open_level(level: Level | None) -> None:
    """Show the idea and the task of a level. None stands for the puzzle of the open plan."""
    try:
        task = Puzzle(workspace().plan, workspace().micro_batches) if level is None else level.task()
    except InputError as error:
        complain(error)
        return
    if level is not None:
        st.markdown("  \n".join(map(literal, level.idea.splitlines())))
    if isinstance(task, Puzzle):
        play_puzzle(level, task)
    else:
        _PLAYS[type(task)](level, task)


_PLAYS: dict[type, Callable[..., None]] = {
    Knob: play_knob,
    Stamping: play_stamping,
    Assignment: play_assignment,
    Ordering: play_ordering,
}
"""Function that shows each kind of task, except puzzles, which need no level."""


def glossary() -> None:
    """Show the glossary in two columns."""
    plan, micro_batches = workspace().plan, workspace().micro_batches
    for column, terms in zip(st.columns(2, gap="large"), (GLOSSARY[::2], GLOSSARY[1::2]), strict=True):
        with column:
            for term in terms:
                numbers = "" if term.filled is None else term.filled(plan, micro_batches)
                st.markdown(f"**{literal(term.name)}**  \n{literal(term.meaning)}")
                if numbers:
                    st.caption(literal(f"Here: {numbers}."))


page()
