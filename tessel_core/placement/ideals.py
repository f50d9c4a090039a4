"""Ideals of a pipeline: sets of groups that contain all predecessors of their members, as rows of bits.

A group is a set of operators that must share a device. A net is a tensor, with the groups of its producer and
consumers. A class has interchangeable devices. A chain is a sequence of growing ideals, with a pipeline stage between
neighbours. The prefixes of a few orders of the groups are a small family of ideals that often contains the best chain.
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
"""Bit sets, shaped (ideals, words). Group g is bit g % 64 of word g // 64."""

SMALL_PRODUCT = 1 << 18
"""Largest number of multiplications in one matrix product.

For larger products, OpenBLAS starts threads on all cores, and these threads then wait busily.
"""


def all_ideals(pipeline: Pipeline, most: int) -> Bits | None:
    """Return all ideals, or None if there are more than `most`.

    To get the ideals of groups 0 … v, take the ideals of groups 0 … v - 1. Then add a copy with v of each ideal that
    contains all predecessors of v.
    """
    count = len(pipeline.members)
    bits = np.zeros((1, _words(count)), dtype=np.uint64)
    for group, before in enumerate(pipeline.predecessors):
        needed = bit_set(before, count)
        holds = np.ones(len(bits), dtype=bool)
        for word in np.flatnonzero(needed):
            holds &= (bits[:, word] & needed[word]) == needed[word]
        grown = bits[holds] | bit_set((group,), count)
        if len(bits) + len(grown) > most:
            return None
        bits = np.concatenate([bits, grown])
    return bits


def count_ideals(problem: PlacementProblem, most: int) -> int | None:
    """Return the number of ideals of the problem's groups, or None if it exceeds `most`.

    Groups without cost are merged into neighbours, as in the search for placements.

    Raises InputError for an operator that no device supports.
    """
    bits = all_ideals(pipeline_of(problem), most)
    return None if bits is None else len(bits)


def prefixes(orders: Sequence[Sequence[int]]) -> Bits:
    """Return the sets of the first groups of each order, of every length.

    Each order must follow the flow, so all are ideals.
    """
    count = len(orders[0])
    steps = ([bit_set((), count), *(bit_set((group,), count) for group in order)] for order in orders)
    return np.unique(np.concatenate([np.bitwise_or.accumulate(each) for each in steps]), axis=0)


def bit_set(groups: Sequence[int], count: int) -> Bits:
    """Return one row of words with the bits of `groups` set."""
    words = np.zeros(_words(count), dtype=np.uint64)
    for group in groups:
        words[group // 64] |= np.uint64(1) << np.uint64(group % 64)
    return words


def members_of(bits: Bits, count: int) -> NDArray[np.uint8]:
    """Return the members of bit sets, as 0 or 1 for each group, shaped (ideals, count)."""
    return np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=-1, bitorder="little", count=count)


