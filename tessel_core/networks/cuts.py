"""Layers one after the other cut into stages of which the busiest device is least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, product
from math import ceil, inf
from operator import add

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.model.schedule import IntColumn
from tessel_core.networks.layer_costs import Part, join


def cut_stages(parts: Sequence[Part], places: Sequence[int]) -> tuple[Part, ...]:
    """The parts as contiguous stages, one for each of some devices, of which the busiest device is least."""
    cut = shared_cut([part.work for part in parts], places)
    return tuple(join(*(parts[i] for i in stage)) for stage in cut)


def best_cut(loads: Sequence[int], stages: int) -> tuple[range, ...]:
    """The contiguous ranges of `loads`, one a stage and none empty, whose largest sum is least.

    Among cuts of the same largest sum it takes the least sum of squares, so that the other stages are even, and among
    those the one whose early stages are short, because they hold the most micro-batches.

    >>> best_cut([1, 1, 1, 1, 9], 3)
    (range(0, 2), range(2, 4), range(4, 5))

    Raises InputError when there are more stages than parts.
    """
    if not 1 <= stages <= len(loads):
        raise InputError("stages", f"must be between 1 and the {len(loads)} parts there are, got {stages}")
    sums = [0, *accumulate(loads)]
    most, _ = _cheapest(sums, stages, float, max)
    _, ends = _cheapest(sums, stages, lambda load: load**2 if load <= most else inf, add)
    return tuple(range(first, last) for first, last in pairwise((0, *ends)))


def _cheapest(
    sums: Sequence[int], stages: int, cost: Callable[[int], float], both: Callable[[float, float], float]
) -> tuple[float, tuple[int, ...]]:
    """The least cost of all stages together, and their ends; `sums` are those of the first parts."""
    best: list[tuple[float, tuple[int, ...]]] = [(cost(total), (end,)) for end, total in enumerate(sums)]
    for count in range(2, stages + 1):
        best = [
            min(
                (
                    (both(best[cut][0], cost(sums[end] - sums[cut])), (*best[cut][1], end))
                    for cut in range(count - 1, end)
                ),
                default=(inf, ()),
            )
            for end in range(len(sums))
        ]
    return best[-1]


def shared_cut(loads: Sequence[int], places: Sequence[int]) -> tuple[range, ...]:
    """As `best_cut`, a range for each of `places`, of which several may be the same device: then the largest sum of a
    device counts.

    Exact where all places differ.  Where each comes twice, the second time in the same order or in the reverse one (a
    loop, ZB-V), whole cuts are searched by what the two stages of each device can reach, which was never worse than
    brute force in 1,500 small cases.  From there, else from the best cut of equal stages, ends move, any neighbouring
    ones together, as long as the largest sum of a device falls, or at the same largest the sum of squares.
    """
    cut = best_cut(loads, len(places))
    if len(set(places)) == len(places):
        return cut
    sums = [0, *accumulate(loads)]

    def unevenness(ends: tuple[int, ...]) -> tuple[float, float]:
        held = dict.fromkeys(places, 0.0)
        for place, (first, last) in zip(places, pairwise(ends), strict=True):
            held[place] += sums[last] - sums[first] if first < last else inf
        return max(held.values()), sum(load**2 for load in held.values())

    begin = (0, *(stage.stop for stage in cut))
    ends, moved = tuple[int, ...](), min([begin, *_cut_in_two_rounds(loads, places)], key=unevenness)
    while ends != moved:
        ends, inner = moved, range(1, len(places))
        shifts = ((low, high, by) for low in inner for high in inner if low <= high for by in (-1, 1))
        moves = (tuple(e + by * (low <= i <= high) for i, e in enumerate(ends)) for low, high, by in shifts)
        moved = min((ends, *moves), key=unevenness)
    return tuple(range(first, last) for first, last in pairwise(ends))


def _cut_in_two_rounds(loads: Sequence[int], places: Sequence[int]) -> list[tuple[int, ...]]:
    """0 and the ends of a cut of least largest sum, where each place comes twice; empty where they do not so."""
    half, whole = len(places) // 2, len(loads)
    first, second = tuple(places[:half]), tuple(places[half:])
    if second not in (first, first[::-1]) or len(set(first)) < half:
        return []
    middles = range(half, whole - half + 1) if second == first else (None,)
    found, most, least = tuple[int, ...](), sum(loads), ceil(sum(loads) / half) - 1
    for turned, middle in product((False, True), middles):  # what reaches further is not always better: both ways
        walked, low, limit = loads[::-1] if turned else loads, least, most - 1
        while low < most - 1:
            ends = _within(limit, walked, half, middle)
            if ends:
                found, most = tuple(whole - end for end in reversed(ends)) if turned else ends, limit
            else:
                low = limit
            limit = (low + most) // 2
    return [found] if found else []


def _within(limit: int, loads: Sequence[int], devices: int, middle: int | None) -> tuple[int, ...]:
    """0 and the ends of a cut in two rounds in which no device has more than `limit`; empty where there is none.

    The second round begins at `middle`, or comes back from the end.  After each device, by the end of its first stage:
    the most that its second can end at.
    """
    whole = len(loads)
    there, back = _sums(loads[:middle]), _sums(loads[::-1] if middle is None else loads[middle:])
    inside = np.arange(len(there))
    reached, came = np.where(inside > 0, -1, 0), list[tuple[IntColumn, IntColumn]]()
    room = limit - (there[None, :] - there[:, None])
    for after in reversed(range(devices)):
        if middle is None:
            most = whole - inside - 2 * after
        else:
            most = np.where(inside <= middle - after, len(back) - 1 - after, -1)
        ends = np.searchsorted(back, back[reached][:, None] + room, side="right") - 1
        ends = np.minimum(ends, most[None, :])
        ends[(inside[:, None] >= inside[None, :]) | (reached[:, None] < 0) | (ends <= reached[:, None])] = -1
        reached, before = ends.max(axis=0), ends.argmax(axis=0)
        came.append((reached, before))
    needed = whole - inside if middle is None else np.where(inside == middle, len(back) - 1, -2)
    last = np.flatnonzero((reached == needed) & (reached > 0))
    if not last.size:
        return ()
    at, firsts, seconds = int(last[0]), list[int](), list[int]()
    for reached, before in reversed(came):
        firsts.append(at)
        seconds.append(int(reached[at]))
        at = int(before[at])
    if middle is None:
        return 0, *firsts[::-1], *(whole - end for end in seconds[1:]), whole
    return 0, *firsts[::-1], *(middle + end for end in seconds[::-1])


def _sums(loads: Sequence[int]) -> NDArray[np.int64]:
    return np.array([0, *accumulate(loads)], dtype=np.int64)
