"""An independent competitor for the schedule search: list scheduling with evolved priorities, in plain Python.

It uses the model and the referee of `tessel_core` and none of its searches, so its results are independent. At each
moment, the run of highest priority starts among those that are ready and fit in memory [Graham 1966; parallel schedule
generation, Kolisch 1996]. Each block runs its micro-batches in order, because its runs are interchangeable.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from tessel_core.model import BlockKind, MicroBatchPlan, Schedule
from tessel_core.rules import check_schedule

_UNLIMITED = 1 << 62
_RANK_STEP = 1 << 20
"""Distance between neighbouring ranks. It exceeds any number of micro-batches, so an age of 1 only breaks ties."""
_TIE_BREAKS = 12
_POOL_SIZE = 8
_MAX_STALLED_SIMULATIONS = 500
"""A climb ends after this many simulations without improvement."""
_RULES_SHARE = 0.3
"""Share of the time for the initial rules."""
_FRESH_SHARE = 0.3
"""Share of the climbs that start from a rule."""
_OTHER_MUTATIONS_SHARE, _UP_TO_SWAPS_SHARE = 0.08, 0.45
"""Cumulative shares of mutations: those that change no rank, and with those that swap two ranks."""

Kept = tuple[int, "Priorities"]
"""A makespan, and the priorities that led to it."""


@dataclass(frozen=True, slots=True)
class Priorities:
    """Priorities of runs that could start now: the least `ranks[block] + age * micro_batch` comes first."""

    ranks: tuple[int, ...]
    age: int = 1
    guard: str = "none"
    """Guard against deadlocks over memory, a key of `_GUARDS` or "none"."""
    reserves: tuple[bool, ...] = ()
    """Whether each block on several devices makes its free devices wait for the others."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The shortest schedule found, checked by the referee, and the effort."""

    schedule: Schedule
    priorities: tuple[Priorities, ...]
    """Priorities of this schedule and of the next best ones. Empty if only the sequential schedule fits."""
    simulations: int
    runs: int
    """Runs placed by all simulations together, including those that were abandoned."""
    wall_s: float


