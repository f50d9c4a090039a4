"""Search over any sets of groups per device, by multilevel annealing and exact neighbourhoods.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and consumers.

Annealing that moves single groups gets stuck, because all groups of a costly net would have to move at once. So the
search first anneals clusters of groups, then smaller clusters, down to single groups [Karypis et al., Multilevel
hypergraph partitioning, IEEE Trans. VLSI 1999]. Clusters join groups of the same net, mostly of costly nets.

There are four ways to find another split. The search chooses a way with a probability proportional to its improvements
per second:

fresh       anneal clusters of any groups, from a random split
refine      anneal clusters of groups that share a device in a good split, from that split
combine     anneal clusters of groups that share a device in each of two good splits, from the better split
exact       CP-SAT assigns the groups of the most loaded device and of some or all other devices again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.random import Generator

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.placement.annealing import Heat, Ints, Tables, anneal, coarsened, tables_of, warm_in_time
from tessel_core.placement.moves import Moves, fits_memory, measured
from tessel_core.placement.pipeline import EQUAL_LOADS, DeviceClass, Floats, Net, Pipeline, Split
from tessel_core.placement.split_model import Resolution, SplitModel

_FIRST_STEPS = 300_000
"""Annealing steps for each level of clusters (see `_levels`), until the search has stalled for the first time."""
_MAX_STEPS = 8_000_000
_STALLED_CYCLES = 10
"""After this many cycles without a better split, each level gets 50 % more steps. A cycle tries one way."""
_STEPS_PER_SECOND = 4_000_000.0
"""Annealing steps that a repeatable search counts as one second. Usual machines do more steps per second."""
_EXACT_SECONDS, _MIN_EXACT_SECONDS = 6.0, 0.2
"""Time limit of the way "exact", and the least time to count for an attempt, which includes building the model."""
_MAX_FREED_GROUPS = 400
"""Largest number of groups that CP-SAT assigns again at once."""
_MAX_KEPT_SPLITS = 8
"""Largest number of good splits to keep. No two kept splits have the same load."""
_MIN_FRESH_SPLITS = 4
"""Number of splits to keep before ways other than "fresh" are tried.

