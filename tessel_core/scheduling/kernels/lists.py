"""List scheduling with one priority and one handicap per block [Graham 1966; Kolisch 1996].

Each step considers the next run of every block, if its predecessors are placed and it fits in memory. It places the run
with the least sum of earliest start and handicap. Among equal sums, the run of highest priority comes first. A block
runs its micro-batches in order, which excludes no makespan. With handicaps of 0, no device that could work idles (the
parallel scheme of Kolisch 1996). A handicap lets a device wait for a better run, as in active schedules.

Runs cannot deadlock over memory. If several blocks of a device acquire memory, one of two guards prevents it
(`Rules.whole` says which). With the first guard, a micro-batch enters the device only if all memory that it will
acquire there is free. With the second guard, a run is placed only if all micro-batches in flight could still finish one
after another, the oldest first [banker's algorithm, Dijkstra 1965].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Rules(NamedTuple):
    """Parameters that decide which run is placed next."""

    priority: NDArray[np.float64]
    """Priority of each block. A higher priority comes first."""
    age: NDArray[np.float64]
    """Array with one number, by which the priority of a run falls for each micro-batch before its own."""
    handicap: IntColumn
    """Number of ticks added to the earliest start of a block's runs when runs are compared."""
    capacity: IntColumn
    """Memory that each device may use. It is at most the capacity of the plan."""
    whole: NDArray[np.bool_]
    """For each device, whether the first guard against deadlocks applies (see the module), else the second."""


@compiled
def place_all(tables: Tables, rules: Rules, starts: IntColumn, limit: int) -> int:
    """Fill `starts`, shaped (micro-batches, blocks), by `rules`. Return the makespan in ticks.

    Return -1 if the makespan would exceed `limit`, or if runs deadlock because `Rules.capacity` is below the plan's
    capacity.
    """
    micro_batches, blocks = starts.shape
    handicap, capacity = rules.handicap, rules.capacity
    devices = capacity.size
    placed = np.zeros(blocks, np.int64)
    free, left = np.zeros(blocks, np.int64), np.zeros(devices, np.int64)
    for d in range(devices):
        left[d] = micro_batches * tables.duration[tables.on[tables.on_row[d] : tables.on_row[d + 1]]].sum()
    held = np.zeros(devices, np.int64)
    ready = np.empty(blocks, np.int64)
    for b in range(blocks):
        ready[b] = 0 if tables.before_row[b] == tables.before_row[b + 1] else UNLIMITED
    # For each device, the best next run of the blocks that list this device first. It is updated only after a change.
    chosen, key, rank = np.full(devices, -1), np.full(devices, UNLIMITED), np.zeros(devices)
    changed = np.ones(devices, np.bool_)
    makespan = 0
    for _ in range(starts.size):
        d = -1
        for home in range(devices):
            if changed[home]:
                changed[home] = False
                b = _next_at(tables, rules, home, ready, free, held, placed)
                chosen[home] = b
                if b < 0:
                    key[home] = UNLIMITED
                else:
                    key[home] = max(ready[b], free[b]) + handicap[b]
                    rank[home] = rules.priority[b] - rules.age[0] * placed[b]
            if chosen[home] < 0:
                continue
            if (
                d < 0
                or key[home] < key[d]
                or (
                    key[home] == key[d]
                    and (rank[home] > rank[d] or (rank[home] == rank[d] and chosen[home] < chosen[d]))
                )
            ):
                d = home
        if d < 0:
            return -1
        best = chosen[d]
        start, m = key[d] - handicap[best], placed[best]
        starts[m, best] = start
        placed[best] = m + 1
        end = start + tables.duration[best]
        makespan = max(makespan, end)
        for place in range(tables.place_row[best], tables.place_row[best + 1]):
            d = tables.place_device[place]
            if start + left[d] > limit:
                return -1
            left[d] -= tables.duration[best]
            held[d] += tables.memory[best]
            for i in range(tables.on_row[d], tables.on_row[d + 1]):
                b = tables.on[i]
                free[b] = max(free[b], end)
                changed[tables.place_device[tables.place_row[b]]] = True
        ready[best] = _ready(tables, placed, starts, best)
        for arc in range(tables.after_row[best], tables.after_row[best + 1]):
            after = tables.after[arc]
            if placed[after] == m:
                ready[after] = _ready(tables, placed, starts, after)
                changed[tables.place_device[tables.place_row[after]]] = True
    return makespan