class ListPeer:
    """A search over priorities, with the plan as lists for fast simulation.

    Parameters
    ----------
    plan
        Any well-formed plan.
    seed
        Seed of all random choices.
    """

    def __init__(self, plan: MicroBatchPlan, seed: int = 0) -> None:
        self.plan = plan
        self.chance = random.Random(seed)
        self.simulations = self.runs = 0
        blocks = plan.blocks
        self.durations = [block.duration for block in blocks]
        self.acquired = [max(0, block.memory) for block in blocks]
        self.released = [max(0, -block.memory) for block in blocks]
        self.homes = [block.devices for block in blocks]
        self.wide = [len(block.devices) > 1 for block in blocks]
        self.narrow_on = [[b for b in on if not self.wide[b]] for on in plan.blocks_on]
        self.wide_on = [[b for b in on if self.wide[b]] for on in plan.blocks_on]
        limits = [device.activation_capacity for device in plan.devices]
        self.capacity = [_UNLIMITED if limit is None else limit for limit in limits]
        self.needs = [sum(self.acquired[b] for b in on) for on in plan.blocks_on]
        # A device with one acquiring block cannot deadlock, because micro-batches come to it in order.
        self.risky = [
            limits[d] is not None and sum(self.acquired[b] > 0 for b in on) > 1 for d, on in enumerate(plan.blocks_on)
        ]
        # An arc is (successor, index among its predecessors). Arcs with a lag are separate events.
        self.at_once: list[list[tuple[int, int]]] = [[] for _ in blocks]
        self.later: list[list[tuple[int, int]]] = [[] for _ in blocks]
        self.lagging: list[tuple[int, int]] = []
        for after, befores in enumerate(plan.predecessors):
            for number, (before, lag) in enumerate(befores):
                if lag:
                    self.later[before].append((lag, len(blocks) + len(self.lagging)))
                    self.lagging.append((after, number))
                else:
                    self.at_once[before].append((after, number))
        self.heads, self.tails = longest_paths(plan)
        self.after_work = [min((self.tails[b] - self.durations[b] for b in on), default=0) for on in plan.blocks_on]

    def simulate(  # noqa: PLR0912, PLR0915  one loop without calls, for its speed
        self, priorities: Priorities, micro_batches: int, limit: int = _UNLIMITED
    ) -> tuple[int, list[list[int]]] | None:
        """Return the makespan and the starts of each block, or None for a deadlock or a makespan above `limit`."""
        durations, acquired, released, homes = self.durations, self.acquired, self.released, self.homes
        wide, narrow_on, wide_on = self.wide, self.narrow_on, self.wide_on
        at_once, later, lagging = self.at_once, self.later, self.lagging
        blocks, devices, age = len(durations), len(narrow_on), priorities.age
        key = list(priorities.ranks)
        befores = self.plan.predecessors
        ready = [0 if befores[block] else micro_batches for block in range(blocks)]
        arrived = [[0] * len(befores[block]) for block in range(blocks)]
        starts: list[list[int]] = [[] for _ in durations]
        idle, free = [True] * devices, list(self.capacity)
        # A device that starts a run later than this cannot finish its remaining work within the limit.
        latest = [
            limit - micro_batches * work - after for work, after in zip(self.plan.work, self.after_work, strict=True)
        ]
        guard = None if priorities.guard == "none" else _GUARDS[priorities.guard](self, micro_batches, starts, free)
        shift = (blocks + len(lagging)).bit_length()
        mask = (1 << shift) - 1
        events: list[int] = []
        wides = _Wides(self, priorities, key, ready, starts, free, idle, latest, events, shift, guard)
        touched, now, last_try = list(range(devices)), 0, False
        self.simulations += 1
        while True:
            held = []
            for device in touched:
                if not idle[device]:
                    continue
                best, least, room = -1, _UNLIMITED, free[device]
                for block in narrow_on[device]:
                    if (
                        ready[block]
                        and key[block] < least
                        and acquired[block] <= room
                        and (guard is None or not acquired[block] or guard.lets(block))
                    ):
                        best, least = block, key[block]
                for block in wide_on[device]:
                    if ready[block] and key[block] < least:
                        held.append(device)
                        best = -1
                        break
                if best >= 0:
                    if now > latest[device]:
                        self.runs += sum(map(len, starts))
                        return None
                    if guard is not None:
                        guard.start(best)
                    starts[best].append(now)
                    ready[best] -= 1
                    key[best] += age
                    free[device] = room - acquired[best]
                    idle[device] = False
                    latest[device] += durations[best]
                    heappush(events, now + durations[best] << shift | best)
            if held and not wides.dispatch(held, now):
                self.runs += sum(map(len, starts))
                return None
            if not events:
                # Some runs waited for a block on several devices that no longer fits. Try them once more.
                if last_try or not any(ready):
                    break
                touched, last_try = list(range(devices)), True
                continue
            last_try = False
            event = heappop(events)
            now = event >> shift
            this_moment = (now + 1) << shift
            touched = []
            while True:
                code = event & mask
                if code < blocks:
                    for device in homes[code]:
                        idle[device] = True
                        free[device] += released[code]
                        touched.append(device)
                    if guard is not None:
                        guard.end(code)
                    for lag, arc in later[code]:
                        heappush(events, now + lag << shift | arc)
                    arrivals = at_once[code]
                else:
                    arrivals = [lagging[code - blocks]]
                for after, number in arrivals:
                    counts = arrived[after]
                    counts[number] += 1
                    if len(counts) == 1 or counts[number] <= min(counts):
                        ready[after] += 1
                        if wide[after]:
                            touched.extend(homes[after])
                        else:
                            touched.append(homes[after][0])
                if not events or events[0] >= this_moment:
                    break
                event = heappop(events)
        self.runs += sum(map(len, starts))
        if any(len(each) < micro_batches for each in starts):
            return None
        return max(each[-1] + duration for each, duration in zip(starts, durations, strict=True)), starts

    def evolve(self, micro_batches: int, seconds: float) -> Answer:
        """Return the shortest schedule by the initial rules, and by priorities evolved from them, in `seconds`.

        A climb keeps every mutation that is not worse. If it stalls, the next climb starts from one of the best results
        or from a rule.
        """
        began = time.perf_counter()
        until = began + seconds
        self.simulations = self.runs = 0
        pool: list[Kept] = []
        for candidate in self.rules():
            found = self.simulate(candidate, micro_batches)
            if found is not None:
                pool.append((found[0], candidate))
            if pool and time.perf_counter() > began + _RULES_SHARE * seconds:
                break
        pool = starting = sorted(pool, key=_makespan)[: 2 * _POOL_SIZE]
        while pool and time.perf_counter() < until:
            begin = self.chance.choice(starting if self.chance.random() < _FRESH_SHARE else pool[:_POOL_SIZE])
            end = self._climb(begin, micro_batches, until)
            pool = sorted({kept[1]: kept for kept in [*pool, end]}.values(), key=_makespan)[:_POOL_SIZE]
        found = self.simulate(pool[0][1], micro_batches) if pool else None
        starts = one_by_one(self.plan, micro_batches) if found is None else found[1]
        schedule = Schedule.from_starts(self.plan, np.array(starts, dtype=np.int64).T)
        violations = check_schedule(schedule)
        assert not violations, violations[0]
        best = tuple(priorities for _, priorities in pool[:_POOL_SIZE])
        return Answer(schedule, best, self.simulations, self.runs, time.perf_counter() - began)

    def long_makespan(self, answer: Answer, micro_batches: int, seconds: float) -> int:
        """Return the least makespan of another number of micro-batches, by the priorities of `answer` and the rules."""
        until = time.perf_counter() + seconds
        least = max(starts[-1] for starts in one_by_one(self.plan, micro_batches)) + max(self.durations)
        for priorities in dict.fromkeys([*answer.priorities, *self.rules(tie_breaks=1)]):
            found = self.simulate(priorities, micro_batches, least)
            least = least if found is None else found[0]
            if time.perf_counter() > until:
                break
        return least

    def _climb(self, kept: Kept, micro_batches: int, until: float) -> Kept:
        """Mutate again and again, and keep each mutation that is not worse, until the climb stalls."""
        stalled = 0
        while stalled < _MAX_STALLED_SIMULATIONS and time.perf_counter() < until:
            candidate = self._mutated(kept[1])
            found = self.simulate(candidate, micro_batches, kept[0])
            stalled += 1
            if found is not None:
                if found[0] < kept[0]:
                    stalled = 0
                kept = found[0], candidate
        return kept

    def rules(self, tie_breaks: int = _TIE_BREAKS) -> Iterator[Priorities]:
        """Yield the priorities of fifteen rules, with ties in the plan's order and then at random."""
        plan = self.plan
        kinds = [block.kind for block in plan.blocks]
        blocks = range(len(kinds))
        backward, weight = [kind is BlockKind.BACKWARD for kind in kinds], [kind is BlockKind.WEIGHT for kind in kinds]
        memory = [block.memory for block in plan.blocks]
        orders: list[tuple[Callable[[int], tuple[float, ...]], int]] = [
            (lambda b: (-backward[b] - 2 * weight[b],), 1),  # weight gradients, backward, forward
            (lambda b: (-2 * backward[b] - weight[b],), 1),  # backward, weight gradients, forward
            (lambda b: (-backward[b] + weight[b],), 1),  # backward, forward, weight gradients
            (lambda b: (-backward[b] + weight[b], -self.heads[b]), 1),  # the same, the deepest stage first
            (lambda b: (backward[b] + 2 * weight[b],), 1),  # forward first
            (lambda b: (-self.tails[b],), 1),  # longest remaining path
            (lambda b: (self.tails[b],), 1),  # shortest remaining path
            (lambda b: (-self.heads[b],), 1),  # deepest stage
            (lambda b: (memory[b],), 1),  # largest release
            (lambda b: (-self.durations[b],), 1),  # longest block
            (lambda b: (self.durations[b],), 1),  # shortest block
            (lambda b: (-backward[b],), len(blocks) * _RANK_STEP),  # first in, first out
            (lambda b: (-backward[b] + weight[b],), _RANK_STEP),  # backward unless a forward is far behind
            (lambda b: (-self.tails[b],), _RANK_STEP),  # longest remaining path unless far ahead
            (lambda b: (-self.wide[b], -backward[b]), 1),  # blocks on several devices, backward, forward
        ]
        for attempt in range(tie_breaks):
            for order, age in orders:
                ties = [self.chance.random() if attempt else float(b) for b in blocks]
                ranks = [0] * len(blocks)
                for rank, block in enumerate(sorted(blocks, key=lambda b: (*order(b), ties[b]))):
                    ranks[block] = rank * _RANK_STEP
                for guard in ("whole", "order", "none") if any(self.risky) else ("none",):
                    for waits in (False, True)[: 1 + any(self.wide)]:
                        yield Priorities(tuple(ranks), age, guard, tuple(each and waits for each in self.wide))

    def _mutated(self, priorities: Priorities) -> Priorities:
        """Return the priorities with other ranks of a few blocks, or sometimes with another option."""
        chance, ranks = self.chance, list(priorities.ranks)
        draw = chance.random()
        if draw < _OTHER_MUTATIONS_SHARE:
            return self._with_other_option(priorities)
        if draw < _UP_TO_SWAPS_SHARE:
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                on = chance.choice(self.plan.blocks_on)
                if len(on) > 1:
                    one, other = chance.sample(on, 2)
                    ranks[one], ranks[other] = ranks[other], ranks[one]
        else:
            spread = _RANK_STEP * chance.choice((0.5, 1, 2, 4, len(ranks) / 2))
            for block in chance.sample(range(len(ranks)), min(len(ranks), chance.choice((1, 1, 2, 3, 8)))):
                ranks[block] += int(chance.gauss(0, spread))
        return replace(priorities, ranks=tuple(ranks))

    def _with_other_option(self, priorities: Priorities) -> Priorities:
        """Return the priorities with another age, guard or reservation."""
        chance = self.chance
        what = chance.randrange(3)
        if what == 0 and any(self.risky):
            return replace(priorities, guard=chance.choice([g for g in ("none", *_GUARDS) if g != priorities.guard]))
        if what == 1 and any(self.wide):
            block = chance.choice([b for b, wide in enumerate(self.wide) if wide])
            return replace(
                priorities, reserves=tuple(each != (b == block) for b, each in enumerate(priorities.reserves))
            )
        return replace(priorities, age=chance.choice((1, int(_RANK_STEP * 2 ** chance.uniform(-3, 4)))))


