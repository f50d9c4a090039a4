"""Decks of slides that a user has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tessel_core.control import Control
from tessel_core.learning.deck import Slide, slides_data
from tessel_core.learning.task import Titled
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.slides import OwnSlide


@dataclass(frozen=True)
class OwnDeckQuestion:
    """Question for the contents of a user's slides. The answer has the same format as that of `DeckQuestion`."""

    title: str
    slides: tuple[OwnSlide, ...]

    def solve(self, control: Control) -> dict[str, Any]:
        """Return the slides. Raises InputError if a schedule breaks a rule."""
        return slides_data(self.title, map(_slide, self.slides), None, control)


def _slide(own: OwnSlide) -> Slide:
    shown: Callable[[], tuple[Titled, ...]] = partial(_schedules, own.shown)
    return Slide(own.title, tuple(filter(None, own.text.splitlines())), shown)


def _schedules(shown: tuple[tuple[str, Made], ...]) -> tuple[Titled, ...]:
    found = ((title, made.solve(Control()).drawable) for title, made in shown)
    return tuple((title, schedule) for title, schedule in found if schedule is not None)
