"""Choose the number of layers of each pipeline stage so that the slowest stage is as fast as possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def balanced(costs: Sequence[Matrix]) -> tuple[int, ...] | None:
    """Return the number of layers of each stage that minimizes the largest cost. None if no division is possible.

    Parameters
    ----------
    costs
        For each stage, an array of shape (layers + 1, layers + 1). Its element [i, j] is the cost of layers i to
        j - 1. It is infinite if these layers do not fit.
    """
    from tessel_core.strategies.kernels import extended

    layers = len(costs[0]) - 1
    best = np.full(layers + 1, np.inf)
    best[0] = 0.0
    choices = list[NDArray[np.int64]]()
    for cost in costs:
        best, choice = extended(best, cost)
        choices.append(choice)
    if not np.isfinite(best[-1]):
        return None
    ends, end = [layers], layers
    for choice in reversed(choices):
        end = int(choice[end])
        ends.append(end)
    return tuple(int(size) for size in np.diff(ends[::-1]))


def sums(column: NDArray[np.float64]) -> Matrix:
    """Return the array whose element [i, j] is the sum of the column's elements i to j - 1."""
    total = np.concatenate(([0.0], np.cumsum(column)))
    return np.asarray(total[None, :] - total[:, None])


def maxima(column: NDArray[np.float64]) -> Matrix:
    """Return the array whose element [i, j] is the maximum of the column's elements i to j - 1, and 0 if i >= j."""
    count = len(column)
    found = np.zeros((count + 1, count + 1))
    for first in range(count):
        found[first, first + 1 :] = np.maximum.accumulate(column[first:])
    return found
