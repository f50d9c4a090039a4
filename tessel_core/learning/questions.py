"""Questions about levels and decks. Pages solve them in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessel_core.control import Control
from tessel_core.learning.assignment import Assigned, Assignment, Given, judge_assignment
from tessel_core.learning.catalogue import find_deck, find_level
from tessel_core.learning.deck import slides_data
from tessel_core.learning.task import Knob, StopResult


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
