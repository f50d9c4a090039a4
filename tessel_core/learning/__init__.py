"""The course: levels that are played, and what judges them."""

from tessel_core.learning.assignment import Assigned, Assigning, Assignment
from tessel_core.learning.catalogue import find_deck, find_level, list_decks, list_levels
from tessel_core.learning.glossary import GLOSSARY
from tessel_core.learning.level import Knob, KnobAnswers, Level, Outcome, Puzzle, too_large
from tessel_core.learning.ordering import Ordering
from tessel_core.learning.stamping import Stamping

__all__ = [
    "GLOSSARY",
    "Assigned",
    "Assigning",
    "Assignment",
    "Knob",
    "KnobAnswers",
    "Level",
    "Ordering",
    "Outcome",
    "Puzzle",
    "Stamping",
    "find_deck",
    "find_level",
    "list_decks",
    "list_levels",
    "too_large",
]
