"""The course: levels to play, decks of slides, a glossary, and the code that evaluates answers."""

from tessel_core.learning.assignment import Assigned, Assignment
from tessel_core.learning.catalogue import find_deck, find_level, list_decks, list_levels
from tessel_core.learning.glossary import GLOSSARY
from tessel_core.learning.level import Level
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.questions import Assigning, KnobAnswers
from tessel_core.learning.stamping import Stamping
from tessel_core.learning.task import Knob, Puzzle, StopResult, too_large

__all__ = [
    "GLOSSARY",
    "Assigned",
    "Assigning",
    "Assignment",
    "Knob",
    "KnobAnswers",
    "Level",
    "Ordering",
    "Puzzle",
    "Stamping",
    "StopResult",
    "find_deck",
    "find_level",
    "list_decks",
    "list_levels",
    "too_large",
]
