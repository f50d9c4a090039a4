"""A level of the course: one idea, one task, and three sentences of explanation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from tessel_core.learning.assignment import Assignment
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.stamping import Stamping
from tessel_core.learning.task import Facts, Knob, Puzzle, no_facts

MAX_WORDS_PER_SENTENCE = 25
"""Largest number of words per sentence of a level."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of the course.

    Each module of `levels/` defines one. The numbers in `facts` replace names in braces in sentences.
    """

    number: int
    title: str
    idea: str
    asks: str
    """The task in one or two sentences."""
    task: Callable[[], Puzzle | Knob | Stamping | Ordering | Assignment]
    hints: tuple[str, ...]
    """Hints, from vague to precise. After the last hint of a puzzle, the coach names the next run."""
    why: tuple[str, str, str]
    facts: Callable[[], Facts] = no_facts
    source: str = ""

    @property
    def name(self) -> str:
        """Name of the level in the address of the page."""
        return str(self.number)

    def reasons(self) -> tuple[str, ...]:
        """Return the three sentences of explanation with their numbers. This runs solvers."""
        facts = self.facts()
        return tuple(each.format_map(facts) for each in self.why)


def sentences(texts: Iterable[str]) -> list[str]:
    """Split texts into sentences without final punctuation."""
    parts = (re.split(r"(?<=[.!?:])\s+", text) for text in texts)
    return [part.rstrip(".!?:") for part in chain.from_iterable(parts) if part]
