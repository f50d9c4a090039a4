"""What a timeline asks for, as it comes from outside."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.units import MAGNITUDE


def number_in(asked: Mapping[str, object], name: str) -> int:
    """The whole number called `name`, as `number_of` reads it."""
    return number_of(asked.get(name))


def number_of(value: object) -> int:
    """A whole number of at most 2^53 either way; 0 for anything else."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAGNITUDE
    return int(value) if whole else 0  # type: ignore[call-overload]
