"""Decks of slides for a lecture. A slide has a few sentences and a live timeline or a picture."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessel_core.charts.timeline import Look, timeline_data, timeline_height
from tessel_core.control import Control
from tessel_core.learning.task import Facts, Titled, no_facts

if TYPE_CHECKING:  # imported here because pages load faster without the simulation
    from tessel_core.model import DeviceMesh
    from tessel_core.simulation import Trace

_CAPTION_PIXELS = 130
"""Height in pixels below the timeline of a slide, for the text about the devices during playback."""


@dataclass(frozen=True)
class Slide:
    """One slide. Sentences may contain names in braces. The deck's `facts` give the numbers that replace them."""

    title: str
    lines: tuple[str, ...]
    shown: Callable[[], tuple[Titled, ...]] = tuple
    """Schedules to draw on one time axis. Empty for a slide of text."""
    memory: bool = True
    picture: Callable[[], str] = str
    """SVG picture to show instead of schedules."""
    traced: Callable[[], tuple[Trace, DeviceMesh]] | None = None
    """Simulation to show instead of schedules."""


@dataclass(frozen=True, kw_only=True)
class Deck:
    """A deck of slides. Each module of `decks/` defines one."""

    name: str
    """Name of the deck in the address of the page."""
    place: int
    """Position among the decks."""
    title: str
    about: str
    slides: tuple[Slide, ...]
    facts: Callable[[], Facts] = no_facts


def slides_data(title: str, slides: Iterable[Slide], facts: Facts | None, control: Control) -> dict[str, Any]:
    """Return the slides as JSON, the answer of `DeckQuestion`. Without facts, names in braces are not replaced."""
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
        "height": timeline_height(data, tools=False) + _CAPTION_PIXELS if data else 0,
    }
