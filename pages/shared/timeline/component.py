"""The timeline that one can grab: a Streamlit component whose script and looks lie beside this file."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import streamlit as st

from pages.shared.session import session
from pages.shared.timeline.state import TimelineState
from pages.shared.widgets import literal
from tessel_core.charts.timeline import Titled, timeline_data, timeline_height
from tessel_core.model import Schedule
from tessel_core.workbench.messages.timeline import About, Finding, about, find_place

_HERE = Path(__file__).parent
_MODULES = ("data.mjs", "scale.mjs", "draw.mjs", "timeline.mjs")
"""In the order in which they need each other."""
_WAITING = (
    '<div class="timeline" data-testid="timeline"><p class="waiting">'
    "The timeline could not be loaded in this browser. Choose Picture to see the schedule.</p></div>"
)


def one_module(texts: list[str]) -> str:
    """Modules as one, which a browser can load without asking for the others.

    >>> one_module(["export const a = 1;", 'import { a } from "./a.mjs";\\nexport default a;'])
    'const a = 1;\\nexport default a;'
    """
    joined = "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)
    return re.sub(r"^export (?!default)", "", joined, flags=re.MULTILINE)


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


_SMALLER = """
.timeline :is(.views, .choices, .details) { display: none; }
.timeline .legend { display: inline-flex; }
"""

_COMPONENT = st.components.v2.component(
    "tessel_timeline",
    html=_WAITING,
    css=_text("timeline.css"),
    js=one_module([_text(name) for name in _MODULES]),
)

_SMALL = st.components.v2.component(
    "tessel_timeline_small",
    html=_WAITING,
    css=_text("timeline.css") + _SMALLER,
    js=one_module([_text(name) for name in _MODULES]),
)
"""The same without what stands over and under the lanes, but for the legend."""

_SAID = st.components.v2.component("tessel_timeline_said", js=_text("said.mjs"))


@lru_cache(maxsize=8)
def _data(shown: tuple[Titled, ...], memory: bool) -> bytes:
    return timeline_data(shown, memory=memory)


def timeline(shown: tuple[Titled, ...], key: str, *, memory: bool = True, small: bool = False) -> bool:
    """Schedules under each other on one time axis, with what they answer about what is selected unless it is `small`.

    False where this tab's browser cannot draw them, which a caption says then.  The component stays as it is while key
    and schedules stay, and the browser already has what it was sent.  What is seen the browser writes into the address
    by itself, since from here it would come too late.
    """
    state = session().of(TimelineState)
    if not state.failed:
        reported = (_SMALL if small else _COMPONENT)(
            key=key,
            data=_data(shown, memory),
            height=timeline_height(shown, memory=memory, tools=not small),
            on_look_change=_nothing,
            on_failed_change=_nothing,
        )
        state.failed = str(reported.get("failed") or "")
        if reported.get("look"):
            state.seen(reported["look"])
        if state.on < len(shown) and not small:
            _answer(shown[state.on][1], state)
    if state.failed:
        st.caption(literal(f"This browser cannot draw the timeline, so this is the picture. {state.failed}"))
    return not state.failed


def _answer(schedule: Schedule, state: TimelineState) -> None:
    """Say what is known of the selected place, and where is what somebody looks for."""
    found = find_place(schedule, state.asked.partition(" ")[2]) if state.asked else None
    if state.selected or found:
        _say(state, about(schedule, state.selected), found)


def _say(state: TimelineState, known: About, found: Finding | None) -> None:
    """Have the timeline show text about a place beside what it tells by itself.

    What the text is about is named in the timeline's own words; where something else is selected by the time that it
    arrives, it is not shown.
    """
    answer = {"asked": state.asked, "place": found.place, "complaint": found.complaint} if found else None
    about_it = {"of": state.of, "at": state.selected, "lines": known.lines, "chain": known.chain, "found": answer}
    _SAID(key="timeline-said", data=about_it)


def _nothing() -> None:
    """Streamlit hands on only what somebody listens to."""
