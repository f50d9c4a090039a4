"""Repetends as circular orders: their exact period, and a tabu search that shortens it.

A repetend is a schedule of `copies` micro-batches that repeats with a *period*. On every device, its runs follow each
other in a *circle*. An arc leads from each run to the next one in the circle. The *height* of an arc is the number of
periods from its source to its target: start(target) + height · period >= start(source) + duration(source). Dependencies
are arcs of height 0. The least period is the largest ratio of ticks to height over all cycles of arcs. The cycles with
this ratio are *critical*. Howard's policy iteration finds one [Cochet-Terrasson et al. 1998; Dasdan 2004].

The tabu search reverses two neighbours on a critical cycle. As in whole schedules (`kernels.orders`), this never forms
a cycle of height 0. The memory of a device depends only on the order of its runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.orders import run_at
from tessel_core.scheduling.kernels.tables import Tables

Floats = NDArray[np.float64]

_TENURE = 6
"""Least number of steps for which a reversed pair is tabu."""
_TABU_SLOTS = 2**18
"""Number of slots in the hash table of tabu pairs."""
_MAX_ROUNDS = 300
"""Largest number of rounds of policy iteration.

A few rounds are usually enough. More rounds mean that rounding errors prevent the end of the iteration.
"""
_PRECISION = 1e-9
"""Differences below this fraction of the period count as rounding errors."""
_NOWHERE = -1e300


class Circles(NamedTuple):
    """Circular orders of the runs on each device, with one entry per stop.

    A stop is a run on one of its devices, numbered as in `Tables`. `following` and `preceding` are the next and the
    previous stop in the circle. `height` is the height of the arc to the next stop. `held` is the memory that the
    device holds before the stop.
    """

    following: IntColumn
    preceding: IntColumn
    height: IntColumn
    held: IntColumn


class Timing(NamedTuple):
    """The arcs into every run, and the state of policy iteration, which chooses one *binding* arc into each run.

    The arcs into a run come from its predecessors in the plan, then from the previous stop on each of its devices, and
    last from the run with the previous number. This last arc is a *joining* arc. Joining arcs connect all runs, and are
    so high that none of them is on a critical cycle.
    """

    row: IntColumn
    """The arcs into run i are `row[i]` … `row[i + 1] - 1`."""
    source: IntColumn
    ticks: IntColumn
    height: IntColumn
    binding: IntColumn
    """For each run, the index of the arc that determines its start."""
    head: Floats
    """Longest path from a critical cycle to each run. An arc has the length ticks - period · height."""
    mark: IntColumn
    trail: IntColumn
    far: IntColumn
    """Array with one number: the height of joining arcs.

    If arcs have negative heights, `least_period` uses a height that is larger by their sum.
    """


@compiled
def no_circles(tables: Tables, copies: int) -> Circles:
    """Return circles for `copies` micro-batches. All numbers are 0, and the caller sets them."""
    stops = copies * tables.place_device.size
    return Circles(
        np.zeros(stops, np.int64), np.zeros(stops, np.int64), np.zeros(stops, np.int64), np.zeros(stops, np.int64)
    )


@compiled
def close(tables: Tables, starts: IntColumn, period: int, circles: Circles) -> int:
    """Fill `circles` with the order of `starts`, shaped (copies, blocks), modulo `period`.

    Runs may overlap, because only the order of their starts matters. Return the memory above the capacities, summed
    over devices.
    """
    copies, places, excess = starts.shape[0], tables.place_device.size, 0
    for d in range(tables.capacity.size):
        first, last = tables.on_row[d], tables.on_row[d + 1]
        runs = (last - first) * copies
        if not runs:
            continue
        stop, within, turn = np.empty(runs, np.int64), np.empty(runs, np.int64), np.empty(runs, np.int64)
        held, i = 0, 0
        for b in tables.on[first:last]:
            place = tables.place_row[b]
            while tables.place_device[place] != d:
                place += 1
            for u in range(copies):
                stop[i] = u * places + place
                turn[i], within[i] = starts[u, b] // period, starts[u, b] % period
                held -= tables.memory[b] * turn[i]
                i += 1
        order = np.argsort(within, kind="mergesort")
        most = 0
        for i in range(runs):
            here, there = order[i], order[(i + 1) % runs]
            circles.following[stop[here]], circles.preceding[stop[there]] = stop[there], stop[here]
            circles.height[stop[here]] = turn[here] - turn[there] + (i == runs - 1)
            circles.held[stop[here]] = held
            held += tables.memory[tables.place_block[stop[here] % places]]
            most = max(most, held)
        excess += max(0, most - tables.capacity[d])
    return excess


@compiled
def timing_of(tables: Tables, circles: Circles) -> Timing:
    """Return a new `Timing` with the arcs of `circles`.

    At first, the binding arc of each run comes from the previous run on its first device.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    runs = circles.following.size // places * blocks
    row = np.zeros(runs + 1, np.int64)
    for run in range(runs):
        row[run + 1] = row[run] + _dependencies(tables, run % blocks) + _places(tables, run % blocks) + 1
    arcs = row[runs]
    timing = Timing(
        row,
        np.empty(arcs, np.int64),
        np.empty(arcs, np.int64),
        np.empty(arcs, np.int64),
        np.empty(runs, np.int64),
        np.zeros(runs),
        np.zeros(runs, np.int64),
        np.zeros(runs, np.int64),
        np.zeros(1, np.int64),
    )
    for run in range(runs):
        timing.binding[run] = row[run] + _dependencies(tables, run % blocks)
    _lay(tables, circles, timing)
    return timing


