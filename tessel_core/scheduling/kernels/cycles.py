"""Repetends as cyclic orders: their exact period, and a tabu search that shortens it.

`copies` micro-batches repeat together.  On every device the runs of their blocks form a circle; an arc of it has a
height, so many periods later than its source its target belongs: start(target) + height · period >= start(source) +
duration(source).  Dependencies are arcs of height 0.  The least period is the greatest ratio of ticks to height over
all circles of arcs, which Howard's policy iteration finds [Cochet-Terrasson et al. 1998; Dasdan 2004].

As in whole schedules, reversing two neighbours that follow each other on a critical circle never makes a circle of
height 0, and what a device holds depends on its order only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.compiled import compiled, inlined
from tessel_core.scheduling.kernels.orders import run_at
from tessel_core.scheduling.kernels.tables import Tables

Floats = NDArray[np.float64]

_TENURE = 6
"""Steps for which a reversed pair stays so, at least."""
_MEMORY = 2**18
_ROUNDS = 300
"""Policy iteration takes a few; more than this means that rounding errors chase each other."""
_PRECISION = 1e-9
"""Of the period: differences below are rounding errors."""
_NOWHERE = -1e300


class Circles(NamedTuple):
    """Each stop's neighbours on its device, the height of the arc to the next one, and what is held before it."""

    following: IntColumn
    preceding: IntColumn
    height: IntColumn
    held: IntColumn


class Timing(NamedTuple):
    """What policy iteration knows: the arc that binds each run, and the longest way to it from the critical circle."""

    binding: IntColumn
    """Its number among the run's dependencies, then its places, then one last arc that joins everything."""
    head: Floats
    mark: IntColumn
    trail: IntColumn
    far: IntColumn
    """One number: the height of the arcs that join everything, so great that no circle through them binds."""


@compiled
def no_circles(tables: Tables, copies: int) -> Circles:
    """Room for the circles of so many micro-batches."""
    stops = copies * tables.place_device.size
    return Circles(
        np.zeros(stops, np.int64), np.zeros(stops, np.int64), np.zeros(stops, np.int64), np.zeros(stops, np.int64)
    )


@compiled
def close(tables: Tables, starts: IntColumn, period: int, circles: Circles) -> bool:
    """Fill `circles` with the order that `starts`, shaped (copies, blocks), have modulo `period`.

    The runs may overlap, their order counts.  False where what is then held exceeds a capacity.
    """
    copies, places = starts.shape[0], tables.place_device.size
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
        for i in range(runs):
            here, there = order[i], order[(i + 1) % runs]
            circles.following[stop[here]], circles.preceding[stop[there]] = stop[there], stop[here]
            circles.height[stop[here]] = turn[here] - turn[there] + (i == runs - 1)
            circles.held[stop[here]] = held
            held += tables.memory[tables.place_block[stop[here] % places]]
            if held > tables.capacity[d]:
                return False
    return True


@compiled
def new_timing(tables: Tables, copies: int) -> Timing:
    """A policy to begin from: every run waits for the one before it on its first device."""
    blocks = tables.duration.size
    binding = np.empty(copies * blocks, np.int64)
    for run in range(binding.size):
        b = run % blocks
        binding[run] = tables.before_row[b + 1] - tables.before_row[b]
    runs = binding.size
    return Timing(binding, np.zeros(runs), np.zeros(runs, np.int64), np.zeros(runs, np.int64), np.zeros(1, np.int64))


@compiled
def _set_far(tables: Tables, circles: Circles, far: IntColumn) -> None:
    """More than the heights of a circle may fall, and than the ticks of all runs over the busiest device's work."""
    work, longest = 0, 0
    for d in range(tables.capacity.size):
        work = max(work, tables.duration[tables.on[tables.on_row[d] : tables.on_row[d + 1]]].sum())
    for b in range(tables.duration.size):
        ticks = tables.duration.max()
        for arc in range(tables.before_row[b], tables.before_row[b + 1]):
            ticks = max(ticks, tables.before_ticks[arc])
        longest += ticks
    far[0] = 2 + 2 * longest // work - np.minimum(circles.height, 0).sum()


