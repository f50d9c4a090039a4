"""Brute-force oracles for tiny plans, independent of `tessel_core.scheduling`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from helpers.simulator import broken_rules
from tessel_core.model import Block, Dependency, MicroBatchPlan, Repetend


@dataclass(frozen=True)
class Facts:
    """The data of a plan that the oracles need, by block index."""

    duration: tuple[int, ...]
    memory: tuple[int, ...]
    on: tuple[frozenset[int], ...]
    before: tuple[tuple[tuple[int, int], ...], ...]
    """(predecessor, lag) pairs of each block."""
    room: tuple[float, ...]
    """Memory of each device for micro-batches."""

    @property
    def blocks(self) -> range:
        return range(len(self.duration))


def facts_of(plan: MicroBatchPlan) -> Facts:
    room = [
        float("inf") if device.memory_capacity is None else device.memory_capacity - device.static_memory
        for device in plan.devices
    ]
    return _facts(plan.blocks, plan.dependencies, room)


def _facts(blocks: Sequence[Block], dependencies: Sequence[Dependency], room: Sequence[float]) -> Facts:
    index = {block.name: b for b, block in enumerate(blocks)}
    before: list[list[tuple[int, int]]] = [[] for _ in blocks]
    for dep in dependencies:
        before[index[dep.successor]].append((index[dep.predecessor], dep.lag))
    return Facts(
        tuple(block.duration for block in blocks),
        tuple(block.memory for block in blocks),
        tuple(frozenset(block.devices) for block in blocks),
        tuple(map(tuple, before)),
        tuple(room),
    )


def prefixes(facts: Facts) -> Iterator[frozenset[int]]:
    """Yield every set of blocks that is a prefix of some order allowed by the dependencies."""
    seen = {frozenset[int]()}
    waiting = [frozenset[int]()]
    while waiting:
        done = waiting.pop()
        yield done
        for b in _ready(facts, done):
            larger = done | {b}
            if larger not in seen:
                seen.add(larger)
                waiting.append(larger)


def _ready(facts: Facts, done: frozenset[int]) -> list[int]:
    return [b for b in facts.blocks if b not in done and all(a in done for a, _ in facts.before[b])]


def _held(facts: Facts, done: frozenset[int]) -> list[int]:
    return [sum(facts.memory[b] for b in done if d in facts.on[b]) for d in range(len(facts.room))]


def memory_returns(blocks: Sequence[Block], dependencies: Sequence[Dependency], devices: int) -> bool:
    """Whether the memory of one micro-batch sums to 0 on every device and is negative in no order."""
    facts = _facts(blocks, dependencies, [float("inf")] * devices)
    whole = frozenset(facts.blocks)
    return not any(_held(facts, whole)) and all(min(_held(facts, done)) >= 0 for done in prefixes(facts))


def fits(plan: MicroBatchPlan) -> bool:
    """Whether one micro-batch fits the capacities in some order."""
    return _order_exists(facts_of(plan))


def _order_exists(facts: Facts) -> bool:
    """Whether a sequence of sets that fit leads from the empty set to the full set."""
    if min(facts.room) < 0:
        return False
    reached, waiting = set[frozenset[int]](), [frozenset[int]()]
    while waiting:
        done = waiting.pop()
        for b in _ready(facts, done):
            larger = done | {b}
            if larger not in reached and all(h <= r for h, r in zip(_held(facts, larger), facts.room, strict=True)):
                reached.add(larger)
                waiting.append(larger)
    return frozenset(facts.blocks) in reached


def least_capacity(plan: MicroBatchPlan) -> int:
    """Return the least equal capacity of all devices at which one micro-batch fits."""
    capacity = 0
    while not fits(plan.with_capacity(capacity)):
        capacity += 1
    return capacity


Counts = tuple[int, ...]
"""Number of micro-batches that have started each block."""
Times = tuple[int, ...]
"""(makespan, last start, next free tick of each device, ends of runs that later runs wait for)."""


def least_makespan(plan: MicroBatchPlan, micro_batches: int) -> int | None:
    """Return the least makespan over all semi-active schedules; None if memory allows no schedule.

    Runs are appended in order of start, each as early as its devices and dependencies allow, in every possible way.
    Each block runs its micro-batches in order, because runs of the same block can be swapped.  Memory depends only on
    the counts.  So among schedules with equal counts, only those with Pareto-optimal times are kept.
    """
    facts = facts_of(plan)
    if min(facts.room) < 0:
        return None
    nothing: Counts = (0,) * len(facts.blocks)
    layer: dict[Counts, set[Times]] = {nothing: {(0,) * (2 + len(facts.room))}}
    for _ in range(micro_batches * len(facts.blocks)):
        following: dict[Counts, set[Times]] = defaultdict(set)
        for counts, fronts in layer.items():
            for b in facts.blocks:
                if counts[b] < micro_batches and _may_start(facts, counts, b):
                    larger = (*counts[:b], counts[b] + 1, *counts[b + 1 :])
                    following[larger].update(_appended(facts, counts, larger, b, fronts))
        layer = {counts: _unbeaten(fronts) for counts, fronts in following.items()}
    return min((times[0] for fronts in layer.values() for times in fronts), default=None)


def _may_start(facts: Facts, counts: Counts, b: int) -> bool:
    """Whether all predecessors have started this micro-batch, and the devices have room."""
    held = [sum(counts[a] * facts.memory[a] for a in facts.blocks if d in facts.on[a]) for d in facts.on[b]]
    room = [facts.room[d] for d in facts.on[b]]
    return all(counts[a] > counts[b] for a, _ in facts.before[b]) and all(
        h + facts.memory[b] <= r for h, r in zip(held, room, strict=True)
    )


def _awaited(facts: Facts, counts: Counts) -> list[tuple[int, int]]:
    """Return the runs whose ends are needed by runs that have not started."""
    least = {
        a: min((counts[b] for b in facts.blocks for p, _ in facts.before[b] if p == a), default=counts[a])
        for a in facts.blocks
    }
    return [(a, m) for a in facts.blocks for m in range(least[a], counts[a])]


def _appended(facts: Facts, counts: Counts, larger: Counts, b: int, fronts: set[Times]) -> Iterator[Times]:
    """Yield the times after appending the next run of block b, if it does not start before the last run."""
    devices = len(facts.room)
    awaited_before, awaited_after = _awaited(facts, counts), _awaited(facts, larger)
    longest_lag = max((lag for before in facts.before for _, lag in before), default=0)
    for makespan, last, *times in fronts:
        free, ends = times[:devices], dict(zip(awaited_before, times[devices:], strict=True))
        start = max([free[d] for d in facts.on[b]] + [ends[a, counts[b]] + lag for a, lag in facts.before[b]])
        if start < last:
            continue
        end = ends[b, counts[b]] = start + facts.duration[b]
        # No later run starts before this one, so earlier times can be raised to its start.
        free = [end if d in facts.on[b] else max(tick, start) for d, tick in enumerate(free)]
        yield (max(makespan, end), start, *free, *(max(ends[run], start - longest_lag) for run in awaited_after))


def _unbeaten(fronts: set[Times]) -> set[Times]:
    kept: list[Times] = []
    for times in sorted(fronts):
        if not any(all(x <= y for x, y in zip(other, times, strict=True)) for other in kept):
            kept.append(times)
    return set(kept)


def least_period(plan: MicroBatchPlan, unroll: int) -> int | None:
    """Return the least period of `unroll` micro-batches by trying 1, 2, …; None if memory allows no schedule."""
    if not fits(plan):
        return None
    period = 1
    while not has_repetend(plan, unroll, period):
        period += 1
    return period


Copy = tuple[int, int]
"""(block, micro-batch of the period)."""
Pattern = dict[Copy, int]
"""Starts modulo the period."""


def has_repetend(plan: MicroBatchPlan, unroll: int, period: int) -> bool:
    """Whether `unroll` micro-batches can repeat every `period` ticks. A solution is simulated before it counts."""
    facts = facts_of(plan)
    starts = np.zeros((unroll, len(facts.blocks)), dtype=np.int64)
    for part in _independent_parts(facts):
        for pattern in tight_patterns(facts, part, unroll, period):
            turns = _turns_that_fit(facts, part, pattern, period)
            if turns is not None:
                for (b, u), r in pattern.items():
                    starts[u, b] = turns[b, u] * period + r
                break
        else:
            return False
    repetend = Repetend(plan, period, starts)
    most_at_once = repetend.latency // period + 2
    assert not broken_rules(repetend.expand(unroll * most_at_once))
    return True


def _independent_parts(facts: Facts) -> list[list[int]]:
    """Group blocks that share devices or dependencies, directly or through other blocks."""
    label = list(facts.blocks)
    for _ in facts.blocks:
        for a, b in combinations(facts.blocks, 2):
            if facts.on[a] & facts.on[b] or any(p in (a, b) for p, _ in (*_of(facts, a, b), *_of(facts, b, a))):
                label[a] = label[b] = min(label[a], label[b])
    return [[b for b in facts.blocks if label[b] == part] for part in sorted(set(label))]


def _of(facts: Facts, a: int, b: int) -> list[tuple[int, int]]:
    """Return the dependencies of b on a."""
    return [(p, lag) for p, lag in facts.before[b] if p == a]


def tight_patterns(facts: Facts, part: list[int], unroll: int, period: int) -> Iterator[Pattern]:
    """Yield patterns in which every run is connected to another by a tight dependency or by following it without a gap.

    These patterns are enough.  For a fixed order on each device, memory is fixed, and starts are the solutions of
    difference constraints.  These have a vertex: a solution whose tight constraints connect all runs.
    """
    copies = [(b, u) for u in range(unroll) for b in part]
    if any(facts.duration[b] > period for b in part):
        return
    first: Pattern = {copies[0]: 0}
    seen, waiting = {frozenset(first.items())}, [first]
    while waiting:
        pattern = waiting.pop()
        if len(pattern) == len(copies):
            yield pattern
            continue
        for new in copies:
            if new in pattern:
                continue
            for r in {r % period for old in pattern for r in _tied(facts, old, pattern[old], new)}:
                larger = {**pattern, new: r}
                key = frozenset(larger.items())
                if key not in seen and _disjoint(facts, pattern, new, r, period):
                    seen.add(key)
                    waiting.append(larger)


def _tied(facts: Facts, old: Copy, at: int, new: Copy) -> Iterator[int]:
    (a, u), (b, w) = old, new
    if facts.on[a] & facts.on[b]:
        yield at + facts.duration[a]
        yield at - facts.duration[b]
    if u == w:
        yield from (at + facts.duration[a] + lag for _, lag in _of(facts, a, b))
        yield from (at - facts.duration[b] - lag for _, lag in _of(facts, b, a))


def _disjoint(facts: Facts, pattern: Pattern, new: Copy, r: int, period: int) -> bool:
    b = new[0]
    return all(
        (r - other) % period >= facts.duration[a] and (other - r) % period >= facts.duration[b]
        for (a, _), other in pattern.items()
        if facts.on[a] & facts.on[b]
    )


def _turns_that_fit(facts: Facts, part: list[int], pattern: Pattern, period: int) -> dict[Copy, int] | None:
    """Return the number of periods to add to each start so that dependencies and memory rules hold; None if impossible.

    A run that does not acquire memory is best as early as its predecessors allow.  The same holds for an acquiring run
    whose successors wait only for it.  Any other run is tried in a range that some solution never leaves, because
    delaying everything after a set of blocks by one period never lowers the memory in use.
    """
    order = [(b, u) for b in _topological(facts, part) for u in {u for _, u in pattern}]
    longest_lag = max((lag for b in part for _, lag in facts.before[b]), default=0)
    reach = (len(part) - 1) * (2 + -(-longest_lag // period))
    pinned = _first_sources(facts, part)

    def search(position: int, turns: dict[Copy, int]) -> dict[Copy, int] | None:
        if position == len(order):
            return dict(turns) if _within_room(facts, pattern, turns, period) else None
        b, u = order[position]
        earliest = [
            turns[a, u] - (pattern[b, u] - pattern[a, u] - facts.duration[a] - lag) // period
            for a, lag in facts.before[b]
        ]
        least = 0 if b in pinned else max(earliest, default=-reach)
        free = facts.memory[b] > 0 and b not in pinned and _joined_later(facts, b)
        for turn in range(least, reach + 1 if free else least + 1):
            turns[b, u] = turn
            found = search(position + 1, turns)
            if found is not None:
                return found
        return None

    return search(0, {})


def _topological(facts: Facts, part: list[int]) -> list[int]:
    order: list[int] = []
    while len(order) < len(part):
        order.append(next(b for b in part if b not in order and all(a in order for a, _ in facts.before[b])))
    return order


def _followers(facts: Facts, b: int) -> set[int]:
    found = {b}
    for _ in facts.blocks:
        found |= {c for c in facts.blocks if any(a in found for a, _ in facts.before[c])}
    return found


def _joined_later(facts: Facts, b: int) -> bool:
    """Whether a follower of a block also waits for a block that does not follow it."""
    follow = _followers(facts, b)
    return any(a not in follow for c in follow - {b} for a, _ in facts.before[c])


def _first_sources(facts: Facts, part: list[int]) -> set[int]:
    """Return one source of each connected set of blocks. Shifting such a set by whole periods changes nothing."""
    label = {b: b for b in part}
    for _ in part:
        for b in part:
            for a, _ in facts.before[b]:
                label[a] = label[b] = min(label[a], label[b])
    sources: dict[int, int] = {}
    for b in part:
        if not facts.before[b]:
            sources.setdefault(label[b], b)
    return set(sources.values())


def _within_room(facts: Facts, pattern: Pattern, turns: dict[Copy, int], period: int) -> bool:
    """Whether memory fits at each acquire.

    Held memory is acquired minus released memory, summed over all periods.  Earlier periods cancel, because the memory
    of one micro-batch sums to 0.
    """
    start = {copy: turns[copy] * period + r for copy, r in pattern.items()}
    for (b, _), now in start.items():
        if facts.memory[b] <= 0:
            continue
        for d in facts.on[b]:
            held = 0
            for (a, _), begins in start.items():
                if d in facts.on[a]:
                    counts_from = begins if facts.memory[a] > 0 else begins + facts.duration[a]
                    held += facts.memory[a] * ((now - counts_from) // period + 1)
            if held > facts.room[d]:
                return False
    return True
