"""Button that adds the shown schedules to the user's slides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from pages.shared.session import session, workspace
from pages.shared.widgets import button, complaining
from tessel_core.model import Schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.slides import OwnSlide, with_slide

_ABOUT = "Add a slide with these schedules to “Your slides” on the page Learn."
_MAX_SCHEDULES = 6


def offers_slide(title: str, shown: Sequence[tuple[str, Schedule]]) -> None:
    """Show the button that adds a slide. Its label counts the slides, and its tooltip says why it is disabled."""
    work, objection = workspace(), ""
    if not shown:
        objection = "Nothing is solved yet."
    elif len(shown) > _MAX_SCHEDULES:
        objection = f"A slide shows at most {_MAX_SCHEDULES} schedules. Tick at most that many rows."
    label = f"Add to slides ({len(work.slides)})" if work.slides else "Add to slides"
    look: dict[str, Any] = {"icon": ":material/slideshow:", "type": "tertiary", "disabled": bool(objection)}
    if button(label, key="add-to-slides", help=objection or _ABOUT, **look):
        with complaining():
            slide = OwnSlide(title, shown=tuple((each, Made.of(schedule)) for each, schedule in shown))
            session().change(replace(work, slides=with_slide(work.slides, slide)))
            st.rerun()  # so that the button shows the new number of slides
