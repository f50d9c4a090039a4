"""Ideals of a pipeline: sets of groups that hold all predecessors of their members, as bit sets, a row each.

The prefixes of a few orders along the flow are a small family of ideals that often holds the best chain.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.checks import grouped
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.pipeline import Floats, Pipeline
from tessel_core.placement.problem import PlacementProblem

Bits = NDArray[np.uint64]
"""Shape (ideals, words): group g is bit g % 64 of word g // 64."""

SMALL_PRODUCT = 1 << 18
"""Multiplications in a product that OpenBLAS leaves to one thread; a larger one wakes all cores, which then spin."""


def all_ideals(pipeline: Pipeline, most: int) -> Bits | None:
    """Every ideal once, or None where there are more than `most`.

    The ideals of groups 0 … v are those of 0 … v - 1, and those of them that hold v's predecessors, with v added.
    """
    count = len(pipeline.members)
    found = np.zeros((1, _words(count)), dtype=np.uint64)
    for group, before in enumerate(pipeline.predecessors):
        needed = bit_set(before, count)
        holds = np.ones(len(found), dtype=bool)
        for word in np.flatnonzero(needed):
            holds &= (found[:, word] & needed[word]) == needed[word]
        grown = found[holds] | bit_set((group,), count)
        if len(found) + len(grown) > most:
            return None
        found = np.concatenate([found, grown])
    return found


def count_ideals(problem: PlacementProblem, most: int) -> int | None:
    """The number of ideals of the problem's groups, from the empty one to the whole; None for more than `most`.

    Groups without cost are contracted, as they are while a placement is searched.

    Raises InputError for an operator that no device supports.
    """
    found = all_ideals(pipeline_of(problem), most)
    return None if found is None else len(found)


def prefixes(orders: Sequence[Sequence[int]]) -> Bits:
    """The ideals that are prefixes of one of some orders along the flow."""
    count = len(orders[0])
    steps = ([bit_set((), count), *(bit_set((group,), count) for group in order)] for order in orders)
    return np.unique(np.concatenate([np.bitwise_or.accumulate(each) for each in steps]), axis=0)


def bit_set(groups: Sequence[int], count: int) -> Bits:
    """One row of words with the bits of `groups`."""
    words = np.zeros(_words(count), dtype=np.uint64)
    for group in groups:
        words[group // 64] |= np.uint64(1) << np.uint64(group % 64)
    return words


def members_of(bits: Bits, count: int) -> NDArray[np.uint8]:
    """Bit sets as 0 and 1, shape (ideals, count)."""
    return np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=-1, bitorder="little", count=count)