def _words(count: int) -> int:
    return max(1, -(-count // 64))


@dataclass(frozen=True)
class Ideals:
    """Ideals in the order of their work, from the empty set to all groups, with sums over their groups.

    `memory` and `kept` are the bytes of each ideal, as in `Pipeline`. Arrays are shaped (ideals,) unless a comment says
    more.
    """

    bits: Bits
    work: Floats
    """Sum of the work of each ideal's groups, usually as in `PricedWork`."""
    time: Floats
    """Time of each ideal on each class, shaped (classes, ideals).

    It does not count groups that the class does not support.
    """
    banned: Floats
    """Number of groups of each ideal that each class does not support, shaped (classes, ideals)."""
    memory: Floats
    kept: Floats
    cut: Floats
    """Cost of the nets (tensors) with groups inside and outside each ideal."""
    cut_nets: Bits
    """Nets with groups inside and outside each ideal, as bit sets, shaped (ideals, words)."""
    branches: tuple[Floats, ...]
    """Number of groups of each branch in each ideal, shaped (branches, ideals), for each stretch with branches."""

    @classmethod
    def of(cls, pipeline: Pipeline, bits: Bits, work: Floats) -> Ideals:
        """Compute the sums of the ideals `bits`.

        `work` has the work of each group, which decides the order of the ideals.
        """
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
        """Return the same ideals with the times, memory and nets of another pipeline, which has the same groups."""
        time, banned, memory, kept = _as_costs(pipeline, sums_over(self.bits, np.vstack(_costs(pipeline))))
        return replace(self, time=time, banned=banned, memory=memory, kept=kept, cut=_cuts(pipeline, self.bits)[0])

    def __len__(self) -> int:
        return len(self.bits)


def sums_over(bits: Bits, values: Floats) -> Floats:
    """Sum values of groups, shaped (values, groups), over ideals. The result is shaped (values, ideals)."""
    sums = np.empty((len(values), len(bits)))
    columns = np.ascontiguousarray(values.T)
    chunk = max(64, SMALL_PRODUCT // values.size)
    for first in range(0, len(bits), chunk):
        holds = members_of(bits[first : first + chunk], values.shape[1]).astype(np.float64)
        sums[:, first : first + chunk] = (holds @ columns).T
    return sums


def _costs(pipeline: Pipeline) -> list[Floats]:
    """Return rows with a value for each group:

    time per class, 1 if a class does not support it, memory, and kept bytes.
    """
    times, held = [each.time for each in pipeline.classes], (pipeline.memory, pipeline.kept)
    return [*(np.where(np.isfinite(time), time, 0.0) for time in times), *(~np.isfinite(times)), *held]


def _as_costs(pipeline: Pipeline, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Split the sums of the rows of `_costs`: times per class, unsupported groups per class, memory, and kept bytes."""
    kinds = len(pipeline.classes)
    return sums[:kinds], sums[kinds : 2 * kinds], sums[-2], sums[-1]


def _indicator(groups: Sequence[int], count: int) -> Floats:
    """Return an array with 1 at `groups`, else 0."""
    indicator = np.zeros(count)
    indicator[list(groups)] = 1.0
    return indicator


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
    """Return three orders of the groups along the flow: by number, depth first, and by `_least_cut`."""
    count = len(pipeline.members)
    depth_first_order = depth_first(count, pipeline.arcs, lambda ready: ready[::-1])
    return tuple(range(count)), depth_first_order, _least_cut(pipeline)


def depth_first(
    count: int, arcs: Iterable[tuple[int, int]], arrange: Callable[[list[int]], list[int]]
) -> tuple[int, ...]:
    """Return the vertices 0 … `count` - 1 in an order in which each vertex comes soon after its last predecessor.

    `arcs` has pairs (predecessor, vertex). Vertices on cycles are left out. `arrange` sorts the vertices that become
    ready at the same time, and the last of them comes next.
    """
    front = _Front(count, arcs)
    ready, order = arrange(front.first), list[int]()
    while ready:
        order.append(ready.pop())
        ready += arrange(front.done(order[-1]))
    return tuple(order)


class _Front:
    """Counts the predecessors of each vertex that are not done. `first` has the vertices without predecessors."""

    def __init__(self, count: int, arcs: Iterable[tuple[int, int]]) -> None:
        self._after = grouped(count, arcs)
        before = Counter(chain.from_iterable(self._after))
        self._waiting = [before[vertex] for vertex in range(count)]
        self.first = [vertex for vertex, waiting in enumerate(self._waiting) if waiting == 0]

    def done(self, vertex: int) -> list[int]:
        """Mark `vertex` as done, and return the vertices that become ready."""
        freed = []
        for after in self._after[vertex]:
            self._waiting[after] -= 1
            if self._waiting[after] == 0:
                freed.append(after)
        return freed


def _least_cut(pipeline: Pipeline) -> tuple[int, ...]:
    """Return the order of the groups in which each next group increases the cost of the cut least.

    The cut has the nets (tensors) with some groups in the order so far, but not all. Adding the first group of a net
    adds the net to the cut, and adding its last group removes the net.
    """
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
        # The value may be out of date, because other groups have been added since. If so, insert the new value.
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