class _Guard:
    """Keeps devices from filling up with micro-batches of which none can continue.

    Only devices on which a micro-batch acquires memory more than once need it. Micro-batches enter them in order.
    """

    def __init__(self, peer: ListPeer, micro_batches: int, starts: list[list[int]], free: list[int]) -> None:
        self.acquired, self.released, self.needs = peer.acquired, peer.released, peer.needs
        self.starts, self.free = starts, free
        self.places = [[d for d in homes if peer.risky[d]] for homes in peer.homes]
        self.entered, self.ended = [0] * len(free), [0] * len(starts)

    def lets(self, block: int) -> bool:
        """Return whether the next micro-batch of `block` may acquire now."""
        micro_batch, amount = len(self.starts[block]), self.acquired[block]
        for device in self.places[block]:
            if micro_batch > self.entered[device] or not self.safe(device, micro_batch, amount):
                return False
        return True

    def start(self, block: int) -> None:
        """Record that the next micro-batch of `block` starts."""
        micro_batch, amount = len(self.starts[block]), self.acquired[block]
        if amount:
            for device in self.places[block]:
                self.acquire(device, micro_batch, amount)
                if micro_batch == self.entered[device]:
                    self.entered[device] += 1

    def end(self, block: int) -> None:
        """Record that the oldest running micro-batch of `block` ends."""
        micro_batch, amount = self.ended[block], self.released[block]
        self.ended[block] += 1
        if amount:
            for device in self.places[block]:
                self.release(device, micro_batch, amount)

    def safe(self, device: int, micro_batch: int, amount: int) -> bool:
        raise NotImplementedError

    def acquire(self, device: int, micro_batch: int, amount: int) -> None:
        raise NotImplementedError

    def release(self, device: int, micro_batch: int, amount: int) -> None:
        raise NotImplementedError


