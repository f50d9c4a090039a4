"""Intervals of time that do not overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64] | NDArray[np.int64]


def worked_until(times: Numbers, start: Numbers, duration: Numbers) -> NDArray[np.float64]:
    """Return, for each of `times`, the total length of the intervals up to that time.

    The intervals must be disjoint and sorted by start.

    >>> worked_until(np.array([0, 1, 4, 9]), np.array([0, 3]), np.array([2, 2])).tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    if not len(start):
        return np.zeros(len(times))
    done = np.concatenate(([0.0], np.cumsum(duration)))
    begun = np.searchsorted(start, times, side="right")
    last = np.maximum(begun - 1, 0)
    unfinished = np.maximum(start[last] + duration[last] - times, 0) * (begun > 0)
    worked: NDArray[np.float64] = done[begun] - unfinished
    return worked
