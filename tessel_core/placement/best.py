"""What a search over groups knows: the best split so far, and what none can beat."""

from __future__ import annotations

from dataclasses import dataclass

EQUAL_LOADS = 1e-9
"""Loads that differ by less, relatively, are sums of the same floats in another order, or of rounded ones."""


@dataclass(frozen=True)
class Split:
    """Groups onto devices."""

    load: float
    """The objective: the largest load of a device, or the sum of the largest of each pass."""
    device_of: tuple[int, ...]
    """Per group."""


@dataclass(frozen=True)
class Best:
    """The best split found, and the least load that any may have; proved where they meet."""

    split: Split | None
    bound: float
    complete: bool
    """Whether the search ended by itself, having seen all splits: then there is none better than `split`."""


def meets(best: Best) -> bool:
    """Whether nothing can be better than what was found."""
    return best.split is not None and best.bound >= best.split.load * (1 - EQUAL_LOADS)
