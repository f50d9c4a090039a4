"""Ranges of everything that may be chosen; their product is the grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from tessel_core.errors import InputError
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import Family, Spec, Value
from tessel_core.strategies.strategy import DEFAULT_ORDER, Strategy

MOST_CONFIGURATIONS = 200_000
"""Some minutes of work; more are refused before any is done."""

_LARGEST = 2**53

Ranges = tuple[tuple[str, tuple[Value, ...]], ...]
"""Values of sizes, by name."""


def ranges(**values: Sequence[Value]) -> Ranges:
    """As keywords.

    >>> ranges(layers=(2, 4), dtype=("fp16",))
    (('layers', (2, 4)), ('dtype', ('fp16',)))
    """
    return tuple((name, tuple(some)) for name, some in values.items())


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of the values of each field, and of a family's sizes; those not named are as usual.

    Raises
    ------
    InputError
        For a range without values or with one below 1, or, with its size, for a grid of too many configurations.
    """

    sizes: Ranges = ()
    data: tuple[int, ...] = (1,)
    tensor: tuple[int, ...] = (1,)
    pipeline: tuple[int, ...] = (1,)
    micro_batches: tuple[int, ...] = (1,)
    schedule: tuple[str, ...] = (DEFAULT_ORDER,)
    recompute: tuple[bool, ...] = (False,)
    zero: tuple[bool, ...] = (False,)
    micro_batch_size: tuple[int, ...] = ()
    """Samples; where there are any, they take the place of `micro_batches`, whose number is batch / (D · size)."""

    def __post_init__(self) -> None:
        for name, values in self._all():
            if not values:
                raise InputError(name, "its range has no values")
            numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
            if min(numbers, default=1) < 1:
                raise InputError(name, f"must be at least 1, got {min(numbers)}")
        if self.size > MOST_CONFIGURATIONS:
            why = f"has {self.size:,} configurations, more than the {MOST_CONFIGURATIONS:,} that are taken at once"
            raise InputError("grid", why)

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return math.prod(len(values) for _, values in self._all())

    def _all(self) -> list[tuple[str, tuple[object, ...]]]:
        unused = "micro_batches" if self.micro_batch_size else "micro_batch_size"
        strategies = [(each.name, getattr(self, each.name)) for each in fields(self) if each.name != unused]
        return [*self.sizes, *(pair for pair in strategies if pair[0] != "sizes")]

    def configurations(self, family: Family, devices: int | None = None) -> list[Configuration]:
        """All of them, those that take more than so many devices left out."""
        return list(self._each(family, devices))

    def too_large(self, devices: int) -> int:
        """How many take more than so many devices."""
        degrees = list(product(self.data, self.tensor, self.pipeline))
        return self.size // len(degrees) * sum(math.prod(each) > devices for each in degrees)

    def _each(self, family: Family, devices: int | None) -> Iterator[Configuration]:
        how = self.schedule, self.recompute, self.zero
        parts = self.micro_batch_size or self.micro_batches
        degrees = product(self.data, self.tensor, self.pipeline, parts, *how)
        some = [each for each in degrees if devices is None or math.prod(each[:3]) <= devices]
        strategies = [] if self.micro_batch_size else [Strategy(*each) for each in some]
        for sizes in product(*(values for _, values in self.sizes)):
            spec = family.spec(**dict(zip((name for name, _ in self.sizes), sizes, strict=True)))
            for strategy in strategies:
                yield Configuration(spec, strategy)
            if self.micro_batch_size:
                yield from (_of_size(spec, *each) for each in some)


def _of_size(spec: Spec, data: int, tensor: int, pipeline: int, size: int, *how: Any) -> Configuration:
    """With as many whole micro-batches of so many samples as there are."""
    count = max(1, spec.batch // (data * size))
    return Configuration(spec, Strategy(data, tensor, pipeline, count, *how), size)


def doubling(most: int) -> tuple[int, ...]:
    """Powers of two up to a number.

    >>> doubling(12)
    (1, 2, 4, 8)
    """
    return tuple(1 << i for i in range(most.bit_length())) if most > 0 else ()


def read_range(words: str, what: str) -> tuple[int, ...]:
    """Numbers as people write them; InputError, naming `what`, for anything else.

    >>> read_range("1, 3..5, 8..64x2", "data")
    (1, 3, 4, 5, 8, 16, 32, 64)
    """
    found: dict[int, None] = {}
    for part in filter(None, (each.strip() for each in words.split(","))):
        found.update(dict.fromkeys(_part(part, what)))
    return tuple(found)


def _part(part: str, what: str) -> Iterator[int]:
    first, dots, rest = part.partition("..")
    last, times, factor = rest.partition("x")
    numbers = [first, *([last] if dots else []), *([factor] if times else [])]
    if not all(number.strip().isascii() and number.strip().isdigit() and int(number) <= _LARGEST for number in numbers):
        raise InputError(what, f"must be numbers and ranges such as 1,3..5 or 1..64x2, got {part!r}")
    low, high = int(first), int(last) if dots else int(first)
    if times and (int(factor) < 2 or low < 1):
        raise InputError(what, f"multiplies by 2 or more and begins at 1 or more, got {part!r}")
    if not times and high - low >= MOST_CONFIGURATIONS:
        why = f"{part!r} has {high - low + 1:,} values, more than the {MOST_CONFIGURATIONS:,} that are taken at once"
        raise InputError(what, why)
    while low <= high:
        yield low
        low = low * int(factor) if times else low + 1
