"""The user's own slides: shown, edited and reordered."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.parts.learn.slides import show_slides
from pages.shared.session import session, unbroken, workspace
from pages.shared.widgets import button, complain
from tessel_core.errors import InputError
from tessel_core.learning.questions import OwnDeckQuestion
from tessel_core.workbench.slides import LONGEST_TEXT, LONGEST_TITLE, OwnSlide

_EMPTY = "No slides yet. Press *Add to slides* on *Schedule* or *Compare* to add the schedule shown there."


def own_slides() -> None:
    """Show the slides, and below them fields for their text and order."""
    work = workspace()
    if not work.slides:
        st.info(_EMPTY, icon=":material/slideshow:")
        return
    about = "Slides are saved with this workspace, and are in the file that its **Export** downloads."
    show_slides("own", OwnDeckQuestion(work.name, work.slides), len(work.slides), about)
    with st.expander("Edit text and order"):
        for at, slide in enumerate(work.slides):
            _row(at, slide)


def _row(at: int, slide: OwnSlide) -> None:
    row = st.columns([4, 7, 3], vertical_alignment="bottom")
    keys = [session().key(f"slide-{name}-{at}-{len(workspace().slides)}") for name in ("title", "text")]
    row[0].text_input(
        f"Title of slide {at + 1}",
        slide.title,
        max_chars=LONGEST_TITLE,
        key=keys[0],
        on_change=_word,
        args=(at, "title", keys[0]),
    )
    row[1].text_area(
        f"Text of slide {at + 1}",
        slide.text,
        max_chars=LONGEST_TEXT,
        height=72,
        key=keys[1],
        on_change=_word,
        args=(at, "text", keys[1]),
    )
    with row[2], st.container(horizontal=True):
        if button("Up", key=f"slide-up-{at}", icon=":material/arrow_upward:", type="tertiary", disabled=not at):
            slides = list(workspace().slides)
            slides[at - 1 : at + 1] = slides[at], slides[at - 1]
            _change(slides)
        if button("Remove", key=f"slide-remove-{at}", icon=":material/delete:", type="tertiary"):
            _change([each for i, each in enumerate(workspace().slides) if i != at])


def _change(slides: list[OwnSlide]) -> None:
    session().change(replace(workspace(), slides=tuple(slides)))
    session().begin_again()  # new widget keys, so that every field shows the slide at its new position
    st.rerun()


@unbroken
def _word(at: int, field: str, key: str) -> None:
    slides = list(workspace().slides)
    try:
        slides[at] = replace(slides[at], **{field: st.session_state[key]})
    except (InputError, IndexError) as error:
        complain(error if isinstance(error, InputError) else InputError("slides", "were changed in another tab"))
        return
    session().change(replace(workspace(), slides=tuple(slides)))