After twice as many cycles, they are tried anyway.
"""
_MIN_CLUSTERS = 30
_CLUSTERS_PER_LEVEL_RATIO = 0.6
"""A level is used if it has at most this share of the clusters of the level before."""
_PATIENCE_FACTOR, _MIN_PATIENCE_SECONDS = 4.0, 4.0
"""A call of `run` ends after factor * t + minimum seconds if its best split was found after t seconds."""
_OUTSIDE = -1
"""Index of an artificial device that stands for all devices whose groups CP-SAT does not place again."""


class Way(Enum):
    """Method to find another split. The docstring of the module describes each method."""

    FRESH = "fresh"
    REFINE = "refine"
    COMBINE = "combine"
    EXACT = "exact"


@dataclass
class _Record:
    """Time that a way has taken so far, and its number of improvements."""

    seconds: float
    """Seconds that the way has taken, plus the expected seconds of one attempt."""
    gains: int = 1
    """Number of improvements, plus one."""

    @property
    def rate(self) -> float:
        """Improvements per second."""
        return self.gains / self.seconds


@dataclass
class AnySetSearch:
    """A search over any sets of groups per device. Each call of `run` continues it.

    `parts` has a pipeline for each part of the objective (see `Pipeline.parts`). `kept` has the best splits in order of
    load, all of which fit in memory.
    """

    parts: Sequence[Pipeline]
    start: Split
    effort: Effort
    kept: list[Split] = field(init=False)
    _tables: Tables = field(init=False)
    _records: dict[Way, _Record] = field(init=False)
    _cycles: int = field(init=False, default=0)
    _stalled: int = field(init=False, default=0)
    _steps: int = field(init=False, default=_FIRST_STEPS)

    def __post_init__(self) -> None:
        self.kept, self._tables = [self.start], tables_of(self.parts)
        tries = dict.fromkeys(Way, 5 * _FIRST_STEPS / _STEPS_PER_SECOND) | {Way.EXACT: _EXACT_SECONDS}
        self._records = {way: _Record(seconds) for way, seconds in tries.items()}

    @property
    def best(self) -> Split:
        """The best split so far."""
        return self.kept[0]

    def run(self, seconds: float, bound: float, control: Control) -> float:
        """Search for about `seconds` seconds, and return the seconds that the search took.

        The search ends early if the best split meets `bound`, or after a long time without improvement.
        """
        spent = last = 0.0
        if not warm_in_time(control.part(seconds)):
            return spent
        with ThreadPoolExecutor(self.effort.workers) as threads:
            while spent < min(seconds, _PATIENCE_FACTOR * last + _MIN_PATIENCE_SECONDS) and not control.stopped:
                if self.best.load <= bound * (1 + EQUAL_LOADS):
                    break
                before = self.best.load
                way, seconds_spent = self._cycle(threads, control)
                spent += seconds_spent
                if self.best.load < before:
                    last = spent
                    control.report(
                        "any sets", Fraction(self.best.load), Fraction(min(bound, self.best.load)), way.value
                    )
        return spent

    def _cycle(self, threads: ThreadPoolExecutor, control: Control) -> tuple[Way, float]:
        """Try one way on every thread, or "exact" once. Return the way, and the seconds to count for it."""
        began = control.elapsed_s
        choose = np.random.default_rng((self.effort.seed, self._cycles))
        self._cycles += 1
        way = self._way(choose)
        if way is Way.EXACT:
            tried = [self.attempt(way, choose, control)]
        else:
            jobs = [threads.submit(self.attempt, way, each, control) for each in choose.spawn(self.effort.workers)]
            tried = [job.result() for job in jobs]
        better = [self.keep(split) for split, _ in tried if split is not None]
        counted = max(seconds for _, seconds in tried)
        seconds = counted if self.effort.repeatable else control.elapsed_s - began
        self._records[way].seconds += seconds
        self._records[way].gains += any(better)
        self._stalled = 0 if any(better) else self._stalled + 1
        if self._stalled == _STALLED_CYCLES:
            self._steps, self._stalled = min(_MAX_STEPS, self._steps * 3 // 2), 0
        return way, seconds

    def _way(self, choose: Generator) -> Way:
        """Draw a way with a probability proportional to its improvements per second."""
        if len(self.kept) < _MIN_FRESH_SPLITS and self._cycles <= 2 * _MIN_FRESH_SPLITS:
            return Way.FRESH
        rates = np.array([record.rate for record in self._records.values()])
        return list(self._records)[int(choose.choice(len(rates), p=rates / rates.sum()))]

    def keep(self, split: Split) -> bool:
        """Keep a split if it fits in memory and no kept split has the same load.

        Return whether it is the best split.
        """
        if any(abs(split.load - each.load) <= EQUAL_LOADS * each.load for each in self.kept):
            return False
        if not fits_memory(self.parts, split.device_of):
            return False
        self.kept = sorted([*self.kept, split], key=lambda each: each.load)[:_MAX_KEPT_SPLITS]
        return self.best is split

    def attempt(self, way: Way, choose: Generator, control: Control) -> tuple[Split | None, float]:
        """Try a way once. Return the split, or None if there is none, and the seconds to count for the attempt."""
        if way is Way.EXACT:
            return self._exactly(choose, control)
        within, on = self._origin(way, choose)
        hottest = 10 ** choose.uniform(*((-2.7, -1.7) if way is Way.FRESH else (-3.3, -1.7)))
        heat, seconds = Heat(hottest, hottest / 30), 0.0
        for cluster_of in _levels(self.parts[0], self.best.load, within, choose):
            tables = coarsened(self._tables, cluster_of)
            start = _at_random(tables, choose) if on is None else _of_clusters(on, cluster_of)
            annealed = anneal(tables, start, self.best.load, heat, self._steps, int(choose.integers(2**31)), control)
            on, seconds = annealed[cluster_of], seconds + self._steps / _STEPS_PER_SECOND
        assert on is not None, "the last level has every group"
        return measured(self.parts, on.tolist()), seconds

    def _origin(self, way: Way, choose: Generator) -> tuple[Ints, Ints | None]:
        """Return a label for each group, and the device of each group in the split to start from.

        Only groups with the same label may be in one cluster. The second result is None for a random split.
        """
        if way is Way.FRESH:
            return np.zeros(len(self.start.device_of), dtype=np.int64), None
        count = min(2 if way is Way.COMBINE else 1, len(self.kept))
        chosen = sorted(choose.choice(len(self.kept), count, replace=False).tolist())
        devices = [np.array(self.kept[i].device_of) for i in chosen]
        return devices[0] * self._tables.pays.size + devices[-1], devices[0]

    def _exactly(self, choose: Generator, control: Control) -> tuple[Split | None, float]:
        """Let CP-SAT assign the groups of some devices of a good split again. The best split is drawn most often.

        Return the new split, or None if CP-SAT finds none, and the seconds to count for the attempt.
        """
        known = self.kept[min(int(choose.geometric(0.5)), len(self.kept)) - 1]
        moves = Moves(self.parts, known.device_of)
        freed = _freed(moves, choose)
        groups = [v for v, device in enumerate(known.device_of) if device in freed]
        inside = [_inside(part, groups, freed) for part in self.parts]
        model = SplitModel(
            inside, contiguous=False, ordered=False, resolution=Resolution.FINE, upper=known.load, control=control
        )
        others = [d for d in moves.devices if d not in freed]
        least = [max((load[d] for d in others), default=0.0) for load in moves.load]
        model.bound_from_below(least, 0.0)
        model.hint(Split(known.load, (*(known.device_of[v] for v in groups), _OUTSIDE)))
        seed = int(choose.integers(2**31))
        effort = replace(self.effort, seconds=_EXACT_SECONDS, seed=seed, interleaved=True)
        _, device_of, _, taken = model.solve(effort)
        seconds = max(taken, _MIN_EXACT_SECONDS)
        if device_of is None:
            return None, seconds
        on = dict(zip(groups, device_of, strict=False))
        return measured(self.parts, [on.get(v, device) for v, device in enumerate(known.device_of)]), seconds


def _freed(moves: Moves, choose: Generator) -> set[int]:
    """Return the devices whose groups CP-SAT assigns again.

    These are the most loaded device, and random others as long as they do not have too many groups together.
    """
    load = moves.load[int(choose.integers(len(moves.load)))]
    top = int(np.argmax(load))
    others = [d for d in moves.devices if d != top]
    count = int(choose.integers(1, len(others) + 1)) if others else 0
    freed = {top}
    for device in choose.permutation(others)[:count].tolist():
        if sum(on in freed or on == device for on in moves.on) <= _MAX_FREED_GROUPS:
            freed.add(device)
    return freed


def _inside(part: Pipeline, groups: Sequence[int], freed: set[int]) -> Pipeline:
    """Return the pipeline of `groups`, which are on the devices `freed`.

    Another group, alone on the device `_OUTSIDE`, stands for all other groups.
    """
    number, outside = {v: i for i, v in enumerate(groups)}, len(groups)
    classes = [
        replace(
            each,
            devices=tuple(sorted(freed.intersection(each.devices))),
            time=np.append(each.time[groups], np.inf),
            backward=np.append(each.backward[groups], 0.0),
        )
        for each in part.classes
        if not freed.isdisjoint(each.devices)
    ]
    time = np.append(np.full(len(groups), np.inf), 0.0)
    classes.append(DeviceClass((_OUTSIDE,), time, pays=False, capacity=np.inf, backward=np.zeros(len(groups) + 1)))
    nets = []
    for net in part.nets:
        members = [number[v] for v in net.groups if v in number]
        if members and len(members) < len(net.groups):
            members.append(outside)
        if len(members) > 1:
            nets.append(Net(tuple(members), net.cost, net.backward))
    return Pipeline(
        (*(part.members[v] for v in groups), ()),
        ((),) * (len(groups) + 1),
        np.append(part.memory[groups], 0.0),
        np.zeros(len(groups) + 1),  # `keep` checks the memory of further micro-batches
        part.in_flight,
        tuple(classes),
        tuple(nets),
    )


def _levels(pipeline: Pipeline, load: float, within: Ints, choose: Generator) -> Iterator[Ints]:
    """Yield an array with the cluster of each group, for levels with more and more clusters, down to single groups.

    Two clusters are merged if a net joins them, their groups have the same label in `within`, and some device supports
    both and has memory for both. On that device, the merged groups must take a small fraction of `load`. Costly nets
    mostly come first.
    """
    fine = np.arange(len(pipeline.members))
    clusters, levels, count = _Clusters(pipeline, load / choose.uniform(2.0, 6.0)), [fine], len(fine)
    share = np.array([net.cost / (len(net.groups) - 1) for net in pipeline.nets])
    for e in np.argsort(-share * np.sqrt(choose.random(len(share)))).tolist():
        members = pipeline.nets[e].groups
        for one, other in pairwise(members):
            if within[one] == within[other] and clusters.join(one, other):
                count -= 1
        if count <= _CLUSTERS_PER_LEVEL_RATIO * (levels[-1].max() + 1):
            levels.append(clusters.numbers())
        if count <= _MIN_CLUSTERS:
            break
    yield from reversed(levels)


class _Clusters:
    """Disjoint sets of groups. Each set fits on some device, and takes at most the time `most` there."""

    def __init__(self, pipeline: Pipeline, most: float) -> None:
        self._above, self._most = list(range(len(pipeline.members))), most
        self._time: list[Floats] = list(np.array([each.time for each in pipeline.classes]).T)
        self._memory = np.asarray(pipeline.memory, dtype=np.float64).tolist()
        self._capacity = np.array([each.capacity for each in pipeline.classes])

    def _top(self, group: int) -> int:
        while self._above[group] != group:
            self._above[group] = self._above[self._above[group]]
            group = self._above[group]
        return group

    def join(self, one: int, other: int) -> bool:
        """Merge the clusters of two groups if that is allowed. Return whether they were merged."""
        one, other = self._top(one), self._top(other)
        if one == other:
            return False
        time, memory = self._time[one] + self._time[other], self._memory[one] + self._memory[other]
        if not np.any((time <= self._most) & (memory <= self._capacity)):
            return False
        self._above[one] = other
        self._time[other], self._memory[other] = time, memory
        return True

    def numbers(self) -> Ints:
        """Return the cluster of each group. Clusters are numbered from 0."""
        return np.unique([self._top(v) for v in range(len(self._above))], return_inverse=True)[1]


def _of_clusters(on: Ints, cluster_of: Ints) -> Ints:
    """Return the device of each cluster. `on` has the device of each group, which is the same within a cluster."""
    devices = np.zeros(int(cluster_of.max()) + 1, dtype=np.int64)
    devices[cluster_of] = on
    return devices


def _at_random(tables: Tables, choose: Generator) -> Ints:
    """Return a random device for each group. Devices on which the group takes less time are more likely."""
    time = tables.time.sum(axis=0)
    least = np.min(time[time > 0], initial=1.0)
    devices: Ints = np.argmin((time + least) * choose.exponential(size=time.shape), axis=1)
    return devices