@inlined
def _source(tables: Tables, circles: Circles, run: int, arc: int, runs: int, far: int) -> tuple[int, int, int]:
    """(run, ticks, height) of where an arc into `run` comes from.

    The last arc of all leads around all runs at a height that no circle of consequence has: it makes every run
    reachable from every other, which policy iteration needs.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    m, b = run // blocks, run % blocks
    dependencies = tables.before_row[b + 1] - tables.before_row[b]
    if arc < dependencies:
        i = tables.before_row[b] + arc
        return m * blocks + tables.before[i], tables.before_ticks[i], 0
    place = tables.place_row[b] + arc - dependencies
    if place < tables.place_row[b + 1]:
        stop = circles.preceding[m * places + place]
        other = run_at(tables, stop)
        return other, tables.duration[other % blocks], circles.height[stop]
    return (run - 1) % runs, 0, far


@compiled
def least_period(tables: Tables, circles: Circles, timing: Timing) -> tuple[float, int]:
    """The least period of the circles, and a run on a critical one; (infinity, -1) where an order contradicts itself.

    `timing.head` is then the longest way from that run to each, a way up by one height counting minus one period.
    """
    blocks, runs = tables.duration.size, timing.binding.size
    binding, head = timing.binding, timing.head
    _set_far(tables, circles, timing.far)
    for _ in range(_ROUNDS):
        period, root = _worst_circle(tables, circles, timing)
        if root < 0:
            return np.inf, -1
        _measure(tables, circles, timing, period, root)
        settled = True
        for run in range(runs):
            b = run % blocks
            arcs = tables.before_row[b + 1] - tables.before_row[b] + tables.place_row[b + 1] - tables.place_row[b]
            longest, best = head[run] + _PRECISION * period, -1
            for arc in range(arcs):
                source, ticks, height = _source(tables, circles, run, arc, runs, timing.far[0])
                if head[source] + ticks - period * height > longest:
                    longest, best = head[source] + ticks - period * height, arc
            if best >= 0:
                binding[run], head[run] = best, longest
                settled = False
        if settled:
            return period, root
    return np.inf, -1


@compiled
def _worst_circle(tables: Tables, circles: Circles, timing: Timing) -> tuple[float, int]:
    """The greatest ratio of the circles that binding arcs form, and a run on it; root -1 where one has no height."""
    runs, binding, mark = timing.binding.size, timing.binding, timing.mark
    period, root = -1.0, -1
    mark[:] = -1
    for first in range(runs):
        run = first
        while mark[run] == -1:
            mark[run] = first
            run = _source(tables, circles, run, binding[run], runs, timing.far[0])[0]
        if mark[run] != first:
            continue
        ticks, height, on_circle = 0, 0, run
        while True:
            on_circle, more, up = _source(tables, circles, on_circle, binding[on_circle], runs, timing.far[0])
            ticks, height = ticks + more, height + up
            if on_circle == run:
                break
        if height <= 0:
            return np.inf, -1
        if ticks / height > period:
            period, root = ticks / height, run
    return period, root


@compiled
def time_runs(tables: Tables, circles: Circles, head: Floats, period: int, starts: IntColumn) -> bool:
    """Fill `starts`, one a run, with the earliest that repeat every `period` ticks; False where none do.

    Runs are taken in order of `head`, as `least_period` left it, so that a few rounds are enough.
    """
    blocks, runs = tables.duration.size, starts.size
    starts[:] = 0
    first_to_last = np.argsort(head)
    longest = period * (2 * runs - np.minimum(circles.height, 0).sum())
    for _ in range(runs + 1):
        moved = False
        for run in first_to_last:
            b, start = run % blocks, starts[run]
            arcs = tables.before_row[b + 1] - tables.before_row[b] + tables.place_row[b + 1] - tables.place_row[b]
            for arc in range(arcs):
                source, ticks, height = _source(tables, circles, run, arc, runs, 0)
                start = max(start, starts[source] + ticks - height * period)
            if start > starts[run]:
                starts[run] = start
                moved = True
        if not moved:
            return True
        if starts.max() > longest:  # only a circle that takes longer than its height leads so far
            return False
    return False


@compiled
def _measure(tables: Tables, circles: Circles, timing: Timing, period: float, root: int) -> None:
    """Set every head along the binding arcs; runs whose arcs do not lead back to `root` are bound anew."""
    blocks, runs = tables.duration.size, timing.binding.size
    binding, head, mark, trail, _ = timing
    unknown, known, seen, adrift = 0, 1, 2, 3
    mark[:] = unknown
    mark[root] = known
    left = 0
    for first in range(runs):
        run, steps = first, 0
        while mark[run] == unknown:
            mark[run], trail[steps] = seen, run
            steps += 1
            run = _source(tables, circles, run, binding[run], runs, timing.far[0])[0]
        reached = mark[run] == known
        for i in range(steps - 1, -1, -1):
            run = trail[i]
            mark[run] = known if reached else adrift
            if reached:
                source, ticks, height = _source(tables, circles, run, binding[run], runs, timing.far[0])
                head[run] = head[source] + ticks - period * height
            else:
                left += 1
    while left:
        for run in range(runs):
            if mark[run] == known:
                continue
            b = run % blocks
            arcs = tables.before_row[b + 1] - tables.before_row[b] + tables.place_row[b + 1] - tables.place_row[b]
            longest, best = _NOWHERE, -1
            for arc in range(arcs + 1):
                source, ticks, height = _source(tables, circles, run, arc, runs, timing.far[0])
                if mark[source] == known and head[source] + ticks - period * height > longest:
                    longest, best = head[source] + ticks - period * height, arc
            if best >= 0:
                binding[run], head[run], mark[run] = best, longest, known
                left -= 1


@compiled
def _set_tails(tables: Tables, circles: Circles, head: Floats, period: float, root: int, tail: Floats) -> None:
    """The longest way from each run to `root`, measured as heads are; the latest run first, which saves rounds."""
    blocks, places = tables.duration.size, tables.place_device.size
    tail[:] = _NOWHERE
    tail[root] = 0.0
    latest_first = np.argsort(-head)
    for _ in range(_ROUNDS):
        moved = False
        for run in latest_first:
            if run == root:
                continue
            m, b = run // blocks, run % blocks
            longest = tail[run] + _PRECISION * period
            for arc in range(tables.after_row[b], tables.after_row[b + 1]):
                after = tail[m * blocks + tables.after[arc]]
                longest = max(longest, after + tables.after_ticks[arc] + tables.duration[b])
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                stop = m * places + place
                after = tail[run_at(tables, circles.following[stop])]
                longest = max(longest, after + tables.duration[b] - period * circles.height[stop])
            if longest > tail[run] + _PRECISION * period:
                tail[run] = longest
                moved = True
        if not moved:
            return


@compiled
def _may_reverse(tables: Tables, circles: Circles, early: int, late: int) -> bool:
    """Whether the run at stop `late` may go right before the one at `early`, its neighbour, on all shared devices."""
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
            if circles.preceding[stop] == n * places + other:  # alone on the device: nothing to gain
                return False
            if circles.held[stop] + gained > tables.capacity[d]:
                return False
    return True


@compiled
def _reverse(tables: Tables, circles: Circles, early: int, late: int) -> None:
    """Let the run at stop `late` go right before the one at `early` on every device that they share."""
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


@compiled
def _promise(
    tables: Tables, circles: Circles, head: Floats, tail: Floats, period: float, early: int, late: int
) -> float:
    """By how much the longest circle through either exceeds `period` once `late` comes first, about."""
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
    """The stops of the neighbours on the critical circle to reverse next, or of any where all are tabu, or (-1, -1)."""
    blocks, places, stops = tables.duration.size, tables.place_device.size, circles.following.size
    chosen, partner, least, ties = -1, -1, np.inf, 0
    spare, spare_partner, seen = -1, -1, 0
    run = root
    while True:
        b, arc = run % blocks, timing.binding[run]
        place = tables.place_row[b] + arc - (tables.before_row[b + 1] - tables.before_row[b])
        if tables.place_row[b] <= place < tables.place_row[b + 1]:
            late = run // blocks * places + place
            early = circles.preceding[late]
            if _may_reverse(tables, circles, early, late):
                seen += 1
                if np.random.random() * seen < 1.0:
                    spare, spare_partner = early, late
                promise = np.round(_promise(tables, circles, timing.head, tail, period, early, late))
                if promise <= least and tabu[(late * stops + early) % _MEMORY] <= step:
                    ties = ties + 1 if promise == least else 1
                    least = promise
                    if np.random.random() * ties < 1.0:
                        chosen, partner = early, late
        run = _source(tables, circles, run, arc, timing.binding.size, timing.far[0])[0]
        if run == root:
            return (chosen, partner) if chosen >= 0 else (spare, spare_partner)


@compiled
def shorten_circles(
    tables: Tables, circles: Circles, copies: int, bound: float, steps: int, patience: int, seed: int
) -> float:
    """Improve `circles`, in place, by at most `steps` reversals; returns the least period of all copies together.

    Ends at a period of `bound`; after `patience` steps without a shorter one it begins from the best again.
    """
    np.random.seed(seed)
    timing, tail = new_timing(tables, copies), np.empty(copies * tables.duration.size)
    best_circles = no_circles(tables, copies)
    _copy(circles, best_circles)
    tabu, stops = np.zeros(_MEMORY, np.int64), circles.following.size
    period, root = least_period(tables, circles, timing)
    best, idle = period, 0
    for step in range(1, steps + 1):
        if root < 0 or best <= bound * (1 + _PRECISION):
            break
        _set_tails(tables, circles, timing.head, period, root, tail)
        early, late = _best_pair(tables, circles, timing, tail, period, root, tabu, step)
        idle += 1
        if early >= 0:
            _reverse(tables, circles, early, late)
            tabu[(early * stops + late) % _MEMORY] = step + _TENURE + np.random.randint(2 * _TENURE)
            period, root = least_period(tables, circles, timing)
            if period < best * (1 - _PRECISION):
                best, idle = period, 0
                _copy(circles, best_circles)
        elif idle <= 1:  # nothing may be reversed at the best
            break
        if early < 0 or root < 0 or idle > patience:
            idle = 0
            _copy(best_circles, circles)
            period, root = least_period(tables, circles, timing)
    _copy(best_circles, circles)
    return best


@compiled
def windows(tables: Tables, starts: IntColumn, sizes: IntColumn, stride: int, found: Floats) -> None:
    """The period per micro-batch of windows of `starts`, shaped (micro-batches, blocks), closed to circles.

    A window lasts as long as the slowest block takes to its next turn, so that it never holds more than was held.
    `found[s, i]` is that of `sizes[s]` micro-batches from micro-batch i · `stride` on, infinity where there is none.
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
            if length <= 0 or not close(tables, starts[first : first + copies], length, circles):
                continue
            found[s, i] = least_period(tables, circles, new_timing(tables, copies))[0] / copies
