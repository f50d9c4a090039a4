"""Read numbers from requests that a timeline sends from the browser."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.units import MAGNITUDE


def number_in(asked: Mapping[str, object], name: str) -> int:
    """Return the number under `name` in a request, read by `number_of`."""
    return number_of(asked.get(name))


def number_of(value: object) -> int:
    """Return `value` as an integer if it is a number of magnitude at most 2**53. Return 0 for any other value."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAGNITUDE
    return int(value) if whole else 0  # type: ignore[call-overload]
