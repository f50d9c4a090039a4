"""Questions about levels and decks. Pages solve them in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tessel_core.control import Control
from tessel_core.learning.assignment import Assigned, Assignment, Given, judge_assignment
from tessel_core.learning.catalogue import find_deck, find_level
from tessel_core.learning.deck import Slide, slides_data
from tessel_core.learning.task import Knob, StopResult, Titled
from tessel_core.scheduling.comparison import Made
from tessel_core.workbench.slides import OwnSlide


@dataclass(frozen=True)
class KnobAnswers:
    """Question for the outcomes of all positions of a level's slider."""

    level: int

    def solve(self, control: Control) -> tuple[StopResult, ...]:
        """Return the outcome of every slider position.

        Deliver each outcome when it is ready. After a cancel, return the outcomes that are ready.
        """
        knob, found = find_level(str(self.level)).task(), list[StopResult]()
        assert isinstance(knob, Knob)
        for i in range(len(knob.stops)):
            if control.stopped:
                break
            found.append(knob.outcome(i))
            control.deliver(found[-1])
        return tuple(found)


@dataclass(frozen=True)
class Assigning:
    """Question for the evaluation of a player's assignment."""

    level: int
    given: Given

    def solve(self, control: Control) -> Assigned:
        """Return the evaluation. Raises InputError as `Assignment.check` does."""
        task = find_level(str(self.level)).task()
        assert isinstance(task, Assignment)
        return judge_assignment(task, self.given)


@dataclass(frozen=True)
class DeckQuestion:
    """Question for the contents of a deck of slides."""

    name: str

    def solve(self, control: Control) -> dict[str, Any]:
        """Return the deck as a JSON object, with timelines as `timeline_data` in base64.

        Deliver each slide when it is ready. After a cancel, the deck contains the slides that are ready.
        """
        deck = find_deck(self.name)
        return slides_data(deck.title, deck.slides, deck.facts(), control)


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
