"""Search for the steady state of a finished schedule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tessel_core.model import SteadyState
from tessel_core.model.schedule import IntColumn

_MAX_UNROLL = 16


def find_steady_state(starts: IntColumn, period: int | None = None, unroll: int | None = None) -> SteadyState | None:
    """Return the longest steady state of `starts`, or None if nothing repeats.

    `starts` is shaped (micro-batches, blocks). A steady state is a range of micro-batches in which every block starts
    micro-batch m + unroll exactly `period` ticks after micro-batch m. If `period` or `unroll` is given, only steady
    states with that value count. Without a given `period`, a steady state counts only if it contains a complete
    instance of the repetend. The length of a steady state is its number of micro-batches minus two unrolls. Among equal
    lengths, the smallest unroll is chosen.
    """
    candidates: list[SteadyState] = []
    unrolls = range(1, min(_MAX_UNROLL, len(starts) - 1) + 1) if unroll is None else [unroll]
    for u in unrolls:
        if u >= len(starts):
            continue
        steps = starts[u:] - starts[:-u]
        repeats = (steps == steps[:, :1]).all(axis=1) & (steps[:, 0] > 0)
        if period is not None:
            repeats &= steps[:, 0] == period
        stretch = _longest_stretch(np.where(repeats, steps[:, 0], -1))
        if stretch is None:
            continue
        first, last, step = stretch
        steady = SteadyState(step, u, first, last + u)
        if period is not None or holds_instance(starts, steady):
            candidates.append(steady)
    return max(candidates, key=lambda s: s.last_micro_batch - s.first_micro_batch - 2 * s.unroll, default=None)


def _longest_stretch(steps: IntColumn) -> tuple[int, int, int] | None:
    """Return the first index, last index and value of the longest sequence of equal values >= 0 in `steps`, or None.

    The first of equally long sequences wins.
    """
    ends = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    stretches = ((first, beyond - 1, int(steps[first])) for first, beyond in pairwise(ends) if steps[first] >= 0)
    return max(stretches, key=lambda stretch: stretch[1] - stretch[0], default=None)


def holds_instance(starts: IntColumn, steady: SteadyState) -> bool:
    """Return whether, in some period of the steady state, each block runs `unroll` times."""
    pattern = starts[steady.first_micro_batch : steady.first_micro_batch + steady.unroll]
    k = (pattern - pattern.min()) // steady.period
    turns = (steady.last_micro_batch - steady.first_micro_batch + 1) // steady.unroll
    return turns > int(k.max())