def _words(count: int) -> int:
    return max(1, -(-count // 64))


@dataclass(frozen=True)
class Ideals:
    """Ideals in order of their work, from the empty one to the whole pipeline, and what a search asks of them."""

    bits: Bits
    work: Floats
    """Sum of the groups' priced work, see `bounds.py`."""
    time: Floats
    """Shape (classes, ideals): time of the groups that the class supports."""
    banned: Floats
    """Shape (classes, ideals): number of groups that the class does not support."""
    memory: Floats
    kept: Floats
    cut: Floats
    """Cost of the nets that an ideal meets and does not hold."""
    cut_nets: Bits
    """Those nets, as bit sets."""
    branches: tuple[Floats, ...]
    """Per stretch, shape (branches, ideals): number of groups of branches that must be apart."""

    @classmethod
    def of(cls, pipeline: Pipeline, bits: Bits, work: Floats) -> Ideals:
        """`work` is per group."""
        apart = [_indicator(branch, len(work)) for stretch in pipeline.branches for branch in stretch]
        sums = sums_over(bits, np.vstack([work, np.ones(len(work)), *apart, *_costs(pipeline)]))
        order = np.lexsort((sums[1], sums[0]))
        bits, sums = bits[order], np.take(sums, order, axis=1)
        cut, cut_nets = _cuts(pipeline, bits)
        first, branches = 2, list[Floats]()
        for stretch in pipeline.branches:
            branches.append(sums[first : first + len(stretch)])
            first += len(stretch)
        time, banned, memory, kept = _as_costs(pipeline, sums[first:])
        return cls(bits, sums[0], time, banned, memory, kept, cut, cut_nets, tuple(branches))

    def costing(self, pipeline: Pipeline) -> Ideals:
        """The same ideals, work and branches with the times, memory and nets' costs of another pipeline."""
        time, banned, memory, kept = _as_costs(pipeline, sums_over(self.bits, np.vstack(_costs(pipeline))))
        return replace(self, time=time, banned=banned, memory=memory, kept=kept, cut=_cuts(pipeline, self.bits)[0])

    def __len__(self) -> int:
        return len(self.bits)


def sums_over(bits: Bits, values: Floats) -> Floats:
    """Sums of values per group, shape (values, groups), over ideals, shape (values, ideals)."""
    found = np.empty((len(values), len(bits)))
    columns = np.ascontiguousarray(values.T)
    chunk = max(64, SMALL_PRODUCT // values.size)
    for first in range(0, len(bits), chunk):
        holds = members_of(bits[first : first + chunk], values.shape[1]).astype(np.float64)
        found[:, first : first + chunk] = (holds @ columns).T
    return found


def _costs(pipeline: Pipeline) -> list[Floats]:
    """Per group its times, whether classes do not support it, its memory and what it keeps, a row for each."""
    times, held = [each.time for each in pipeline.classes], (pipeline.memory, pipeline.kept)
    return [*(np.where(np.isfinite(time), time, 0.0) for time in times), *(~np.isfinite(times)), *held]


def _as_costs(pipeline: Pipeline, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Sums of `_costs` as `Ideals` has them: time and banned groups per class, memory, and what is kept."""
    kinds = len(pipeline.classes)
    return sums[:kinds], sums[kinds : 2 * kinds], sums[-2], sums[-1]


def _indicator(groups: Sequence[int], count: int) -> Floats:
    """1 at `groups`, else 0."""
    found = np.zeros(count)
    found[list(groups)] = 1.0
    return found


def _cuts(pipeline: Pipeline, bits: Bits) -> tuple[Floats, Bits]:
    cut = np.zeros(len(bits))
    nets = np.zeros((len(bits), _words(len(pipeline.nets))), dtype=np.uint64)
    for i, net in enumerate(pipeline.nets):
        mask = bit_set(net.groups, len(pipeline.members))
        meets, holds = np.zeros(len(bits), dtype=bool), np.ones(len(bits), dtype=bool)
        for word in np.flatnonzero(mask):
            shared = bits[:, word] & mask[word]
            meets |= shared != 0
            holds &= shared == mask[word]
        is_cut = meets & ~holds
        cut[is_cut] += net.cost
        nets[is_cut, i // 64] |= np.uint64(1) << np.uint64(i % 64)
    return cut, nets


def promising_orders(pipeline: Pipeline) -> tuple[tuple[int, ...], ...]:
    """By number, depth first, and always the group next that leaves the least to transfer."""
    count = len(pipeline.members)
    depth_first_order = depth_first(count, pipeline.arcs, lambda ready: ready[::-1])
    return tuple(range(count)), depth_first_order, _least_cut(pipeline)


def depth_first(
    count: int, arcs: Iterable[tuple[int, int]], arrange: Callable[[list[int]], list[int]]
) -> tuple[int, ...]:
    """Vertices 0 … `count` - 1 after their predecessors, and soon after the last of them; those on cycles are left out.

    `arrange` puts vertices that become ready at the same time in order, the next one last.
    """
    front = _Front(count, arcs)
    ready, order = arrange(front.first), list[int]()
    while ready:
        order.append(ready.pop())
        ready += arrange(front.done(order[-1]))
    return tuple(order)


class _Front:
    """Vertices whose predecessors are all done."""

    def __init__(self, count: int, arcs: Iterable[tuple[int, int]]) -> None:
        self._after = grouped(count, arcs)
        before = Counter(chain.from_iterable(self._after))
        self._waiting = [before[vertex] for vertex in range(count)]
        self.first = [vertex for vertex, waiting in enumerate(self._waiting) if waiting == 0]

    def done(self, vertex: int) -> list[int]:
        """The vertices that `vertex` was the last to wait for."""
        freed = []
        for after in self._after[vertex]:
            self._waiting[after] -= 1
            if self._waiting[after] == 0:
                freed.append(after)
        return freed


def _least_cut(pipeline: Pipeline) -> tuple[int, ...]:
    """Greedy: adding a group opens its nets that have no group yet and closes those that it completes."""
    front = _Front(len(pipeline.members), pipeline.arcs)
    nets_of = pipeline.nets_of
    missing = [len(net.groups) for net in pipeline.nets]

    def change(group: int) -> float:
        opened = sum(pipeline.nets[i].cost for i in nets_of[group] if missing[i] == len(pipeline.nets[i].groups))
        return opened - sum(pipeline.nets[i].cost for i in nets_of[group] if missing[i] == 1)

    ready, order, age = [(change(group), 0, group) for group in front.first], list[int](), 0
    heapq.heapify(ready)
    while ready:
        value, _, group = heapq.heappop(ready)
        now = change(group)
        # A value grows stale as nets open; it only falls, except where a net that it would complete has grown.
        if now != value:
            heapq.heappush(ready, (now, -age, group))
            continue
        order.append(group)
        age += 1
        for i in nets_of[group]:
            missing[i] -= 1
        for freed in front.done(group):
            heapq.heappush(ready, (change(freed), -age, freed))
    return tuple(order)
