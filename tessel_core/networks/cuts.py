"""Cut a chain of parts into contiguous stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tessel_core.errors import InputError

_Cut = tuple[float, tuple[int, ...]]
"""(sum of squares, ends of the stages)"""


def best_cut(loads: Sequence[float], stages: int) -> tuple[range, ...]:
    """The contiguous ranges of `loads`, one a stage and none empty, whose largest sum is least.

    Exact for integers.  Among cuts of the same largest sum it takes the least sum of squares, so that the other stages
    are even, and among those the one whose early stages are short, because they hold the most micro-batches.

    >>> best_cut([1, 1, 1, 1, 9], 3)
    (range(0, 2), range(2, 4), range(4, 5))

    Raises
    ------
    InputError
        When there are more stages than parts.
    """
    if not 1 <= stages <= len(loads):
        raise InputError("stages", f"must be between 1 and the {len(loads)} parts there are, got {stages}")
    sums = [0, *accumulate(loads)]
    ends = _evenest(sums, stages, _least_largest(sums, stages))
    return tuple(range(first, last) for first, last in pairwise((0, *ends)))


def _least_largest(sums: list[float], stages: int) -> float:
    """Least load of the busiest stage; in each round, `best[e]` is that of the first e parts in `count` stages."""
    best = list(sums)
    for count in range(2, stages + 1):
        best = [
            min((max(best[cut], sums[end] - sums[cut]) for cut in range(count - 1, end)), default=float("inf"))
            for end in range(len(sums))
        ]
    return best[-1]


def _evenest(sums: list[float], stages: int, most: float) -> tuple[int, ...]:
    """Ends of the stages of the cut of least sum of squares among those whose stages all stay within `most`."""
    best: list[_Cut] = [(total**2 if total <= most else float("inf"), (end,)) for end, total in enumerate(sums)]
    for count in range(2, stages + 1):
        longer: list[_Cut] = []
        for end in range(len(sums)):
            found: list[_Cut] = [(float("inf"), ())]
            for cut in range(count - 1, end):
                load = sums[end] - sums[cut]
                if load <= most:
                    found.append((best[cut][0] + load**2, (*best[cut][1], end)))
            longer.append(min(found))
        best = longer
    return best[-1][1]
