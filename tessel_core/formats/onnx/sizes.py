"""Sizes that an ONNX model leaves open: those to ask for, with what they likely are, and sums of others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tessel_core.errors import InputError

_LIKELY = ((re.compile(r"batch|past", re.I), 1), (re.compile(r"seq|length|token", re.I), 128))
_ELSE = 1
_MOST_DIGITS = 20
LARGEST_SIZE = 1_000_000_000
"""The largest that is asked for."""


def open_sizes(words: Iterable[str], where: str) -> dict[str, int]:
    """Sizes by name from words like `batch=8`; InputError at `where` for others.

    >>> open_sizes(["batch=8", "x[1]=5"], "sizes")
    {'batch': 8, 'x[1]': 5}
    """
    found = dict[str, int]()
    for each in words:
        name, mark, size = each.rpartition("=")
        if not mark or not (size.strip().isascii() and size.strip().isdigit()) or len(size) > _MOST_DIGITS:
            raise InputError(where, f"wants NAME=N, with a whole number, got {each[:80]!r}")
        found[name.strip()] = int(size)
    return found


def asked_sizes(names: Iterable[str]) -> dict[str, int]:
    """Those of a model's open sizes that somebody must say, with what each likely is.

    >>> asked_sizes(["batch", "sequence", "past", "past + sequence"])
    {'batch': 1, 'sequence': 128, 'past': 1}
    """
    known = tuple(names)
    return {name: _likely(name) for name in known if _parts(name, known) is None}


def all_sizes(names: Iterable[str], said: Mapping[str, int]) -> dict[str, int]:
    """Every open size, from those that were said.

    >>> all_sizes(["past", "past + 1"], {"past": 7})
    {'past': 7, 'past + 1': 8}
    """
    known = tuple(names)
    sums = {name: parts for name in known if (parts := _parts(name, known)) is not None}
    asked = {name: said[name] for name in known if name not in sums}
    return {
        name: sum(asked[part] if part in asked else int(part) for part in sums[name]) if name in sums else asked[name]
        for name in known
    }


def _likely(name: str) -> int:
    return next((size for pattern, size in _LIKELY if pattern.search(name)), _ELSE)


def _parts(name: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """What a size like "past + 1" is the sum of, numbers and other open sizes; None for any other name."""
    parts = tuple(part.strip() for part in name.split("+"))
    simple = {each for each in known if "+" not in each}
    is_sum = len(parts) > 1 and all(part in simple or re.fullmatch("[0-9]{1,9}", part) for part in parts)
    return parts if is_sum else None
