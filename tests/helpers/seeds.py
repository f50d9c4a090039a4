"""Random instances for property tests: some for every run of the suite, and more for `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

_SHARE, _MIN_SEEDS = 20, 3
"""By default, one in 20 seeds is tried, and at least 3."""
_ALL = "TESSEL_MORE" in os.environ
"""Whether all instances are tried.

Instances that are not tried are not collected, because they would outnumber all tests.
"""


def seeds(start: int, stop: int | None = None) -> range:
    """Return `range(start, stop)`, or only its first seeds by default."""
    every = range(start) if stop is None else range(start, stop)
    return every if _ALL else every[: max(_MIN_SEEDS, len(every) // _SHARE)]


_APART = 100_003
"""Distance between a seed and its replacements, so that neighbouring cases get different seeds."""
_MAX_ATTEMPTS = 10_000
"""If no seed of this many satisfies the condition, the test is wrong."""


def reaching(seed: int, reaches: Callable[[int], bool]) -> int:
    """Return the seed if `reaches(seed)`, else the first of its replacements that satisfies the condition."""
    return next(each for each in range(seed, seed + _MAX_ATTEMPTS * _APART, _APART) if reaches(each))


def examples(most: int) -> int:
    """Return `most` if all instances are tried, else a fifth of it."""
    return most if _ALL else most // 5


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases if all are tried, else one in `step`."""
    return [case for i, case in enumerate(cases) if _ALL or i % step == 0]
