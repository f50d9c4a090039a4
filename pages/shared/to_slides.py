"""The way from schedules that are shown to slides of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import button, complain
from tessel_core.errors import InputError
from tessel_core.model import Schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.slides import OwnSlide, with_slide

_ABOUT = "A slide of what is shown here, on the page Learn under “Your slides”."
_MOST = 6


def offers_slide(title: str, shown: Sequence[tuple[str, Schedule]]) -> None:
    """The button that makes a slide of these schedules; it counts them, and says why it is off."""
    work, objection = workspace(), ""
    if not shown:
        objection = "Nothing is solved yet."
    elif len(shown) > _MOST:
        objection = f"A slide has room for {_MOST} schedules: tick as many rows."
    label = f"Add to slides ({len(work.slides)})" if work.slides else "Add to slides"
    look: dict[str, Any] = {"icon": ":material/slideshow:", "type": "tertiary", "disabled": bool(objection)}
    if not button(label, key="add-to-slides", help=objection or _ABOUT, **look):
        return
    try:
        slide = OwnSlide(title, shown=tuple((each, Made.of(schedule)) for each, schedule in shown))
        session().change(replace(work, slides=with_slide(work.slides, slide)))
    except InputError as error:
        complain(error)
        return
    st.rerun()  # the button counts one more
