"""Buttons that take plans and schedules to the page *Learn*: as a puzzle, and as a slide of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from pages.shared.contents import go_to
from pages.shared.learn_state import LearnState
from pages.shared.session import session, workspace
from pages.shared.widgets import button, complaining, literal
from tessel_core.learning import too_large
from tessel_core.model import MicroBatchPlan, Schedule
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.slides import OwnSlide, with_slide
from tessel_core.workbench.workspace import OWN

_PLAY = "Order the runs by hand, with the proved bound as your target and a coach to help."


def offers_to_play(plan: MicroBatchPlan | None, micro_batches: int, otherwise: str = "") -> bool:
    """Show the button. If it is disabled, its tooltip says why. Return True when it was pressed."""
    objection = otherwise if plan is None else too_large(plan, micro_batches)
    about = f"The plan {objection}." if objection and plan is not None else objection or _PLAY
    look: dict[str, Any] = {"icon": ":material/school:", "type": "tertiary", "disabled": bool(objection)}
    return button("Play this", help=literal(about), **look)


def play_open_plan() -> None:
    """Open the current plan as a puzzle."""
    session().of(LearnState).open(OWN)
    go_to("learn")


_ADD_SLIDE = "Add a slide with these schedules to “Your slides” on the page Learn."
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
    if button(label, key="add-to-slides", help=objection or _ADD_SLIDE, **look):
        with complaining():
            slide = OwnSlide(title, shown=tuple((each, Made.of(schedule)) for each, schedule in shown))
            session().change(replace(work, slides=with_slide(work.slides, slide)))
            st.rerun()  # so that the button shows the new number of slides
