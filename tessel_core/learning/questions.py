"""What the pages ask of a level or a deck in the background, each by its number or name."""

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
    """The question what all stops of a level's knob lead to, as a search is one."""

    level: int

    def solve(self, control: Control) -> tuple[StopResult, ...]:
        """The outcome of every stop, each delivered when it is there; cancelled, those that are."""
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
    """The question what an assignment of a level leads to, as a search is one."""

    level: int
    given: Given

    def solve(self, control: Control) -> Assigned:
        """The verdict; raises InputError for what `Assignment.check` refuses."""
        task = find_level(str(self.level)).task()
        assert isinstance(task, Assignment)
        return judge_assignment(task, self.given)


@dataclass(frozen=True)
class DeckQuestion:
    """The question what a deck shows, as a search is one."""

    name: str

    def solve(self, control: Control) -> dict[str, Any]:
        """The deck as the browser shows it, a JSON object with timelines as `timeline_data` in base64.

        Slides are delivered as they come; cancelled, the deck has those that are there.
        """
        deck = find_deck(self.name)
        return slides_data(deck.title, deck.slides, deck.facts(), control)
