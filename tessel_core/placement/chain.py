"""The exact dynamic program over chains of ideals, asked under growing limits.  [Tarnawski et al., NeurIPS 2020]

A search looks at little more than its answer needs: each limit on the load leaves few ideals within reach, and a limit
under which there is no chain is a bound.
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

_FIRST_STEP = 2e-3
"""Distance of the first limit from the bound, as a share of it; each further step is twice as long."""
SAME_SUMS = 1e-12
"""Loads that differ by less, relatively, are the same: they are sums of floats."""

Counts = tuple[int, ...]
"""Number of devices in use, per class; where a search counts stages as well, their number comes last."""


FoldOf = Callable[[int], Fold]
"""The fold for a stage with so many devices."""


class Stage(NamedTuple):
    """One way to end a chain: the last stage is on so many devices of a class, and others are in use before it."""

    kind: int
    replicas: int
    before: Counts


class ChainSearch:
    """Least largest load over chains of given ideals, a stage between each ideal and the next.

    best[n][I] = min over classes c in n, ideals I' in I of fold(best[n less a c][I'], load of I less I' on a c)

    where the fold is the larger one, or for the evenest chain the sum of squares.  A stage that ends after n devices
    has as many behind it as are left, and one more is its position from the end, by which it holds micro-batches.  A
    device may have nothing; it then comes before all others in some chain that is as good, so no stage is thought to
    be further from the end than it is.
    """

    def __init__(self, pipeline: Pipeline, ideals: Ideals, priced: PricedWork) -> None:
        self._pipeline, self._ideals, self._priced = pipeline, ideals, priced
        self._counts = tuple(len(each.devices) for each in pipeline.classes)

    def below(self, limit: float, control: Control) -> Split | None:
        """The best chain whose largest load is below `limit`; None where there is none, or when `control` stopped."""
        return self._best(lambda replicas: np.maximum, limit, limit, control)

    def evenest(self, limit: float, control: Control) -> Split | None:
        """As `below`, but the chain whose squares of devices' loads sum to the least; the split's load is that sum.

        Squares are of shares of `limit`, which stay within the range of floats.
        """

        def squares(replicas: int) -> Fold:
            def added(so_far: Floats, load: Floats) -> Floats:
                share = load / limit
                return np.where(load < limit, so_far + replicas * share * share, np.inf)

            return added

        return self._best(squares, limit, np.inf, control)

    def _best(self, fold: FoldOf, limit: float, most: float, control: Control) -> Split | None:
        """The chain of least fold, which is below `most`, of loads below `limit`.

        Invariant: an ideal is kept for some devices only if what is in it can fit under `limit` on those devices, and
        what is not on the devices that are left.
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
        """The stages between the ideals `rows` for each way to end a chain."""
        alike = Steps(self._pipeline, self._ideals, self._priced, rows, limit, fold(1))
        return lambda stage: alike

    def _last(self, used: Counts) -> Iterator[Stage]:
        """The ways to end a chain on the `used` devices."""
        for kind, count in enumerate(used):
            if count:
                yield Stage(kind, 1, fewer(used, kind, 1))

    def _states(self) -> Iterator[Counts]:
        return product(*(range(count + 1) for count in self._counts))

    @property
    def _end(self) -> Counts:
        """The state of a whole chain."""
        return self._counts

    def _begins(self, used: Counts) -> bool:
        """Whether a chain may begin in this state."""
        return not any(used)

    def _in_use(self, used: Counts) -> Counts:
        """The number of devices in use, per class."""
        return used

    def _position(self, used: Counts) -> int:
        """Of the last of the used devices, from the end."""
        return sum(self._counts) - sum(used) + 1

    def _promising(self, used: Counts, limit: float) -> NDArray[np.bool_]:
        """Ideals whose work, cut and memory leave them a chance on both sides of a cut after `used` devices."""
        in_use = self._in_use(used)
        left = tuple(all_of - some for all_of, some in zip(self._counts, in_use, strict=True))
        if not any(in_use) or not any(left):
            found = np.zeros(len(self._ideals), dtype=bool)
            found[-1 if any(in_use) else 0] = True
            return found
        ideals = self._ideals
        held = ideals.memory + self._pipeline.further_at(self._position(used)) * ideals.kept
        inside = self._fits(in_use, ideals.work, held, limit)
        outside = self._fits(left, ideals.work[-1] - ideals.work, ideals.memory[-1] - ideals.memory, limit)
        return inside & outside

    def _fits(self, counts: Counts, work: Floats, memory: Floats, limit: float) -> NDArray[np.bool_]:
        """Whether the devices suffice for the work and the memory, if both could be divided freely."""
        classes = zip(self._pipeline.classes, counts, self._priced.price, strict=True)
        used = [(each, count, price) for each, count, price in classes if count]
        room = sum(count * price for _, count, price in used) * limit
        held = sum(count * each.capacity for each, count, _ in used)
        # Where all devices on one side pay for transfers, they pay for the whole cut between them, at their prices.
        cheapest = min(price if each.pays else 0.0 for each, _, price in used)
        loaded = work + cheapest * self._ideals.cut
        slack = 1e-9 * (limit + float(self._ideals.work[-1]))
        return np.asarray((loaded <= room + slack) & (memory <= held))

    def _chain(self, best: dict[Counts, Floats], steps: Callable[[Stage], Steps], rows: Rows) -> Split:
        """Walks back from the whole pipeline; devices of a class are given out in the order of the flow."""
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
        """The last stage on the used devices, and the row that is held before it."""
        found = list[tuple[float, Stage, int]]()
        for stage in self._last(used):
            sources, load = steps(stage).sources_of(stage.kind, self._position(used), at)
            totals = steps(stage).fold(best[stage.before][sources], load)
            if len(totals):
                least = int(totals.argmin())
                found.append((float(totals[least]), stage, int(sources[least])))
        return min(found)[1:]