@inlined
def _next_at(
    tables: Tables, rules: Rules, home: int, ready: IntColumn, free: IntColumn, held: IntColumn, placed: IntColumn
) -> int:
    """Return the block to place next among those whose first device is `home`, or -1 if none can be placed.

    `ready` and `free` have, for each block, the times at which the predecessors and the devices of its next run are
    done. `held` has the memory that each device holds. `placed` has the number of placed runs of each block.
    """
    best, best_key, best_rank = -1, UNLIMITED, 0.0
    for i in range(tables.on_row[home], tables.on_row[home + 1]):
        b = tables.on[i]
        if ready[b] >= UNLIMITED or tables.place_device[tables.place_row[b]] != home:
            continue
        key = max(ready[b], free[b]) + rules.handicap[b]
        rank = rules.priority[b] - rules.age[0] * placed[b]
        if best >= 0 and (
            key > best_key or (key == best_key and (rank < best_rank or (rank == best_rank and b > best)))
        ):
            continue
        if tables.memory[b] <= 0 or _fits(tables, rules, held, placed, b):
            best, best_key, best_rank = b, key, rank
    return best


@inlined
def _ready(tables: Tables, placed: IntColumn, starts: IntColumn, block: int) -> int:
    """Return when the predecessors of the block's next run let it start.

    Return `UNLIMITED` if a predecessor is not placed, or if all runs of the block are placed.
    """
    m, ready = placed[block], 0
    if m >= starts.shape[0]:
        return UNLIMITED
    for arc in range(tables.before_row[block], tables.before_row[block + 1]):
        before = tables.before[arc]
        if placed[before] <= m:
            return UNLIMITED
        ready = max(ready, starts[m, before] + tables.before_ticks[arc])
    return ready


@inlined
def _fits(tables: Tables, rules: Rules, held: IntColumn, placed: IntColumn, block: int) -> bool:
    """Return whether the block's next run fits in memory, and all micro-batches in flight can still finish after it."""
    m, capacity = placed[block], rules.capacity
    for place in range(tables.place_row[block], tables.place_row[block + 1]):
        d = tables.place_device[place]
        level = held[d] + tables.memory[block]
        if level > capacity[d]:
            return False
        if not tables.guarded[d]:
            continue
        first, last = tables.on_row[d], tables.on_row[d + 1]
        all_of_one, oldest, youngest, entered, promised = 0, m, m, 0, held[d]
        for i in range(first, last):
            b = tables.on[i]
            oldest, youngest = min(oldest, placed[b]), max(youngest, placed[b] - 1)
            if tables.memory[b] > 0:
                all_of_one += tables.memory[b]
                entered = max(entered, placed[b])
        if rules.whole[d] and all_of_one <= tables.capacity[d]:
            for i in range(first, last):
                b = tables.on[i]
                if tables.memory[b] > 0:
                    promised += (entered - placed[b]) * tables.memory[b]
            if m > entered or (m == entered and promised + all_of_one > capacity[d]):
                return False
            continue
        if level + all_of_one <= capacity[d]:  # one more whole micro-batch fits: those in flight can finish one by one
            continue
        for other in range(oldest, youngest + 1):
            rest = level
            for i in range(first, last):
                b = tables.on[i]
                if placed[b] > other or (b == block and other == m):
                    continue
                rest += tables.memory[b]
                if tables.memory[b] > 0 and rest > capacity[d]:
                    return False
            level = rest
    return True


