"""Repetends as timetables: each block of a few micro-batches (copies) gets a fixed time within the period.

Without limits on memory, the busiest device's work is a possible period for any order of its blocks, because a run may
wait for its time in the next period. Waiting costs memory, so blocks are placed as early as possible. Then blocks are
delayed at random. Delays that need no more memory are kept, until the timetable fits in memory. This is a modulo list
schedule [Rau 1994]. A block is placed only if the remaining blocks of its device still fit, tested with the longest
blocks first.
"""

from __future__ import annotations

import numpy as np

from tessel_core.compiled import compiled, inlined
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.cycles import Circles, close
from tessel_core.scheduling.kernels.tables import Tables


@compiled
def fit_period(
    tables: Tables,
    topological: IntColumn,
    period: int,
    starts: IntColumn,
    circles: Circles,
    patience: int,
    seed: int,
) -> int:
    """Look for starts, shaped (copies, blocks), that repeat every `period` ticks and fit in memory.

    Give up after `patience` tries without progress. Return the memory above the capacities, summed over devices. It is
    0 if `starts` and `circles` are a repetend. It is -1 if no try could place all blocks.
    """
    np.random.seed(seed)
    delay = np.zeros_like(starts)
    found, best, idle = np.zeros_like(starts), -1, 0
    while idle < patience:
        changed = delay.copy()
        if best >= 0 or idle:
            for _ in range(1 + np.random.randint(3)):
                u, b = np.random.randint(starts.shape[0]), np.random.randint(starts.shape[1])
                share = np.random.random() ** 2
                changed[u, b] = 0 if np.random.random() < 0.4 else np.int64(share * period)
        idle += 1
        if not _place(tables, topological, period, changed, found):
            continue
        excess = close(tables, found, period, circles)
        if best < 0 or excess <= best:
            idle = 0 if excess != best else idle
            best = excess
            delay[:] = changed
            starts[:] = found
            if excess == 0:
                return 0
    return best


@compiled
def _place(tables: Tables, topological: IntColumn, period: int, delay: IntColumn, starts: IntColumn) -> bool:
    """Fill `starts` with a timetable that ignores memory. Return False if a block cannot be placed.

    Each block starts as early as its delay, in ticks, and the blocks placed before it allow.
    """
    copies, blocks = starts.shape
    devices = tables.capacity.size
    most = copies * np.diff(tables.on_row).max()
    # For each device: occupied times in order of their residue (start modulo period), durations left to place (longest
    # first), and the number of both.
    begin, end, left = np.zeros((3, devices, most + 1), np.int64)
    taken, waiting = np.zeros((2, devices), np.int64)
    for d in range(devices):
        for i in range(tables.on_row[d], tables.on_row[d + 1]):
            left[d, waiting[d] : waiting[d] + copies] = -tables.duration[tables.on[i]]
            waiting[d] += copies
        left[d, : waiting[d]] = -np.sort(left[d, : waiting[d]])
    # Blocks on several devices are placed first and close together, so that each device keeps long free intervals.
    residue = np.full((copies, blocks), -1)
    for u in range(copies):
        at = u * period // copies
        for i in range(blocks):
            b = topological[i]
            if tables.place_row[b + 1] - tables.place_row[b] < 2:
                continue
            at += delay[u, b] % period
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                d = tables.place_device[place]
                if not _is_free(begin[d], end[d], taken[d], at % period, tables.duration[b], period):
                    return False
                _take(begin[d], end[d], left[d], taken, waiting, d, at % period, tables.duration[b])
            residue[u, b] = at % period
            at += tables.duration[b]
    for u in range(copies):
        for i in range(blocks):
            b = topological[i]
            ready = u * period // copies if tables.before_row[b] == tables.before_row[b + 1] else 0
            for arc in range(tables.before_row[b], tables.before_row[b + 1]):
                ready = max(ready, starts[u, tables.before[arc]] + tables.before_ticks[arc])
            if residue[u, b] >= 0:
                starts[u, b] = ready + (residue[u, b] - ready) % period
                continue
            ready += delay[u, b]
            d, ticks, start = tables.place_device[tables.place_row[b]], tables.duration[b], -1
            for side in range(2 * taken[d] + 1):
                at = ready
                if side > taken[d]:  # right before a placed block
                    at += (begin[d, side - taken[d] - 1] - ticks - ready) % period
                elif side > 0:  # right after a placed block
                    at += (end[d, side - 1] - ready) % period
                if (
                    (start < 0 or at < start)
                    and _is_free(begin[d], end[d], taken[d], at % period, ticks, period)
                    and _leaves_room(begin[d], end[d], left[d], taken[d], waiting[d], at % period, ticks, period)
                ):
                    start = at
            if start < 0:
                return False
            starts[u, b] = start
            _take(begin[d], end[d], left[d], taken, waiting, d, start % period, ticks)
    return True


@inlined
def _is_free(begin: IntColumn, end: IntColumn, taken: int, at: int, ticks: int, period: int) -> bool:
    """Return whether a device is free for `ticks` ticks from residue `at` on.

    `begin` and `end` have its occupied times, of which there are `taken`.
    """
    free = ticks <= period
    for i in range(taken):
        if (begin[i] - at) % period < ticks or (at - begin[i]) % period < end[i] - begin[i]:
            free = False
            break
    return free


@inlined
def _take(
    begin: IntColumn,
    end: IntColumn,
    left: IntColumn,
    taken: IntColumn,
    waiting: IntColumn,
    device: int,
    at: int,
    ticks: int,
) -> None:
    """Occupy the device for `ticks` ticks from residue `at` on, and remove this duration from `left`.

    `left` has the durations that are still to be placed, the longest first. `waiting` has their number for each device.
    """
    i = taken[device]
    while i > 0 and begin[i - 1] > at:
        begin[i], end[i] = begin[i - 1], end[i - 1]
        i -= 1
    begin[i], end[i] = at, at + ticks
    taken[device] += 1
    i = 0
    while left[i] != ticks:
        i += 1
    while i + 1 < waiting[device]:
        left[i] = left[i + 1]
        i += 1
    waiting[device] -= 1


@inlined
def _leaves_room(
    begin: IntColumn, end: IntColumn, left: IntColumn, taken: int, waiting: int, at: int, ticks: int, period: int
) -> bool:
    """Return whether all remaining durations still fit once a block occupies `ticks` ticks from residue `at` on.

    Each remaining duration, the longest first, is put into the largest gap.
    """
    gaps = np.empty(taken + 2, np.int64)
    count, last = 0, at + ticks
    # Collect the gaps of one period, from the end of this block to its next start.
    first = 0
    while first < taken and begin[first] < at:
        first += 1
    for i in range(taken):
        j = (first + i) % taken
        start = begin[j] + (period if j < first else 0)
        gaps[count] = start - last
        count, last = count + 1, start + end[j] - begin[j]
    gaps[count] = at + period - last
    count += 1
    placed_this, room = False, True
    for i in range(waiting):
        if left[i] == ticks and not placed_this:
            placed_this = True
            continue
        largest = np.argmax(gaps[:count])
        gaps[largest] -= left[i]
        if gaps[largest] < 0:
            room = False
            break
    return room
