"""What a timeline asks for, as it comes from outside."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.units import MAGNITUDE


def number_in(asked: Mapping[str, object], name: str) -> int:
    """A whole number, 0 where there is none of the plan's magnitude."""
    value = asked.get(name)
    whole = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAGNITUDE
    return int(value) if whole else 0  # type: ignore[call-overload]