class _Whole(_Guard):
    """A micro-batch enters only if all that it will acquire on the device fits."""

    def __init__(self, peer: ListPeer, micro_batches: int, starts: list[list[int]], free: list[int]) -> None:
        super().__init__(peer, micro_batches, starts, free)
        self.room = list(free)

    def safe(self, device: int, micro_batch: int, amount: int) -> bool:
        return micro_batch < self.entered[device] or self.room[device] >= self.needs[device]

    def acquire(self, device: int, micro_batch: int, amount: int) -> None:
        if micro_batch == self.entered[device]:
            self.room[device] -= self.needs[device]

    def release(self, device: int, micro_batch: int, amount: int) -> None:
        self.room[device] += amount


class _InOrder(_Guard):
    """After each run, all micro-batches could still finish one after another, the oldest first.

    This is the banker's algorithm [Dijkstra 1965] with a fixed order.
    """

    def __init__(self, peer: ListPeer, micro_batches: int, starts: list[list[int]], free: list[int]) -> None:
        super().__init__(peer, micro_batches, starts, free)
        self.holds = [[0] * micro_batches for _ in free]
        self.missing = [[need] * micro_batches for need in self.needs]
        self.oldest = [0] * len(free)

    def safe(self, device: int, micro_batch: int, amount: int) -> bool:
        holds, missing, need = self.holds[device], self.missing[device], self.needs[device]
        room = self.free[device] - amount
        for each in range(self.oldest[device], max(self.entered[device], micro_batch + 1)):
            own = amount if each == micro_batch else 0
            if missing[each] - own > room:
                return False
            room += holds[each] + own
            if room >= need:
                return True
        return room >= need

    def acquire(self, device: int, micro_batch: int, amount: int) -> None:
        self.holds[device][micro_batch] += amount
        self.missing[device][micro_batch] -= amount

    def release(self, device: int, micro_batch: int, amount: int) -> None:
        self.holds[device][micro_batch] -= amount
        oldest = self.oldest[device]
        while oldest < self.entered[device] and not self.holds[device][oldest] + self.missing[device][oldest]:
            oldest += 1
        self.oldest[device] = oldest


