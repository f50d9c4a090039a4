"""Cut a chain of layers into contiguous stages, with the smallest possible load on the busiest device."""

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
    """Join consecutive parts into one stage per entry of `places`, and return the stages.

    The cut minimizes the load of the busiest device. `places` are the devices of the stages.
    """
    cut = shared_cut([part.work for part in parts], places)
    return tuple(join(*(parts[i] for i in stage)) for stage in cut)


def best_cut(loads: Sequence[int], stages: int) -> tuple[range, ...]:
    """Cut `loads` into non-empty contiguous ranges, one per stage, and return the ranges.

    The largest sum of a range is minimal. Among the cuts with this sum, the sum of squares is minimal, which makes the
    stages even. If several cuts remain, the one with the shortest early stages is returned, because early stages hold
    the most micro-batches.

    >>> best_cut([1, 1, 1, 1, 9], 3)
    (range(0, 2), range(2, 4), range(4, 5))

    Raises InputError if there are more stages than loads.
    """
    if not 1 <= stages <= len(loads):
        raise InputError("stages", f"must be between 1 and the number of parts, {len(loads)}, got {stages}")
    sums = [0, *accumulate(loads)]
    most, _ = _cheapest(sums, stages, float, max)
    _, ends = _cheapest(sums, stages, lambda load: load**2 if load <= most else inf, add)
    return tuple(range(first, last) for first, last in pairwise((0, *ends)))


def _cheapest(
    sums: Sequence[int], stages: int, cost: Callable[[int], float], both: Callable[[float, float], float]
) -> tuple[float, tuple[int, ...]]:
    """Return the smallest total cost of a cut into `stages` ranges, and the end of each range.

    `sums` are prefix sums of the loads. `cost` maps the load of a range to its cost, and `both` combines the costs of
    two ranges.
    """
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
    """Cut `loads` into one range per entry of `places`, and return the ranges.

    `places` are devices, and a device may have several ranges. The largest total load of a device is to be small. If
    all devices differ, the cut is that of `best_cut`, which is optimal. Otherwise a local search moves the ends of
    neighbouring ranges, as long as the largest load falls or the sum of squares falls at the same largest load.

    The search starts from `best_cut`. If each device appears twice, the second time in the same or in reverse order
    (loop, ZB-V), it may also start from the result of a dynamic program. That program found the optimum of brute force
    in 1,500 small cases.
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

    initial = (0, *(stage.stop for stage in cut))
    ends, moved = tuple[int, ...](), min([initial, *_cut_in_two_rounds(loads, places)], key=unevenness)
    while ends != moved:
        ends, inner = moved, range(1, len(places))
        shifts = ((low, high, by) for low in inner for high in inner if low <= high for by in (-1, 1))
        moves = (tuple(e + by * (low <= i <= high) for i, e in enumerate(ends)) for low, high, by in shifts)
        moved = min((ends, *moves), key=unevenness)
    return tuple(range(first, last) for first, last in pairwise(ends))


def _cut_in_two_rounds(loads: Sequence[int], places: Sequence[int]) -> list[tuple[int, ...]]:
    """Return at most one list of range ends for devices that appear twice each, or no list for other `places`.

    The largest load of a device is small, but not proven to be minimal.
    """
    half, whole = len(places) // 2, len(loads)
    first, second = tuple(places[:half]), tuple(places[half:])
    if second not in (first, first[::-1]) or len(set(first)) < half:
        return []
    middles = range(half, whole - half + 1) if second == first else (None,)
    best, most, least = tuple[int, ...](), sum(loads), ceil(sum(loads) / half) - 1
    for backwards, middle in product(
        (False, True), middles
    ):  # A larger end is not always better, so both directions are tried.
        ordered, low, limit = loads[::-1] if backwards else loads, least, most - 1
        while low < most - 1:
            ends = _within(limit, ordered, half, middle)
            if ends:
                best, most = tuple(whole - end for end in reversed(ends)) if backwards else ends, limit
            else:
                low = limit
            limit = (low + most) // 2
    return [best] if best else []


def _within(limit: int, loads: Sequence[int], devices: int, middle: int | None) -> tuple[int, ...]:
    """Return the ends of all ranges such that no device's load exceeds `limit`, or () if the search finds none.

    Each device has two ranges. The second ranges start at `middle`; if it is None, they run backwards from the end. A
    dynamic program computes, for each device and each end of its first range, the largest possible end of its second
    range.
    """
    whole = len(loads)
    there, back = _sums(loads[:middle]), _sums(loads[::-1] if middle is None else loads[middle:])
    inside = np.arange(len(there))
    reached, steps = np.where(inside > 0, -1, 0), list[tuple[IntColumn, IntColumn]]()
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
        steps.append((reached, before))
    needed = whole - inside if middle is None else np.where(inside == middle, len(back) - 1, -2)
    last = np.flatnonzero((reached == needed) & (reached > 0))
    if not last.size:
        return ()
    at, firsts, seconds = int(last[0]), list[int](), list[int]()
    for reached, before in reversed(steps):
        firsts.append(at)
        seconds.append(int(reached[at]))
        at = int(before[at])
    if middle is None:
        return 0, *firsts[::-1], *(whole - end for end in seconds[1:]), whole
    return 0, *firsts[::-1], *(middle + end for end in seconds[::-1])


def _sums(loads: Sequence[int]) -> NDArray[np.int64]:
    return np.array([0, *accumulate(loads)], dtype=np.int64)
