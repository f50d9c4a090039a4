"""Instances of laws: some that every run of the suite tries, and more that `make test-all` tries as well."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

_SHARE, _LEAST = 12, 5
"""One in so many seeds is tried each time, and so many at least."""


def seeds(start: int, stop: int | None = None) -> list[Any]:
    """As `range`; all but the first ones are marked `more`."""
    every = range(start) if stop is None else range(start, stop)
    few = max(_LEAST, len(every) // _SHARE)
    return [*every[:few], *(pytest.param(seed, marks=pytest.mark.more) for seed in every[few:])]


def examples(most: int) -> int:
    """So many examples of a law where all instances are tried, else one in five."""
    return most if "TESSEL_MORE" in os.environ else most // 5


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Every case of a law; all but one in `step` are marked `more`."""
    return [
        case if i % step == 0 else pytest.param(*_values(case), marks=pytest.mark.more) for i, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
