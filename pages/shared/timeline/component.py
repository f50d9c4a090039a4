"""The timeline that one can grab: a Streamlit component whose script and looks lie beside this file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import streamlit as st

from tessel_core.charts.timeline import timeline_data, timeline_height
from tessel_core.model import Schedule
from tessel_core.workbench.messages.timeline import About, Finding

_HERE = Path(__file__).parent
_MODULES = ("data.mjs", "scale.mjs", "draw.mjs", "timeline.mjs")
"""In the order in which they need each other."""
_WAITING = (
    '<div class="timeline" data-testid="timeline"><p class="waiting">'
    "The timeline could not be loaded in this browser. Choose Picture above to see the schedule.</p></div>"
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


_COMPONENT = st.components.v2.component(
    "tessel_timeline",
    html=_WAITING,
    css=_text("timeline.css"),
    js=one_module([_text(name) for name in _MODULES]),
)

_SAID = st.components.v2.component("tessel_timeline_said", js=_text("said.mjs"))


@lru_cache(maxsize=8)
def _data(schedule: Schedule) -> bytes:
    return timeline_data(schedule)


def timeline(schedule: Schedule, key: str) -> tuple[Mapping[str, Any], str]:
    """The timeline; what a person sees of it, once that is at rest, and why it could not be drawn, if so.

    The component stays as it is while key and schedule stay, and the browser already has what it was sent.
    """
    reported = _COMPONENT(
        key=key,
        data=_data(schedule),
        height=timeline_height(schedule),
        on_look_change=_nothing,
        on_failed_change=_nothing,
    )
    return reported.get("look") or {}, str(reported.get("failed") or "")


def say(of: str, at: str, known: About, asked: str = "", found: Finding | None = None) -> None:
    """Have the timeline show text about a place beside what it tells by itself, and where the answer to `asked` is.

    `of`, `at` and `asked` are the timeline's own words; where something else is selected by the time that the text
    arrives, it is not shown.
    """
    answer = {"asked": asked, "place": found.place, "complaint": found.complaint} if found else None
    _SAID(key="timeline-said", data={"of": of, "at": at, "lines": known.lines, "chain": known.chain, "found": answer})


def _nothing() -> None:
    """Streamlit hands on only what somebody listens to."""
