"""The levels of the course: every file of `levels/` is one, and a new one touches no other."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from tessel_core.errors import InputError
from tessel_core.learning import levels
from tessel_core.learning.level import Level


@lru_cache(maxsize=1)
def list_levels() -> tuple[Level, ...]:
    """All of them, in order."""
    modules = (import_module(f"{levels.__name__}.{each.name}") for each in iter_modules(levels.__path__))
    return tuple(sorted((module.LEVEL for module in modules), key=lambda level: level.number))


def find_level(name: str) -> Level:
    """The level of this number; InputError where there is none."""
    for level in list_levels():
        if level.name == name:
            return level
    raise InputError("level", f"must be a number from 1 to {len(list_levels())}, got {name!r}")