@inlined
def _dependencies(tables: Tables, block: int) -> int:
    return int(tables.before_row[block + 1] - tables.before_row[block])


@inlined
def _places(tables: Tables, block: int) -> int:
    return int(tables.place_row[block + 1] - tables.place_row[block])


@compiled
def _lay(tables: Tables, circles: Circles, timing: Timing) -> None:
    """Write the arcs of `circles` to `timing`, and set `timing.far`."""
    blocks, runs = tables.duration.size, timing.binding.size
    work, longest = 0, 0
    for d in range(tables.capacity.size):
        work = max(work, tables.duration[tables.on[tables.on_row[d] : tables.on_row[d + 1]]].sum())
    for run in range(runs):
        m, b, arc = run // blocks, run % blocks, timing.row[run]
        most = tables.duration.max()
        for i in range(tables.before_row[b], tables.before_row[b + 1]):
            timing.source[arc], timing.ticks[arc], timing.height[arc] = (
                m * blocks + tables.before[i],
                tables.before_ticks[i],
                0,
            )
            most = max(most, tables.before_ticks[i])
            arc += 1
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            _lay_stop(tables, circles, timing, m * tables.place_device.size + place)
            arc += 1
        timing.source[arc], timing.ticks[arc], timing.height[arc] = (run - 1) % runs, 0, 0
        longest += most if m == 0 else 0
    # Large enough that no cycle through a joining arc is critical. A cycle has at most the ticks of all runs, and a
    # period is at least the busiest device's work.
    timing.far[0] = 2 + 2 * longest // work


@inlined
def _lay_stop(tables: Tables, circles: Circles, timing: Timing, stop: int) -> None:
    """Write the arc that leads into `stop` from the previous stop on its device."""
    blocks, places = tables.duration.size, tables.place_device.size
    m, place = stop // places, stop % places
    b = tables.place_block[place]
    arc = timing.row[m * blocks + b] + _dependencies(tables, b) + place - tables.place_row[b]
    before = circles.preceding[stop]
    other = run_at(tables, before)
    timing.source[arc], timing.ticks[arc] = other, tables.duration[other % blocks]
    timing.height[arc] = circles.height[before]


@compiled
def least_period(timing: Timing) -> tuple[float, int]:
    """Return the least period in ticks, and a run on a critical cycle.

    Return (infinity, -1) if no period is possible for this order. The function also sets `timing.head` to the longest
    path from that run to each run.
    """
    row, source, ticks, height, binding, head = timing[:6]
    far = timing.far[0] - np.minimum(height, 0).sum()
    for run in range(binding.size):
        height[row[run + 1] - 1] = far
    for _ in range(_MAX_ROUNDS):
        period, root = _worst_circle(timing)
        if root < 0:
            return np.inf, -1
        _measure(timing, period, root)
        settled = True
        for run in range(binding.size):
            longest, best = head[run] + _PRECISION * period, -1
            for arc in range(row[run], row[run + 1] - 1):
                way = head[source[arc]] + ticks[arc] - period * height[arc]
                if way > longest:
                    longest, best = way, arc
            if best >= 0:
                binding[run], head[run] = best, longest
                settled = False
        if settled:
            return period, root
    return np.inf, -1


