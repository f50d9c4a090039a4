"""The exact dynamic program over chains of ideals, with growing limits on the load [Tarnawski et al., NeurIPS 2020].

A group is a set of operators that must share a device. A split gives each group a device. A class has interchangeable
devices. An ideal is a set of groups that contains all predecessors of its members. A chain is a sequence of growing
ideals, from the empty set to all groups. The groups that one ideal has more than the ideal before are a stage, which
runs on one device (or on several replicas).

If all loads must be below a limit, few ideals can be part of a chain, so the search is fast. If no chain keeps the
limit, the limit is a lower bound, and the search goes on with a larger limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT
from tessel_core.placement.bounds import PricedWork, highest_load, priced_work
from tessel_core.placement.ideals import Bits, Ideals, all_ideals, members_of, prefixes, promising_orders
from tessel_core.placement.pipeline import Best, Floats, Pipeline, Split
from tessel_core.placement.rescaling import rescaled_search
from tessel_core.placement.steps import Fold, Rows, Steps

_FIRST_STEP_SHARE = 2e-3
"""Difference between the first limit and the lower bound, as a share of the bound.

Each further step is twice as long.
"""
SAME_SUMS = 1e-12
"""Loads that differ by less than this fraction count as equal, because sums of floats are rounded."""

Counts = tuple[int, ...]
"""Number of devices of each class in use. If the search also counts stages, the last entry is the number of stages."""


FoldOf = Callable[[int], Fold]
"""Function from the number of replicas of a stage to the fold of its load: see `ChainSearch`."""


class Stage(NamedTuple):
    """The last stage of a chain, on `replicas` devices of the class with index `kind`.

    `before` has the number of devices of each class that earlier stages use.
    """

    kind: int
    replicas: int
    before: Counts


class ChainSearch:
    """A search for the chain of least largest load.

        best[n][I] = min over classes c in n, ideals I' within I of fold(best[n - c][I'], load of I less I' on a c)

    Here n has the number of devices of each class in use, and n - c has one device of class c less. best[n][I] is the
    least value of a chain that ends with the ideal I on these devices. The fold combines the value of the chain so far
    with the load of one more stage. It is the maximum, or a sum of squares to find the chain with the most even loads.

    The position of a stage counts from the end, and decides how many micro-batches the stage holds. The search sets it
    to 1 plus the number of devices that are left for later stages. Devices may have no groups, but some equally good
    chain has such devices before all others. So the position is exact for that chain.
    """

    def __init__(self, pipeline: Pipeline, ideals: Ideals, priced: PricedWork) -> None:
        self._pipeline, self._ideals, self._priced = pipeline, ideals, priced
        self._counts = tuple(len(each.devices) for each in pipeline.classes)

    def below(self, limit: float, control: Control) -> Split | None:
        """Return the best chain with a largest load below `limit`.

        Return None if there is none or if `control` stopped.
        """
        return self._best(lambda replicas: np.maximum, limit, limit, control)

    def evenest(self, limit: float, control: Control) -> Split | None:
        """Return the chain with loads below `limit` and the least sum of squares. The split's load is that sum.

        Loads are divided by `limit` first, so that squares stay within the range of floats.
        """

        def squares(replicas: int) -> Fold:
            def added(so_far: Floats, load: Floats) -> Floats:
                share = load / limit
                return np.where(load < limit, so_far + replicas * share * share, np.inf)

            return added

        return self._best(squares, limit, np.inf, control)

    def _best(self, fold: FoldOf, limit: float, most: float, control: Control) -> Split | None:
        """Return the chain with the least value of the fold.

        That value must be below `most`, and all loads below `limit`.

        Invariant: an ideal is kept for some devices only if its groups can fit under `limit` on those devices, and all
        other groups on the remaining devices. Returns None if there is no such chain or if `control` stopped.
        """
        promising = {used: self._promising(used, limit) for used in self._states()}
        rows = np.flatnonzero(np.logical_or.reduce(list(promising.values())))
        steps = self._steps(rows, limit, fold)
        best: dict[Counts, Floats] = {}
        for used in self._states():
            wanted = promising[used][rows]
            load = np.full(len(rows), np.inf)
            if self._begins(used):
                load[0] = 0.0
            for stage in self._last(used):
                after = steps(stage).after(stage.kind, self._position(used), best[stage.before], wanted, control)
                load = np.minimum(load, after)
            best[used] = np.where(wanted & (load < most), load, np.inf)
            if control.stopped:
                return None
        return self._chain(best, steps, rows) if np.isfinite(best[self._end][-1]) else None

    def _steps(self, rows: Rows, limit: float, fold: FoldOf) -> Callable[[Stage], Steps]:
        """Return a function that maps the last stage of a chain to the `Steps` between the ideals `rows`."""
        alike = Steps(self._pipeline, self._ideals, self._priced, rows, limit, fold(1))
        return lambda stage: alike

    def _last(self, used: Counts) -> Iterator[Stage]:
        """Yield the possible last stages of a chain that uses the devices `used`."""
        for kind, count in enumerate(used):
            if count:
                yield Stage(kind, 1, fewer(used, kind, 1))

    def _states(self) -> Iterator[Counts]:
        return product(*(range(count + 1) for count in self._counts))

    @property
    def _end(self) -> Counts:
        """Key of a complete chain in the table `best`, which has the numbers of all devices."""
        return self._counts

    def _begins(self, used: Counts) -> bool:
        """Return whether an empty chain may have the key `used` in the table `best`."""
        return not any(used)

    def _in_use(self, used: Counts) -> Counts:
        """Return the number of devices of each class in use, without the number of stages."""
        return used

    def _position(self, used: Counts) -> int:
        """Return the position of the last used device, counted from the end."""
        return sum(self._counts) - sum(used) + 1

    def _promising(self, used: Counts, limit: float) -> NDArray[np.bool_]:
        """Return, for each ideal, whether its groups may fit on `used` devices, and other groups on other devices."""
        in_use = self._in_use(used)
        left = tuple(all_of - some for all_of, some in zip(self._counts, in_use, strict=True))
        if not any(in_use) or not any(left):
            only = np.zeros(len(self._ideals), dtype=bool)
            only[-1 if any(in_use) else 0] = True
            return only
        ideals = self._ideals
        held = ideals.memory + self._pipeline.further_at(self._position(used)) * ideals.kept
        inside = self._fits(in_use, ideals.work, held, limit)
        outside = self._fits(left, ideals.work[-1] - ideals.work, ideals.memory[-1] - ideals.memory, limit)
        return inside & outside

    def _fits(self, counts: Counts, work: Floats, memory: Floats, limit: float) -> NDArray[np.bool_]:
        """Return, for each ideal, whether some devices are enough if its work and memory could be divided freely.

        `counts` has the number of these devices of each class. `work` and `memory` have the sums for each ideal.
        """
        classes = zip(self._pipeline.classes, counts, self._priced.price, strict=True)
        used = [(each, count, price) for each, count, price in classes if count]
        room = sum(count * price for _, count, price in used) * limit
        held = sum(count * each.capacity for each, count, _ in used)
        # If all these devices pay for transfers, each net that the ideal cuts loads at least one of these devices.
        cheapest = min(price if each.pays else 0.0 for each, _, price in used)
        loaded = work + cheapest * self._ideals.cut
        slack = 1e-9 * (limit + float(self._ideals.work[-1]))
        return np.asarray((loaded <= room + slack) & (memory <= held))

    def _chain(self, best: dict[Counts, Floats], steps: Callable[[Stage], Steps], rows: Rows) -> Split:
        """Build the split of the best chain, by walking back from its last stage.

        Devices of a class are used along the flow.
        """
        used, at = self._end, len(rows) - 1
        total = float(best[used][at])
        device_of = np.zeros(len(self._pipeline.members), dtype=np.int64)
        replicas = list[tuple[int, ...]]()
        while at:
            stage, before = self._step_back(best, steps, used, at)
            members = self._ideals.bits[rows[at]] & ~self._ideals.bits[rows[before]]
            first = stage.before[stage.kind]
            devices = self._pipeline.classes[stage.kind].devices[first : first + stage.replicas]
            device_of[members_of(members, len(device_of)).astype(bool)] = devices[0]
            if stage.replicas > 1:
                replicas.append(devices)
            used, at = stage.before, before
        return Split(total, tuple(device_of.tolist()), tuple(replicas))

    def _step_back(
        self, best: dict[Counts, Floats], steps: Callable[[Stage], Steps], used: Counts, at: int
    ) -> tuple[Stage, int]:
        """Return the last stage of the best chain to the ideal in row `at`, and the row of the source of that stage."""
        ends = list[tuple[float, Stage, int]]()
        for stage in self._last(used):
            sources, load = steps(stage).sources_of(stage.kind, self._position(used), at)
            totals = steps(stage).fold(best[stage.before][sources], load)
            if len(totals):
                least = int(totals.argmin())
                ends.append((float(totals[least]), stage, int(sources[least])))
        return min(ends)[1:]


def fewer(used: Counts, kind: int, by: int) -> Counts:
    """Return the numbers of devices in use, with `by` devices fewer of class `kind`."""
    return tuple(number - by * (each == kind) for each, number in enumerate(used))


@dataclass(frozen=True)
class Chains:
    """The chains of a pipeline with one stage per device, and bounds on their loads."""

    pipeline: Pipeline

    @cached_property
    def priced(self) -> PricedWork:
        """Work of each group and price of each device class: see `PricedWork`."""
        return priced_work(self.pipeline)

    @property
    def bound(self) -> float:
        """Lower bound on the load of any chain."""
        return self.priced.bound

    @property
    def highest(self) -> float:
        """Upper bound on the load of any chain."""
        return highest_load(self.pipeline)

    def search(self, bits: Bits) -> ChainSearch:
        """Return the search over chains of the given ideals."""
        return ChainSearch(self.pipeline, Ideals.of(self.pipeline, bits, self.priced.work), self.priced)


def best_chain(pipeline: Pipeline, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """Return the chain of least largest load. Search chains along a few orders of the groups first, then all chains.

    `known` is a chain to improve on. If there are more ideals than `most_ideals`, or if `control` stops, return the
    best chain found so far, which is not proved optimal.
    """

    def search(scaled: Pipeline, start: Split | None) -> Best:
        return best_of(Chains(scaled), most_ideals, control, start)

    return rescaled_search(pipeline, THROUGHPUT, known, search)


def best_of(chains: Chains, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """Return what `best_chain` returns, for any kind of chains."""
    best = _best_along(chains, promising_orders(chains.pipeline), control, known)
    if control.stopped or best.complete:
        return best
    bits = all_ideals(chains.pipeline, most_ideals)
    return best if bits is None else _deepen(chains, bits, best, control)


def best_in_orders(
    pipeline: Pipeline, orders: Sequence[Sequence[int]], control: Control, known: Split | None = None
) -> Best:
    """Return the best of `known` and the chains along the given orders of the groups.

    The bound holds for all chains.
    """
    return _best_along(Chains(pipeline), orders, control, known)


def _best_along(chains: Chains, orders: Sequence[Sequence[int]], control: Control, known: Split | None) -> Best:
    bound = chains.bound
    split = _deepen(chains, prefixes(orders), Best(known, bound, False), control.quiet()).split
    return Best(split, bound, split is not None and split.load <= bound * (1 + SAME_SUMS))


def _deepen(chains: Chains, bits: Bits, best: Best, control: Control) -> Best:
    """Return the best chain of the ideals `bits`. Limits grow from `best.bound` to the load of `best.split`."""
    search = chains.search(bits)
    top = best.split.load if best.split else chains.highest * (1 + 1e-6) + 1e-300
    bound, step = best.bound, max(best.bound, top * 1e-3) * _FIRST_STEP_SHARE
    while bound < top * (1 - SAME_SUMS):
        limit = min(bound + step, top) if bound + step > bound else top
        split = search.below(limit, control)
        if split is not None:
            return Best(split, split.load, True)
        if control.stopped:
            return Best(best.split, bound, False)
        bound, step = limit, 2 * step
        control.report("ideals", Fraction(best.split.load) if best.split else None, Fraction(bound))
    return Best(best.split, bound, True)