@compiled
def restart(tables: Tables, rules: Rules, starts: IntColumn, first: int, tries: int, noise: float, seed: int) -> int:
    """Build schedules number `first` … `first` + `tries` - 1. Write the shortest to `starts` and return its makespan.

    Schedules 0 and 1 follow `rules`. Each later schedule adds random numbers with standard deviation `noise` to the
    priorities, and has its own seed. So a schedule does not depend on how many others the same call builds. Even
    schedules use the first guard against deadlocks on all devices, and odd schedules the second. `rules` get the guard
    of the shortest schedule. The makespan is -1 if there is no schedule.
    """
    best, found, trial, whole = -1, np.empty_like(starts), rules_copy(rules), rules.whole.copy()
    for i in range(first, first + tries):
        np.random.seed((seed + i) % 2**31)
        trial.priority[:] = rules.priority
        if i > 1:
            trial.priority[:] += noise * np.random.standard_normal(rules.priority.size)
        trial.whole[:] = i % 2 == 0
        length = place_all(tables, trial, found, best - 1 if best >= 0 else UNLIMITED)
        if length >= 0 and (best < 0 or length < best):
            best = length
            starts[:] = found
            whole[:] = trial.whole
    rules.whole[:] = whole
    return best


@compiled
def evolve(tables: Tables, rules: Rules, starts: IntColumn, makespan: int, tries: int, spread: float, seed: int) -> int:
    """Change `rules` at random, `tries` times, and keep changes that make the schedule no longer.

    `starts` has the shortest schedule so far, and `makespan` its length in ticks. A `makespan` of -1 means that there
    is no schedule yet. The changes of a handicap have the standard deviation `spread`, in ticks. Return the least
    makespan.
    """
    np.random.seed(seed)
    found = starts.copy()
    if makespan < 0:
        makespan, tries = restart(tables, rules, starts, 0, 2, 0.0, 0), tries - 2
    old = rules_copy(rules)
    for _ in range(tries):
        for _ in range(1 + np.random.randint(3)):
            change(tables, rules, spread)
        length = place_all(tables, rules, found, makespan if makespan >= 0 else UNLIMITED)
        if length >= 0 and (makespan < 0 or length <= makespan):
            if length < makespan or makespan < 0:
                starts[:] = found
            makespan = length
            set_rules(old, rules)
        else:
            set_rules(rules, old)
    return makespan


@compiled
def rules_copy(rules: Rules) -> Rules:
    """Return a copy of the rules."""
    priority, age, handicap, capacity, whole = rules
    return Rules(priority.copy(), age.copy(), handicap.copy(), capacity.copy(), whole.copy())


@compiled
def set_rules(target: Rules, source: Rules) -> None:
    """Copy the rules of `source` to `target`."""
    target.priority[:] = source.priority
    target.age[:] = source.age
    target.handicap[:] = source.handicap
    target.capacity[:] = source.capacity
    target.whole[:] = source.whole


@compiled
def change(tables: Tables, rules: Rules, spread: float) -> None:
    """Make one random change: of a priority, a handicap, the number `age`, a capacity, or a guard against deadlocks.

    The changes of a handicap have the standard deviation `spread`, in ticks.
    """
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
        chance, step = np.random.random(), np.random.normal()
        if chance < 0.3:
            rules.age[0] = 1e-6
        elif chance < 0.6:
            rules.age[0] = max(1e-6, rules.age[0] + step * blocks * 0.1)
        else:
            rules.age[0] *= np.exp(step)
    else:
        d = np.random.randint(capacity.size)
        if tables.on_row[d] == tables.on_row[d + 1]:
            return
        if tables.guarded[d] and np.random.random() < 0.5:
            rules.whole[d] = not rules.whole[d]
        elif tables.capacity[d] < UNLIMITED:
            unit = abs(tables.memory[tables.on[np.random.randint(tables.on_row[d], tables.on_row[d + 1])]])
            capacity[d] = tables.capacity[d] if np.random.random() < 0.5 else max(0, capacity[d] - unit)