@compiled
def _worst_circle(timing: Timing) -> tuple[float, int]:
    """Return the largest ratio of ticks to height over the cycles of binding arcs, and a run on that cycle.

    Return (infinity, -1) if a cycle has a height of 0 or less.
    """
    binding, mark = timing.binding, timing.mark
    period, root = -1.0, -1
    mark[:] = -1
    for first in range(binding.size):
        run = first
        while mark[run] == -1:
            mark[run] = first
            run = timing.source[binding[run]]
        if mark[run] != first:
            continue
        ticks, height, on_circle = 0, 0, run
        while True:
            arc = binding[on_circle]
            on_circle, ticks, height = timing.source[arc], ticks + timing.ticks[arc], height + timing.height[arc]
            if on_circle == run:
                break
        if height <= 0:
            return np.inf, -1
        if ticks / height > period:
            period, root = ticks / height, run
    return period, root


@compiled
def time_runs(timing: Timing, period: int, starts: IntColumn) -> bool:
    """Fill `starts`, one entry per run, with the earliest starts from 0 on that repeat every `period` ticks.

    Return False if no starts repeat with this period. Runs are visited in order of `timing.head`, which `least_period`
    has set. So a few rounds are enough.
    """
    runs = starts.size
    starts[:] = 0
    first_to_last = np.argsort(timing.head)
    longest = period * (2 * runs - np.minimum(timing.height, 0).sum())
    for _ in range(runs + 1):
        moved = False
        for run in first_to_last:
            start = starts[run]
            for arc in range(timing.row[run], timing.row[run + 1] - 1):
                start = max(start, starts[timing.source[arc]] + timing.ticks[arc] - timing.height[arc] * period)
            if start > starts[run]:
                starts[run] = start
                moved = True
        if not moved:
            return True
        if starts.max() > longest:  # only a cycle with more ticks than height · period makes starts this large
            return False
    return False


@compiled
def _measure(timing: Timing, period: float, root: int) -> None:
    """Set `timing.head` to the path from `root` to every run along the binding arcs.

    A run whose binding arcs do not lead back to `root` gets another binding arc.
    """
    row, source, ticks, height, binding, head, mark, trail, _ = timing
    unknown, known, seen, adrift = 0, 1, 2, 3
    mark[:] = unknown
    mark[root] = known
    left = 0
    for first in range(binding.size):
        run, steps = first, 0
        while mark[run] == unknown:
            mark[run], trail[steps] = seen, run
            steps += 1
            run = source[binding[run]]
        reached = mark[run] == known
        for i in range(steps - 1, -1, -1):
            run = trail[i]
            mark[run] = known if reached else adrift
            if reached:
                arc = binding[run]
                head[run] = head[source[arc]] + ticks[arc] - period * height[arc]
            else:
                left += 1
    while left:
        for run in range(binding.size):
            if mark[run] == known:
                continue
            longest, best = _NOWHERE, -1
            for arc in range(row[run], row[run + 1]):
                if mark[source[arc]] == known and head[source[arc]] + ticks[arc] - period * height[arc] > longest:
                    longest, best = head[source[arc]] + ticks[arc] - period * height[arc], arc
            if best >= 0:
                binding[run], head[run], mark[run] = best, longest, known
                left -= 1


@compiled
def _set_tails(timing: Timing, period: float, root: int, tail: Floats) -> None:
    """Set `tail` to the longest path from each run to `root`.

    Lengths are as in `Timing.head`. Late runs are visited first, because this needs fewer rounds.
    """
    tail[:] = _NOWHERE
    tail[root] = 0.0
    latest_first = np.argsort(-timing.head)
    for _ in range(_MAX_ROUNDS):
        moved = False
        for run in latest_first:
            if tail[run] == _NOWHERE:
                continue
            for arc in range(timing.row[run], timing.row[run + 1] - 1):
                source = timing.source[arc]
                way = tail[run] + timing.ticks[arc] - period * timing.height[arc]
                if way > tail[source] + _PRECISION * period and source != root:
                    tail[source] = way
                    moved = True
        if not moved:
            return


