"""Levels and decks of slides of the course.

Each module in `levels/` and `decks/` defines one level or deck, and is found automatically.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from tessel_core.errors import InputError
from tessel_core.learning import decks, levels
from tessel_core.learning.deck import Deck
from tessel_core.learning.level import Level


@lru_cache(maxsize=1)
def list_levels() -> tuple[Level, ...]:
    """Return all levels in order."""
    return tuple(sorted((module.LEVEL for module in _files(levels)), key=lambda level: level.number))


@lru_cache(maxsize=1)
def list_decks() -> tuple[Deck, ...]:
    """Return all decks in order."""
    return tuple(sorted((module.DECK for module in _files(decks)), key=lambda deck: deck.place))


def find_level(name: str) -> Level:
    """Return the level with this number. Raises InputError if no level has it."""
    for level in list_levels():
        if level.name == name:
            return level
    raise InputError("level", f"must be a number from 1 to {len(list_levels())}, got {name!r}")


def find_deck(name: str) -> Deck:
    """Return the deck with this name. Raises InputError if no deck has it."""
    for deck in list_decks():
        if deck.name == name:
            return deck
    raise InputError("slides", f"must be one of {', '.join(deck.name for deck in list_decks())}, got {name!r}")


def _files(package: ModuleType) -> Iterator[ModuleType]:
    return (import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__))
