"""Tabu search over the orders of runs on the devices of a whole schedule.

Each step reverses two runs that follow each other on a device and on a critical path. Among the pairs that are not
tabu, it chooses the pair with the least estimated makespan [Nowicki and Smutnicki 1996; estimates after Taillard 1994].
A reversed pair is tabu for some steps, so that it is not reversed back.

Reversing a critical pair never forms a cycle, because any other path from the first run to the second would make the
second run start later. The memory of a device depends only on the order of its runs. So a reversal changes memory only
between its two runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tessel_core.compiled import compiled, inlined
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.tables import Tables

_TENURE = 8
"""Least number of steps for which a reversed pair is tabu."""
_TABU_SLOTS = 2**20
"""Number of slots in the hash table of tabu pairs. If two pairs share a slot, each makes the other tabu."""
_NEVER = 2**60


class Links(NamedTuple):
    """The order of runs on the devices, with one entry per stop. A stop is a run on one of its devices (see `Tables`).

    `following` and `preceding` are the next and the previous stop on the device, or -1 if there is none. `held` is the
    memory that the device holds before the stop.
    """

    following: IntColumn
    preceding: IntColumn
    held: IntColumn


@compiled
def links_of(tables: Tables, line: IntColumn) -> Links:
    """Return the links of the order `line`, which lists all runs with predecessors first."""
    blocks, places = tables.duration.size, tables.place_device.size
    stops = line.size // blocks * places
    links = Links(np.full(stops, -1, np.int64), np.full(stops, -1, np.int64), np.zeros(stops, np.int64))
    last = np.full(tables.capacity.size, -1, np.int64)
    held = np.zeros(tables.capacity.size, np.int64)
    for run in line:
        m, b = run // blocks, run % blocks
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d, stop = tables.place_device[place], m * places + place
            links.held[stop] = held[d]
            held[d] += tables.memory[b]
            links.preceding[stop] = last[d]
            if last[d] >= 0:
                links.following[last[d]] = stop
            last[d] = stop
    return links


@inlined
def run_at(tables: Tables, stop: int) -> int:
    """Return the number of the run at a stop."""
    places = tables.place_device.size
    run: int = stop // places * tables.duration.size + tables.place_block[stop % places]
    return run


@compiled
def set_heads(tables: Tables, links: Links, line: IntColumn, first: int, head: IntColumn) -> None:
    """Set `head` to the earliest start in ticks of each run from position `first` of `line` on."""
    blocks, places = tables.duration.size, tables.place_device.size
    for i in range(first, line.size):
        run = line[i]
        m, b = run // blocks, run % blocks
        start = 0
        for arc in range(tables.before_row[b], tables.before_row[b + 1]):
            start = max(start, head[m * blocks + tables.before[arc]] + tables.before_ticks[arc])
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            stop = links.preceding[m * places + place]
            if stop >= 0:
                other = run_at(tables, stop)
                start = max(start, head[other] + tables.duration[other % blocks])
        head[run] = start


@compiled
def set_tails(tables: Tables, links: Links, line: IntColumn, last: int, tail: IntColumn) -> None:
    """Set `tail` to the longest path in ticks from the start of each run to the end of the schedule.

    Only the runs at positions 0 … `last` of `line` are set.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    for i in range(last, -1, -1):
        run = line[i]
        m, b = run // blocks, run % blocks
        rest = 0
        for arc in range(tables.after_row[b], tables.after_row[b + 1]):
            rest = max(rest, tail[m * blocks + tables.after[arc]] + tables.after_ticks[arc])
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            stop = links.following[m * places + place]
            if stop >= 0:
                rest = max(rest, tail[run_at(tables, stop)])
        tail[run] = rest + tables.duration[b]