@compiled
def _may_reverse(tables: Tables, circles: Circles, early: int, late: int) -> bool:
    """Return whether the run at stop `late` may move right before its neighbour at `early`, on all devices of both."""
    places = tables.place_device.size
    m, b, n, c = early // places, tables.place_block[early % places], late // places, tables.place_block[late % places]
    if b == c:
        return False
    height = circles.height[early]
    if m == n and height == 0:
        for arc in range(tables.before_row[c], tables.before_row[c + 1]):
            if tables.before[arc] == b:
                return False
    gained = max(0, tables.memory[c], tables.memory[c] + max(0, tables.memory[b]))
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        for other in range(tables.place_row[c], tables.place_row[c + 1]):
            d, stop = tables.place_device[place], m * places + place
            if tables.place_device[other] != d:
                continue
            if circles.following[stop] != n * places + other or circles.height[stop] != height:
                return False
            if circles.preceding[stop] == n * places + other:  # only two runs on the device: nothing to gain
                return False
            if circles.held[stop] + gained > tables.capacity[d]:
                return False
    return True


@compiled
def _reverse(tables: Tables, circles: Circles, timing: Timing, early: int, late: int) -> None:
    """Move the run at stop `late` right before its neighbour at stop `early`, on all devices that both occupy."""
    places = tables.place_device.size
    b, c = tables.place_block[early % places], tables.place_block[late % places]
    following, preceding, height, held = circles
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        for other in range(tables.place_row[c], tables.place_row[c + 1]):
            if tables.place_device[place] != tables.place_device[other]:
                continue
            u, v = early // places * places + place, late // places * places + other
            before, after = preceding[u], following[v]
            between = height[u]
            following[before], preceding[v] = v, before
            following[v], preceding[u] = u, v
            following[u], preceding[after] = after, u
            height[before] += between
            height[u] = between + height[v]
            height[v] = -between
            held[v] = held[u]
            held[u] += tables.memory[c]
            for stop in (v, u, after):
                _lay_stop(tables, circles, timing, stop)


