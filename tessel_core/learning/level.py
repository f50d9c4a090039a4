"""What a level of the course is: one idea, one thing to do, and three sentences of why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from tessel_core.learning.assignment import Assignment
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.stamping import Stamping
from tessel_core.learning.task import Facts, Knob, Puzzle, no_facts

MOST_WORDS = 25
"""In a sentence of a level."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One file of `levels/`; sentences may name numbers in braces, which `facts` computes."""

    number: int
    title: str
    idea: str
    asks: str
    """What to do."""
    task: Callable[[], Puzzle | Knob | Stamping | Ordering | Assignment]
    hints: tuple[str, ...]
    """From the least to the most; after them, a puzzle's coach names the next run."""
    why: tuple[str, str, str]
    facts: Callable[[], Facts] = no_facts
    source: str = ""

    @property
    def name(self) -> str:
        """As the address has it."""
        return str(self.number)

    def reasons(self) -> tuple[str, ...]:
        """The three sentences with their numbers, which takes solving."""
        facts = self.facts()
        return tuple(each.format_map(facts) for each in self.why)


def sentences(texts: Iterable[str]) -> list[str]:
    """The sentences of some texts, without their full stops."""
    parts = (re.split(r"(?<=[.!?:])\s+", text) for text in texts)
    return [part.rstrip(".!?:") for part in chain.from_iterable(parts) if part]