_GUARDS: dict[str, type[_Guard]] = {"whole": _Whole, "order": _InOrder}


class _Wides:
    """Dispatch on devices for which a block on several devices has the highest priority."""

    def __init__(
        self,
        peer: ListPeer,
        priorities: Priorities,
        key: list[int],
        ready: list[int],
        starts: list[list[int]],
        free: list[int],
        idle: list[bool],
        latest: list[int],
        events: list[int],
        shift: int,
        guard: _Guard | None,
    ) -> None:
        self.peer, self.age, self.reserves = peer, priorities.age, priorities.reserves
        self.key, self.ready, self.starts, self.free, self.idle = key, ready, starts, free, idle
        self.latest, self.events, self.shift, self.guard = latest, events, shift, guard
        self.blocks = [b for b, wide in enumerate(peer.wide) if wide]

    def dispatch(self, held: list[int], now: int) -> bool:
        """Start runs on the `held` devices. Return False if one is too late for the limit."""
        ready, key = self.ready, self.key
        awaited = {}
        for block in sorted((block for block in self.blocks if ready[block]), key=key.__getitem__):
            idle = all(self.idle[device] for device in self.peer.homes[block])
            if (idle or self.reserves[block]) and self._fits(block):
                if idle and not self._start(block, now):
                    return False
                if ready[block] and self.reserves[block]:
                    awaited[block] = key[block]
        for device in held:
            if not self.idle[device]:
                continue
            best, least = -1, min([awaited[b] for b in self.peer.wide_on[device] if b in awaited], default=_UNLIMITED)
            for block in self.peer.narrow_on[device]:
                if self.ready[block] and self.key[block] < least and self._fits(block):
                    best, least = block, self.key[block]
            if best >= 0 and not self._start(best, now):
                return False
        return True

    def _fits(self, block: int) -> bool:
        amount = self.peer.acquired[block]
        if not amount:
            return True
        room = all(self.free[device] >= amount for device in self.peer.homes[block])
        return room and (self.guard is None or self.guard.lets(block))

    def _start(self, block: int, now: int) -> bool:
        duration, amount = self.peer.durations[block], self.peer.acquired[block]
        if self.guard is not None:
            self.guard.start(block)
        for device in self.peer.homes[block]:
            if now > self.latest[device]:
                return False
            self.latest[device] += duration
            self.free[device] -= amount
            self.idle[device] = False
        self.starts[block].append(now)
        self.ready[block] -= 1
        self.key[block] += self.age
        heappush(self.events, now + duration << self.shift | block)
        return True