@compiled
def _promise(
    tables: Tables, circles: Circles, head: Floats, tail: Floats, period: float, early: int, late: int
) -> float:
    """Return an estimate of the length of the longest cycle through either run after their reversal.

    The runs are those at the stops `early` and `late`. A cycle has the length ticks - period · height, so a length
    above 0 means a longer period.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    first, second = run_at(tables, early), run_at(tables, late)
    m, b, n, c = first // blocks, first % blocks, second // blocks, second % blocks
    up = period * circles.height[early]
    start = _NOWHERE
    for arc in range(tables.before_row[c], tables.before_row[c + 1]):
        start = max(start, head[n * blocks + tables.before[arc]] + tables.before_ticks[arc])
    for place in range(tables.place_row[c], tables.place_row[c + 1]):
        stop = circles.preceding[n * places + place]
        height = circles.height[stop]
        if run_at(tables, stop) == first:
            stop = circles.preceding[stop]
            height += circles.height[stop]
        other = run_at(tables, stop)
        start = max(start, head[other] + tables.duration[other % blocks] - period * height)
    later = start + tables.duration[c] + up
    for arc in range(tables.before_row[b], tables.before_row[b + 1]):
        later = max(later, head[m * blocks + tables.before[arc]] + tables.before_ticks[arc])
    rest = _NOWHERE
    for arc in range(tables.after_row[b], tables.after_row[b + 1]):
        rest = max(rest, tail[m * blocks + tables.after[arc]] + tables.after_ticks[arc])
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        stop = m * places + place
        height, stop = circles.height[stop], circles.following[stop]
        if run_at(tables, stop) == second:
            height, stop = height + circles.height[stop], circles.following[stop]
        rest = max(rest, tail[run_at(tables, stop)] - period * height)
    rest += tables.duration[b]
    longest = later + rest
    rest += up
    for arc in range(tables.after_row[c], tables.after_row[c + 1]):
        rest = max(rest, tail[n * blocks + tables.after[arc]] + tables.after_ticks[arc])
    return float(max(longest, start + rest + tables.duration[c]))


@compiled
def _copy(source: Circles, target: Circles) -> None:
    target.following[:] = source.following
    target.preceding[:] = source.preceding
    target.height[:] = source.height
    target.held[:] = source.held


@compiled
def _best_pair(
    tables: Tables, circles: Circles, timing: Timing, tail: Floats, period: float, root: int, tabu: IntColumn, step: int
) -> tuple[int, int]:
    """Return the neighbouring stops (early, late) on a critical cycle to reverse next.

    `root` is a run on that cycle. Return (-1, -1) if no pair may be reversed. If all pairs are tabu, the choice is
    random.
    """
    blocks, places, stops = tables.duration.size, tables.place_device.size, circles.following.size
    chosen, partner, least, ties = -1, -1, np.inf, 0
    spare, spare_partner, seen = -1, -1, 0
    run = root
    while True:
        b, arc = run % blocks, timing.binding[run]
        place = tables.place_row[b] + arc - timing.row[run] - _dependencies(tables, b)
        if tables.place_row[b] <= place < tables.place_row[b + 1]:
            late = run // blocks * places + place
            early = circles.preceding[late]
            if _may_reverse(tables, circles, early, late):
                seen += 1
                if np.random.random() * seen < 1.0:
                    spare, spare_partner = early, late
                promise = np.round(_promise(tables, circles, timing.head, tail, period, early, late))
                if promise <= least and tabu[(late * stops + early) % _TABU_SLOTS] <= step:
                    ties = ties + 1 if promise == least else 1
                    least = promise
                    if np.random.random() * ties < 1.0:
                        chosen, partner = early, late
        run = timing.source[arc]
        if run == root:
            return (chosen, partner) if chosen >= 0 else (spare, spare_partner)


@compiled
def shorten_circles(
    tables: Tables, circles: Circles, copies: int, bound: float, steps: int, patience: int, seed: int
) -> float:
    """Improve `circles` in place by at most `steps` reversals. Return the least period in ticks.

    It is the period of all `copies` together. The search stops at a period of `bound`. After `patience` steps without
    improvement, it continues from the best circles.
    """
    np.random.seed(seed)
    timing, tail = timing_of(tables, circles), np.empty(copies * tables.duration.size)
    best_circles = no_circles(tables, copies)
    _copy(circles, best_circles)
    tabu, stops = np.zeros(_TABU_SLOTS, np.int64), circles.following.size
    period, root = least_period(timing)
    best, idle = period, 0
    for step in range(1, steps + 1):
        if root < 0 or best <= bound * (1 + _PRECISION):
            break
        _set_tails(timing, period, root, tail)
        early, late = _best_pair(tables, circles, timing, tail, period, root, tabu, step)
        idle += 1
        if early >= 0:
            _reverse(tables, circles, timing, early, late)
            tabu[(early * stops + late) % _TABU_SLOTS] = step + _TENURE + np.random.randint(2 * _TENURE)
            period, root = least_period(timing)
            if period < best * (1 - _PRECISION):
                best, idle = period, 0
                _copy(circles, best_circles)
        elif idle <= 1:  # no pair of the best circles may be reversed
            break
        if early < 0 or root < 0 or idle > patience:
            idle = 0
            _copy(best_circles, circles)
            _lay(tables, circles, timing)
            period, root = least_period(timing)
    _copy(best_circles, circles)
    return best


@compiled
def windows(tables: Tables, starts: IntColumn, sizes: IntColumn, stride: int, found: Floats) -> None:
    """Write the least periods that result from repeating windows of a schedule to `found`.

    `starts` is the schedule, shaped (micro-batches, blocks). A window is a range of consecutive micro-batches.
    `found[s, i]` is the least period per micro-batch, in ticks, of the window of `sizes[s]` micro-batches from
    micro-batch i · `stride` on. It is infinity if that window has no period.

    The order of a window is that of its starts modulo the largest distance between a block's first start in the window
    and its first start after the window. So the window never holds more memory than the schedule.
    """
    found[:] = np.inf
    for s in range(sizes.size):
        copies = sizes[s]
        circles = no_circles(tables, copies)
        for i in range(found.shape[1]):
            first = i * stride
            if first + copies >= starts.shape[0]:
                break
            length = (starts[first + copies] - starts[first]).max()
            if length <= 0 or close(tables, starts[first : first + copies], length, circles):
                continue
            found[s, i] = least_period(timing_of(tables, circles))[0] / copies
