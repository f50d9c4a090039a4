"""List scheduling: a schedule from one priority and one handicap a block [Graham 1966; Kolisch 1996].

Each step places, among the next runs of all blocks whose predecessors are placed and which fit the memory, the one with
the least earliest start + handicap, the higher priority first on a tie.  Runs of one block are taken in order of
micro-batch, which loses nothing.  With handicaps of 0 no device is left idle that could work (the parallel scheme of
Kolisch 1996); a handicap lets a device wait for something better, as active schedules may.

Memory cannot lock up: where several blocks of a device acquire, a run is placed only if the micro-batches in flight
could still finish one after another, the oldest first [the banker's algorithm, Dijkstra 1965].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.compiled import compiled
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Rules(NamedTuple):
    """What decides between runs that could be next."""

    priority: NDArray[np.float64]
    """Per block; the higher comes first."""
    age: NDArray[np.float64]
    """One number: how much priority a run loses per micro-batch before it."""
    handicap: IntColumn
    """Ticks, per block: how much earlier another run must be able to start to come first."""
    capacity: IntColumn
    """What may be held, per device: at most the plan's."""


@compiled
def place_all(tables: Tables, rules: Rules, starts: IntColumn, limit: int) -> int:
    """Fill `starts`, shaped (micro-batches, blocks), by `rules`; returns the makespan.

    The result is -1 where it would be above `limit`, or where less than the plan's capacity leaves no way on.
    """
    micro_batches, blocks = starts.shape
    priority, age, handicap, capacity = rules.priority, rules.age[0], rules.handicap, rules.capacity
    placed = np.zeros(blocks, np.int64)
    free, left = np.zeros(capacity.size, np.int64), np.zeros(capacity.size, np.int64)
    for d in range(capacity.size):
        left[d] = micro_batches * tables.duration[tables.on[tables.on_row[d] : tables.on_row[d + 1]]].sum()
    held = np.zeros(capacity.size, np.int64)
    ready = np.empty(blocks, np.int64)
    for b in range(blocks):
        ready[b] = 0 if tables.before_row[b] == tables.before_row[b + 1] else UNLIMITED
    oldest, youngest, makespan = 0, 0, 0
    for _ in range(starts.size):
        best, best_start, best_key, best_priority = -1, 0, UNLIMITED, 0.0
        for b in range(blocks):
            start = ready[b]
            if start >= UNLIMITED:
                continue
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                start = max(start, free[tables.place_device[place]])
            key = start + handicap[b]
            rank = priority[b] - age * placed[b]
            if best >= 0 and (key > best_key or (key == best_key and rank <= best_priority)):
                continue
            if tables.memory[b] <= 0 or _fits(tables, capacity, held, placed, b, oldest, youngest):
                best, best_start, best_key, best_priority = b, start, key, rank
        if best < 0:
            return -1
        m = placed[best]
        starts[m, best] = best_start
        end = best_start + tables.duration[best]
        makespan = max(makespan, end)
        for place in range(tables.place_row[best], tables.place_row[best + 1]):
            d = tables.place_device[place]
            if best_start + left[d] > limit:
                return -1
            left[d] -= tables.duration[best]
            free[d] = end
            held[d] += tables.memory[best]
        placed[best] = m + 1
        youngest = max(youngest, m)
        while oldest < micro_batches - 1 and placed.min() > oldest:
            oldest += 1
        ready[best] = _ready(tables, placed, starts, best)
        for arc in range(tables.after_row[best], tables.after_row[best + 1]):
            if placed[tables.after[arc]] == m:
                ready[tables.after[arc]] = _ready(tables, placed, starts, tables.after[arc])
    return makespan


@compiled
def _ready(tables: Tables, placed: IntColumn, starts: IntColumn, block: int) -> int:
    """When the predecessors of the block's next run let it start; `UNLIMITED` while one is not placed."""
    m, ready = placed[block], 0
    if m >= starts.shape[0]:
        return UNLIMITED
    for arc in range(tables.before_row[block], tables.before_row[block + 1]):
        before = tables.before[arc]
        if placed[before] <= m:
            return UNLIMITED
        ready = max(ready, starts[m, before] + tables.before_ticks[arc])
    return ready


