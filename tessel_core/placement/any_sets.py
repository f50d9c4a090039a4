"""Any sets of groups per device: multilevel annealing and exact neighbourhoods, chosen by what they gain per second.

Annealing group by group does not get past tensors that cost much: whatever shares one would have to move at once.  So
clusters of groups are annealed first, then smaller ones, down to single groups [Karypis et al., Multilevel hypergraph
partitioning, IEEE Trans. VLSI 1999].  Clusters grow along the nets, mostly along those that cost most.  There are four
ways to a further split:

fresh       clusters of any groups, from a random split
refine      clusters within the devices of a good split, from that split
combine     clusters within the devices of two good splits, from the better one
exact       the most loaded device and one to three others are freed, and CP-SAT places their groups again
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

_STEPS = 300_000
"""Annealing steps per level of clusters, at first."""
_MOST_STEPS = 8_000_000
_STALLED_CYCLES = 10
"""Cycles without a better split after which each level gets half as many steps again."""
_STEPS_PER_SECOND = 4_000_000.0
"""Fewer than usual machines do.  A search that is to be repeatable counts its time in steps."""
_EXACT_SECONDS = 4.0
_MOST_FREED = 300
"""Groups that CP-SAT places again at once."""
_MOST_KEPT = 8
"""Good splits that are kept, each with another load."""
_FEWEST_KEPT = 4
"""Fresh splits before any other way is tried."""
_FEWEST_CLUSTERS = 30
_LESS_PER_LEVEL = 0.6
"""Clusters of a level per cluster of the next finer one."""
_PATIENCE, _LEAST_SECONDS = 4.0, 4.0
"""The search ends after so many times the seconds that the best split took, and so many more."""
_OUTSIDE = -1
"""The device that stands for all that are not freed."""


class Way(Enum):
    """How to come to a further split."""

    FRESH = "fresh"
    REFINE = "refine"
    COMBINE = "combine"
    EXACT = "exact"


@dataclass
class _Record:
    """What a way has gained so far."""

    seconds: float
    """Spent, and those of one further try."""
    gains: int = 1

    @property
    def rate(self) -> float:
        return self.gains / self.seconds


@dataclass
class AnySetSearch:
    """A search that can be continued; `kept` has the best splits, best first, all within memory."""

    parts: Sequence[Pipeline]
    start: Split
    effort: Effort
    kept: list[Split] = field(init=False)
    _tables: Tables = field(init=False)
    _records: dict[Way, _Record] = field(init=False)
    _cycles: int = field(init=False, default=0)
    _stalled: int = field(init=False, default=0)
    _steps: int = field(init=False, default=_STEPS)

    def __post_init__(self) -> None:
        self.kept, self._tables = [self.start], tables_of(self.parts)
        tries = dict.fromkeys(Way, 5 * _STEPS / _STEPS_PER_SECOND) | {Way.EXACT: _EXACT_SECONDS}
        self._records = {way: _Record(seconds) for way, seconds in tries.items()}

    @property
    def best(self) -> Split:
        """The best split so far."""
        return self.kept[0]

    def run(self, seconds: float, bound: float, control: Control) -> float:
        """Search for about so many seconds, less if the best meets the bound or little is gained; returns how many."""
        spent = last = 0.0
        if not warm_in_time(control.part(seconds)):
            return spent
        with ThreadPoolExecutor(self.effort.workers) as threads:
            while spent < min(seconds, _PATIENCE * last + _LEAST_SECONDS) and not control.stopped:
                if self.best.load <= bound * (1 + EQUAL_LOADS):
                    break
                before, began = self.best.load, control.elapsed_s
                way, counted = self._cycle(threads, control)
                spent += counted if self.effort.repeatable else control.elapsed_s - began
                if self.best.load < before:
                    last = spent
                    control.report(
                        "any sets", Fraction(self.best.load), Fraction(min(bound, self.best.load)), way.value
                    )
        return spent

    def _cycle(self, threads: ThreadPoolExecutor, control: Control) -> tuple[Way, float]:
        """Try one way on every thread, and return it and the seconds that it counts for."""
        choose = np.random.default_rng((self.effort.seed, self._cycles))
        self._cycles += 1
        way = self._way(choose)
        if way is Way.EXACT:
            tried = [self.attempt(way, choose, control)]
        else:
            jobs = [threads.submit(self.attempt, way, each, control) for each in choose.spawn(self.effort.workers)]
            tried = [job.result() for job in jobs]
        found, seconds = [split for split, _ in tried], max(seconds for _, seconds in tried)
        better = [self.keep(split) for split in found if split is not None]
        self._records[way].seconds += seconds
        self._records[way].gains += any(better)
        self._stalled = 0 if any(better) else self._stalled + 1
        if self._stalled == _STALLED_CYCLES:
            self._steps, self._stalled = min(_MOST_STEPS, self._steps * 3 // 2), 0
        return way, seconds

    def _way(self, choose: Generator) -> Way:
        """A way that gains much per second is chosen often."""
        if len(self.kept) < _FEWEST_KEPT and self._cycles <= 2 * _FEWEST_KEPT:
            return Way.FRESH
        rates = np.array([record.rate for record in self._records.values()])
        return list(self._records)[int(choose.choice(len(rates), p=rates / rates.sum()))]

    def keep(self, split: Split) -> bool:
        """Add a split to those that are kept, unless it does not fit or its load is known; whether it is the best."""
        if any(abs(split.load - each.load) <= EQUAL_LOADS * each.load for each in self.kept):
            return False
        if not fits_memory(self.parts, split.device_of):
            return False
        self.kept = sorted([*self.kept, split], key=lambda each: each.load)[:_MOST_KEPT]
        return self.best is split

    def attempt(self, way: Way, choose: Generator, control: Control) -> tuple[Split | None, float]:
        """A split, if this way finds one, and the seconds that the attempt counts for."""
        if way is Way.EXACT:
            return self._exactly(choose, control), _EXACT_SECONDS
        within, on = self._origin(way, choose)
        hottest = 10 ** choose.uniform(*((-2.7, -1.7) if way is Way.FRESH else (-3.3, -1.7)))
        heat, seconds = Heat(hottest, hottest / 30), 0.0
        for cluster_of in _levels(self.parts[0], self.best.load, within, choose):
            tables = coarsened(self._tables, cluster_of)
            start = _at_random(tables, choose) if on is None else _of_clusters(on, cluster_of)
            found = anneal(tables, start, self.best.load, heat, self._steps, int(choose.integers(2**31)), control)
            on, seconds = found[cluster_of], seconds + self._steps / _STEPS_PER_SECOND
        assert on is not None, "the last level has every group"
        return measured(self.parts, on.tolist()), seconds

    def _origin(self, way: Way, choose: Generator) -> tuple[Ints, Ints | None]:
        """Per group what its cluster must have in common, and the devices to begin with."""
        if way is Way.FRESH:
            return np.zeros(len(self.start.device_of), dtype=np.int64), None
        count = min(2 if way is Way.COMBINE else 1, len(self.kept))
        chosen = sorted(choose.choice(len(self.kept), count, replace=False).tolist())
        devices = [np.array(self.kept[i].device_of) for i in chosen]
        return devices[0] * self._tables.pays.size + devices[-1], devices[0]

    def _exactly(self, choose: Generator, control: Control) -> Split | None:
        """A good split with some devices' groups placed again by CP-SAT; None where it finds none."""
        known = self.kept[int(choose.integers(len(self.kept)))]
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
        effort = replace(self.effort, seconds=_EXACT_SECONDS, seed=seed)
        _, device_of, _ = model.solve(effort, lambda load, bound: None)
        if device_of is None:
            return None
        on = dict(zip(groups, device_of, strict=False))
        return measured(self.parts, [on.get(v, device) for v, device in enumerate(known.device_of)])


