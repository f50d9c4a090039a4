"""Slides for a lecture: a few sentences and live timelines each; every file of `decks/` is a deck."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessel_core.charts.timeline import Look, timeline_data, timeline_height
from tessel_core.control import Control
from tessel_core.learning.task import Facts, Titled, no_facts

if TYPE_CHECKING:  # slides load no simulation before they are shown
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

_STORY = 130
"""Pixels under the lanes of a slide for what the devices do while it plays."""


@dataclass(frozen=True)
class Slide:
    """One view of a deck; sentences may name numbers in braces, which the deck's facts compute."""

    title: str
    lines: tuple[str, ...]
    shown: Callable[[], tuple[Titled, ...]] = tuple
    """Schedules under each other on one axis of time; none for a slide of text."""
    memory: bool = True
    picture: Callable[[], str] = str
    """SVG, in the place of schedules."""
    traced: Callable[[], tuple[Trace, DeviceMesh]] | None = None
    """A simulation, in the place of schedules."""


@dataclass(frozen=True, kw_only=True)
class Deck:
    """One file of `decks/`."""

    name: str
    """As the address has it."""
    place: int
    """Among the others."""
    title: str
    about: str
    slides: tuple[Slide, ...]
    facts: Callable[[], Facts] = no_facts


def slides_data(title: str, slides: Iterable[Slide], facts: Facts | None, control: Control) -> dict[str, Any]:
    """What `DeckQuestion` answers; braces in sentences stand for themselves where there are no facts."""
    found = list[dict[str, Any]]()
    for slide in slides:
        if control.stopped:
            break
        found.append(_slide_data(slide, facts))
        control.deliver(found[-1])
    return {"title": title, "slides": found}


def _slide_data(slide: Slide, facts: Facts | None) -> dict[str, Any]:
    look, data = Look(quiet=True), b""
    if slide.traced is not None:
        from tessel_core.charts.trace_timeline import trace_data

        data = trace_data(*slide.traced(), look)
    elif shown := slide.shown():
        data = timeline_data(shown, memory=slide.memory, look=look)
    return {
        "title": slide.title,
        "lines": [line if facts is None else line.format_map(facts) for line in slide.lines],
        "picture": slide.picture(),
        "data": base64.b64encode(data).decode(),
        "height": timeline_height(data, tools=False) + _STORY if data else 0,
    }