def longest_paths(plan: MicroBatchPlan) -> tuple[list[int], list[int]]:
    """Return the longest paths to the start of each block, and from its start to the end of the micro-batch."""
    heads = [0] * len(plan.blocks)
    tails = [block.duration for block in plan.blocks]
    for block in plan.topological_order:
        for after, lag in plan.successors[block]:
            heads[after] = max(heads[after], heads[block] + plan.blocks[block].duration + lag)
    for block in reversed(plan.topological_order):
        for after, lag in plan.successors[block]:
            tails[block] = max(tails[block], plan.blocks[block].duration + lag + tails[after])
    return heads, tails


def one_by_one(plan: MicroBatchPlan, micro_batches: int) -> list[list[int]]:
    """Return the starts of each block if runs follow one another. Raises ValueError if one micro-batch does not fit."""
    order = _fitting_order(plan, (), list(_free(plan)), set())
    if order is None:
        raise ValueError(f"{plan.name}: no order of one micro-batch fits the memory")
    first, now = [0] * len(plan.blocks), 0
    for block in order:
        ends = [first[before] + plan.blocks[before].duration + lag for before, lag in plan.predecessors[block]]
        first[block] = max([now, *ends])
        now = first[block] + plan.blocks[block].duration
    return [[start + now * m for m in range(micro_batches)] for start in first]


def _free(plan: MicroBatchPlan) -> Iterator[int]:
    for device in plan.devices:
        yield _UNLIMITED if device.activation_capacity is None else device.activation_capacity


def _fitting_order(
    plan: MicroBatchPlan, order: tuple[int, ...], free: list[int], failed: set[frozenset[int]]
) -> tuple[int, ...] | None:
    """Extend `order` to all blocks within the memory, trying releases first. Return None if that is impossible."""
    done = frozenset(order)
    if len(done) == len(plan.blocks):
        return order
    if done in failed:
        return None
    for block in sorted(set(range(len(plan.blocks))) - done, key=lambda b: plan.blocks[b].memory):
        amount, homes = plan.blocks[block].memory, plan.blocks[block].devices
        if not all(before in done for before, _ in plan.predecessors[block]):
            continue
        if amount > 0 and any(free[device] < amount for device in homes):
            continue
        left = [room - amount * (device in homes) for device, room in enumerate(free)]
        found = _fitting_order(plan, (*order, block), left, failed)
        if found is not None:
            return found
    failed.add(done)
    return None


def _makespan(kept: Kept) -> int:
    return kept[0]