@compiled
def _fits(
    tables: Tables, capacity: IntColumn, held: IntColumn, placed: IntColumn, block: int, oldest: int, youngest: int
) -> bool:
    """Whether the block's next run has room, and leaves a way for all micro-batches in flight to finish."""
    m = placed[block]
    for place in range(tables.place_row[block], tables.place_row[block + 1]):
        d = tables.place_device[place]
        level = held[d] + tables.memory[block]
        if level > capacity[d]:
            return False
        if not tables.guarded[d]:
            continue
        most = level
        for i in range(tables.on_row[d], tables.on_row[d + 1]):
            most += max(0, tables.memory[tables.on[i]])
        if most <= capacity[d]:  # room for all that one more acquires: each can finish, one by one
            continue
        for other in range(oldest, max(youngest, m) + 1):
            rest = level
            for i in range(tables.on_row[d], tables.on_row[d + 1]):
                b = tables.on[i]
                if placed[b] > other or (b == block and other == m):
                    continue
                rest += tables.memory[b]
                if tables.memory[b] > 0 and rest > capacity[d]:
                    return False
            level = rest
    return True


@compiled
def evolve(tables: Tables, rules: Rules, starts: IntColumn, makespan: int, tries: int, spread: float, seed: int) -> int:
    """Change `rules` at random, keeping what is not longer; returns the least makespan.

    `starts` holds the schedule of that makespan, or anything while `makespan` is negative: nothing is known yet.
    Handicaps move by about `spread` ticks.
    """
    np.random.seed(seed)
    found = starts.copy()
    if makespan < 0:
        makespan = place_all(tables, rules, starts, UNLIMITED)
        tries -= 1
    old = rules_copy(rules)
    for _ in range(tries):
        for _ in range(1 + np.random.randint(3)):
            _change(tables, rules, spread)
        length = place_all(tables, rules, found, makespan if makespan >= 0 else UNLIMITED)
        if length >= 0 and (makespan < 0 or length <= makespan):
            if length < makespan or makespan < 0:
                starts[:] = found
            makespan = length
            _set(old, rules)
        else:
            _set(rules, old)
    return makespan


@compiled
def restart(tables: Tables, rules: Rules, starts: IntColumn, first: int, tries: int, noise: float, seed: int) -> int:
    """The shortest of the schedules `first` … `first` + `tries` - 1 by `rules`, in `starts`; its makespan.

    Schedule 0 is by the rules themselves, each other one by priorities with `noise` of its own: so the shortest of a
    number of them does not depend on how many are asked for at a time.
    """
    best, found, trial = -1, np.empty_like(starts), rules_copy(rules)
    for i in range(first, first + tries):
        np.random.seed((seed + i) % 2**31)
        trial.priority[:] = rules.priority
        if i:
            trial.priority[:] += noise * np.random.standard_normal(rules.priority.size)
        length = place_all(tables, trial, found, best - 1 if best >= 0 else UNLIMITED)
        if length >= 0 and (best < 0 or length < best):
            best = length
            starts[:] = found
    return best


@compiled
def rules_copy(rules: Rules) -> Rules:
    """The same rules in arrays of their own."""
    return Rules(rules.priority.copy(), rules.age.copy(), rules.handicap.copy(), rules.capacity.copy())


@compiled
def _set(target: Rules, source: Rules) -> None:
    target.priority[:] = source.priority
    target.age[:] = source.age
    target.handicap[:] = source.handicap
    target.capacity[:] = source.capacity


@compiled
def _change(tables: Tables, rules: Rules, spread: float) -> None:
    """One random change: of a priority, a handicap, what age counts, or how much memory to use."""
    priority, handicap, capacity = rules.priority, rules.handicap, rules.capacity
    blocks = priority.size
    b, dice = np.random.randint(blocks), np.random.random()
    if dice < 0.45:
        priority[b] += np.random.normal() * blocks * 0.3
    elif dice < 0.65:
        other = np.random.randint(blocks)
        priority[b], priority[other] = priority[other], priority[b]
    elif dice < 0.75:
        handicap[b] = 0
    elif dice < 0.94:
        handicap[b] += np.int64(np.random.normal() * spread)
    elif dice < 0.97:
        age = rules.age[0] + np.random.normal() * blocks * 0.1
        rules.age[0] = max(1e-6, age) if np.random.random() < 0.7 else 1e-6
    else:
        d = np.random.randint(capacity.size)
        if tables.capacity[d] < UNLIMITED:
            unit = abs(tables.memory[b])
            capacity[d] = tables.capacity[d] if np.random.random() < 0.5 else max(unit, capacity[d] - unit)
