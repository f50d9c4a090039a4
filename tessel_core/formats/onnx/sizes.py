"""Open sizes of an ONNX model: which ones the user must give, likely values, and sums of other sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tessel_core.errors import InputError

_LIKELY_SIZES = ((re.compile(r"batch|past", re.I), 1), (re.compile(r"seq|length|token", re.I), 128))
_DEFAULT_SIZE = 1
_MAX_DIGITS = 20
LARGEST_SIZE = 1_000_000_000
"""Largest size that a user can enter."""


def open_sizes(words: Iterable[str], where: str) -> dict[str, int]:
    """Parse words like `batch=8` into sizes by name.  Raises InputError at `where` for other words.

    >>> open_sizes(["batch=8", "x[1]=5"], "sizes")
    {'batch': 8, 'x[1]': 5}
    """
    sizes = dict[str, int]()
    for each in words:
        name, mark, size = each.rpartition("=")
        if not mark or not (size.strip().isascii() and size.strip().isdigit()) or len(size) > _MAX_DIGITS:
            raise InputError(where, f"wants NAME=N, with a whole number, got {each[:80]!r}")
        sizes[name.strip()] = int(size)
    return sizes


def asked_sizes(names: Iterable[str]) -> dict[str, int]:
    """Return the open sizes that the user must give, each with a likely value.

    >>> asked_sizes(["batch", "sequence", "past", "past + sequence"])
    {'batch': 1, 'sequence': 128, 'past': 1}
    """
    known = tuple(names)
    return {name: _likely(name) for name in known if _parts(name, known) is None}


def all_sizes(names: Iterable[str], given: Mapping[str, int]) -> dict[str, int]:
    """Compute all open sizes from those that the user gave.

    >>> all_sizes(["past", "past + 1"], {"past": 7})
    {'past': 7, 'past + 1': 8}
    """
    known = tuple(names)
    sums = {name: parts for name in known if (parts := _parts(name, known)) is not None}
    asked = {name: given[name] for name in known if name not in sums}
    return {
        name: sum(asked[part] if part in asked else int(part) for part in sums[name]) if name in sums else asked[name]
        for name in known
    }


def _likely(name: str) -> int:
    return next((size for pattern, size in _LIKELY_SIZES if pattern.search(name)), _DEFAULT_SIZE)


def _parts(name: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the summands of a size like "past + 1": numbers and other open sizes.  None if it is not a sum."""
    parts = tuple(part.strip() for part in name.split("+"))
    simple = {each for each in known if "+" not in each}
    is_sum = len(parts) > 1 and all(part in simple or re.fullmatch("[0-9]{1,9}", part) for part in parts)
    return parts if is_sum else None