def _freed(moves: Moves, choose: Generator) -> set[int]:
    """The most loaded device of a part and one to three others, fewer where they have too many groups."""
    load = moves.load[int(choose.integers(len(moves.load)))]
    top = int(np.argmax(load))
    others = [d for d in moves.devices if d != top]
    count = min(len(others), int(choose.integers(1, 4)))
    freed = {top}
    for device in choose.permutation(others)[:count].tolist():
        if sum(on in freed or on == device for on in moves.on) <= _MOST_FREED:
            freed.add(device)
    return freed


def _inside(part: Pipeline, groups: Sequence[int], freed: set[int]) -> Pipeline:
    """The groups on freed devices; one more group, on a device of its own, stands for all others."""
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
        np.zeros(len(groups) + 1),  # positions are those of the whole split, which is checked when it is kept
        part.in_flight,
        tuple(classes),
        tuple(nets),
    )


def _levels(pipeline: Pipeline, load: float, within: Ints, choose: Generator) -> Iterator[Ints]:
    """Per group its cluster, for ever more clusters, single groups at last.

    Two clusters become one if `within` is the same there, some device can take both, and their work is a small part of
    the load; nets that cost much come first, to a random degree.
    """
    fine = np.arange(len(pipeline.members))
    clusters, levels, count = _Clusters(pipeline, load / choose.uniform(2.0, 6.0)), [fine], len(fine)
    share = np.array([net.cost / (len(net.groups) - 1) for net in pipeline.nets])
    for e in np.argsort(-share * np.sqrt(choose.random(len(share)))).tolist():
        members = pipeline.nets[e].groups
        for one, other in pairwise(members):
            if within[one] == within[other] and clusters.join(one, other):
                count -= 1
        if count <= _LESS_PER_LEVEL * (levels[-1].max() + 1):
            levels.append(clusters.numbers())
        if count <= _FEWEST_CLUSTERS:
            break
    yield from reversed(levels)


class _Clusters:
    """Disjoint sets of groups that some device can take, with at most so much work each."""

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
        """Join the clusters of two groups if that may be, and say whether they were joined."""
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
        """Per group the number of its cluster."""
        return np.unique([self._top(v) for v in range(len(self._above))], return_inverse=True)[1]


def _of_clusters(on: Ints, cluster_of: Ints) -> Ints:
    """The device of each cluster, whose groups share one."""
    found = np.zeros(int(cluster_of.max()) + 1, dtype=np.int64)
    found[cluster_of] = on
    return found


def _at_random(tables: Tables, choose: Generator) -> Ints:
    """Per group a random device, one that takes less time for it more often."""
    time = tables.time.sum(axis=0)
    least = np.min(time[time > 0], initial=1.0)
    found: Ints = np.argmin((time + least) * choose.exponential(size=time.shape), axis=1)
    return found