@compiled
def _may_reverse(tables: Tables, links: Links, first: int, second: int) -> bool:
    """Return whether run `second` may move right before its neighbour `first`, on all devices that both occupy."""
    blocks, places = tables.duration.size, tables.place_device.size
    m, b, n, c = first // blocks, first % blocks, second // blocks, second % blocks
    if m == n:
        for arc in range(tables.before_row[c], tables.before_row[c + 1]):
            if tables.before[arc] == b:
                return False
    gained, kept = max(0, tables.memory[c]), tables.memory[c] + max(0, tables.memory[b])
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        for other in range(tables.place_row[c], tables.place_row[c + 1]):
            d = tables.place_device[place]
            if tables.place_device[other] != d:
                continue
            if links.following[m * places + place] != n * places + other:
                return False
            if links.held[m * places + place] + max(gained, kept) > tables.capacity[d]:
                return False
    return True


@compiled
def _promise(tables: Tables, links: Links, head: IntColumn, tail: IntColumn, first: int, second: int) -> int:
    """Return an estimate, never too high, of the longest path through `first` or `second` after their reversal.

    `head` and `tail` have the longest paths before the reversal.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    m, b, n, c = first // blocks, first % blocks, second // blocks, second % blocks
    start = 0
    for arc in range(tables.before_row[c], tables.before_row[c + 1]):
        start = max(start, head[n * blocks + tables.before[arc]] + tables.before_ticks[arc])
    for place in range(tables.place_row[c], tables.place_row[c + 1]):
        stop = links.preceding[n * places + place]
        if stop >= 0 and run_at(tables, stop) == first:
            stop = links.preceding[stop]
        if stop >= 0:
            other = run_at(tables, stop)
            start = max(start, head[other] + tables.duration[other % blocks])
    later = start + tables.duration[c]
    for arc in range(tables.before_row[b], tables.before_row[b + 1]):
        later = max(later, head[m * blocks + tables.before[arc]] + tables.before_ticks[arc])
    rest = 0
    for arc in range(tables.after_row[b], tables.after_row[b + 1]):
        rest = max(rest, tail[m * blocks + tables.after[arc]] + tables.after_ticks[arc])
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        stop = links.following[m * places + place]
        if stop >= 0 and run_at(tables, stop) == second:
            stop = links.following[stop]
        if stop >= 0:
            rest = max(rest, tail[run_at(tables, stop)])
    rest += tables.duration[b]
    longest = later + rest
    for arc in range(tables.after_row[c], tables.after_row[c + 1]):
        rest = max(rest, tail[n * blocks + tables.after[arc]] + tables.after_ticks[arc])
    return int(max(longest, start + rest + tables.duration[c]))


@compiled
def _reverse(tables: Tables, links: Links, first: int, second: int) -> None:
    """Move run `second` right before its neighbour `first`, on all devices that both occupy."""
    blocks, places = tables.duration.size, tables.place_device.size
    b, c = first % blocks, second % blocks
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        for other in range(tables.place_row[c], tables.place_row[c + 1]):
            if tables.place_device[place] != tables.place_device[other]:
                continue
            early, late = first // blocks * places + place, second // blocks * places + other
            before, after = links.preceding[early], links.following[late]
            links.preceding[late], links.following[late] = before, early
            links.preceding[early], links.following[early] = late, after
            if before >= 0:
                links.following[before] = late
            if after >= 0:
                links.preceding[after] = early
            links.held[late] = links.held[early]
            links.held[early] += tables.memory[c]


@compiled
def _mend(
    tables: Tables, links: Links, line: IntColumn, position: IntColumn, first: int, second: int, moves: IntColumn
) -> None:
    """Restore the topological order of `line` after a reversal, and update `position`.

    Runs between `first` and `second` that must precede `second` move before `first`. `moves` is scratch space, and is
    all 0 before and after the call.
    """
    blocks, places = tables.duration.size, tables.place_device.size
    begin, end = position[first], position[second]
    moves[second] = 1
    for i in range(end - 1, begin, -1):
        run = line[i]
        m, b = run // blocks, run % blocks
        for arc in range(tables.after_row[b], tables.after_row[b + 1]):
            moves[run] |= moves[m * blocks + tables.after[arc]]
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            stop = links.following[m * places + place]
            if stop >= 0:
                moves[run] |= moves[run_at(tables, stop)]
    part = line[begin : end + 1].copy()
    at = begin
    for wanted in (1, 0):
        for run in part:
            if moves[run] == wanted:
                line[at], position[run] = run, at
                at += 1
    for run in part:
        moves[run] = 0


@compiled
def _best_pair(
    tables: Tables,
    links: Links,
    line: IntColumn,
    head: IntColumn,
    tail: IntColumn,
    tabu: IntColumn,
    step: int,
    best: int,
) -> tuple[int, int]:
    """Return two critical neighbours to reverse next, the earlier run first, or (-1, -1) if no pair may be reversed.

    A tabu pair is allowed if its estimate is below `best`. If no pair is allowed, the choice among all pairs is random.
    """
    blocks, places, makespan = tables.duration.size, tables.place_device.size, (head + tail).max()
    chosen, partner, least, ties = -1, -1, _NEVER, 0
    spare, spare_partner, seen = -1, -1, 0
    for u in line:
        if head[u] + tail[u] < makespan:
            continue
        b = u % blocks
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            stop = links.following[u // blocks * places + place]
            if stop < 0:
                continue
            v = run_at(tables, stop)
            if v % blocks == b or head[v] != head[u] + tables.duration[b] or head[v] + tail[v] < makespan:
                continue
            if not _may_reverse(tables, links, u, v):
                continue
            seen += 1
            if np.random.random() * seen < 1.0:
                spare, spare_partner = u, v
            promise = _promise(tables, links, head, tail, u, v)
            if promise > least or (tabu[(v * line.size + u) % _TABU_SLOTS] > step and promise >= best):
                continue
            ties = ties + 1 if promise == least else 1
            least = promise
            if np.random.random() * ties < 1.0:
                chosen, partner = u, v
    return (chosen, partner) if chosen >= 0 else (spare, spare_partner)


@compiled
def shorten_orders(tables: Tables, line: IntColumn, bound: int, steps: int, patience: int, seed: int) -> int:
    """Improve the order `line` in place by at most `steps` reversals. Return the makespan in ticks.

    `line` lists all runs of a valid schedule, predecessors first. The search stops at a makespan of `bound`. After
    `patience` steps without improvement, it continues from the best order.
    """
    np.random.seed(seed)
    best_line, line = line, line.copy()
    links = links_of(tables, line)
    head, tail, position = np.empty_like(line), np.empty_like(line), np.empty_like(line)
    moves, tabu = np.zeros_like(line), np.zeros(_TABU_SLOTS, np.int64)
    position[line] = np.arange(line.size)
    set_heads(tables, links, line, 0, head)
    set_tails(tables, links, line, line.size - 1, tail)
    best, idle = int((head + tail).max()), 0
    for step in range(1, steps + 1):
        if best <= bound:
            break
        first, second = _best_pair(tables, links, line, head, tail, tabu, step, best)
        if first < 0:
            break
        begin, end = position[first], position[second]
        _reverse(tables, links, first, second)
        _mend(tables, links, line, position, first, second, moves)
        set_heads(tables, links, line, begin, head)
        set_tails(tables, links, line, end, tail)
        tabu[(first * line.size + second) % _TABU_SLOTS] = step + _TENURE + np.random.randint(2 * _TENURE)
        makespan = int((head + tail).max())
        idle += 1
        if makespan < best:
            best, idle = makespan, 0
            best_line[:] = line
        elif idle > patience:
            idle = 0
            line[:] = best_line
            position[line] = np.arange(line.size)
            links = links_of(tables, line)
            set_heads(tables, links, line, 0, head)
            set_tails(tables, links, line, line.size - 1, tail)
    return best
