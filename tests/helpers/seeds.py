"""Instances of laws: some that every run of the suite tries, and more that `make test-all` tries as well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

_SHARE, _LEAST = 20, 3
"""One in so many seeds is tried each time, and so many at least."""
_ALL = "TESSEL_MORE" in os.environ
"""Whether all instances are tried. Those that are not make no tests either: they are more than all others."""


def seeds(start: int, stop: int | None = None) -> range:
    """As `range`; only the first ones where not all are tried."""
    every = range(start) if stop is None else range(start, stop)
    return every if _ALL else every[: max(_LEAST, len(every) // _SHARE)]


_APART = 100_003
"""Between the seeds that stand in for each other, so that those of neighbouring cases differ."""
_MOST_TRIED = 10_000
"""Where none of so many reaches its law, the test is wrong."""


def reaching(seed: int, reaches: Callable[[int], bool]) -> int:
    """The seed itself where the law says something of its instance, else the first that does of those far apart."""
    return next(each for each in range(seed, seed + _MOST_TRIED * _APART, _APART) if reaches(each))


def examples(most: int) -> int:
    """So many examples of a law where all instances are tried, else one in five."""
    return most if _ALL else most // 5


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Every case of a law, or one in `step` where not all are tried."""
    return [case for i, case in enumerate(cases) if _ALL or i % step == 0]