def fewer(used: Counts, kind: int, by: int) -> Counts:
    """The devices in use without so many of a class."""
    return tuple(number - by * (each == kind) for each, number in enumerate(used))


@dataclass(frozen=True)
class Chains:
    """The chains that a pipeline can be cut into, a stage a device, and what is known of their loads."""

    pipeline: Pipeline

    @cached_property
    def priced(self) -> PricedWork:
        """The work of each group, priced."""
        return priced_work(self.pipeline)

    @property
    def bound(self) -> float:
        """No chain has a lower load."""
        return self.priced.bound

    @property
    def highest(self) -> float:
        """No chain has a higher load."""
        return highest_load(self.pipeline)

    def search(self, bits: Bits) -> ChainSearch:
        """The search over chains of some ideals."""
        return ChainSearch(self.pipeline, Ideals.of(self.pipeline, bits, self.priced.work), self.priced)


def best_chain(pipeline: Pipeline, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """The chain of least largest load: from a few linear orders first, then over all ideals.

    `known` is a chain to be beaten.  Where there are more ideals than `most_ideals`, or `control` stops, the best so
    far is returned.
    """

    def search(asked: Pipeline, beaten: Split | None) -> Best:
        return best_of(Chains(asked), most_ideals, control, beaten)

    return rescaled_search(pipeline, THROUGHPUT, known, search)


def best_of(chains: Chains, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """As `best_chain`, for chains of any sort."""
    best = _best_along(chains, promising_orders(chains.pipeline), control, known)
    if control.stopped or best.complete:
        return best
    bits = all_ideals(chains.pipeline, most_ideals)
    return best if bits is None else _deepen(chains, bits, best, control)


def best_in_orders(
    pipeline: Pipeline, orders: Sequence[Sequence[int]], control: Control, known: Split | None = None
) -> Best:
    """The best of `known` and the chains whose ideals are prefixes of some orders; the bound is one on all chains."""
    return _best_along(Chains(pipeline), orders, control, known)


def _best_along(chains: Chains, orders: Sequence[Sequence[int]], control: Control, known: Split | None) -> Best:
    bound = chains.bound
    found = _deepen(chains, prefixes(orders), Best(known, bound, False), control.quiet()).split
    return Best(found, bound, found is not None and found.load <= bound * (1 + SAME_SUMS))


def _deepen(chains: Chains, bits: Bits, best: Best, control: Control) -> Best:
    """The best chain of the ideals `bits`, none below `best.bound` and none worse than `best.split`."""
    search = chains.search(bits)
    top = best.split.load if best.split else chains.highest * (1 + 1e-6) + 1e-300
    bound, step = best.bound, max(best.bound, top * 1e-3) * _FIRST_STEP
    while bound < top * (1 - SAME_SUMS):
        limit = min(bound + step, top) if bound + step > bound else top
        found = search.below(limit, control)
        if found is not None:
            return Best(found, found.load, True)
        if control.stopped:
            return Best(best.split, bound, False)
        bound, step = limit, 2 * step
        control.report("ideals", Fraction(best.split.load) if best.split else None, Fraction(bound))
    return Best(best.split, bound, True)
