"""The exact dynamic program over chains of ideals, asked under growing limits.  [Tarnawski et al., NeurIPS 2020]

A search looks at little more than its answer needs: each limit on the load leaves few ideals within reach, and a limit
under which there is no chain is a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.model import THROUGHPUT
from tessel_core.placement.bounds import PricedWork, highest_load, priced_work
from tessel_core.placement.ideals import Ideals, all_ideals, members_of, prefixes, promising_orders
from tessel_core.placement.pipeline import Best, Floats, Pipeline, Split
from tessel_core.placement.rescaling import rescaled_search
from tessel_core.placement.steps import Fold, Rows, Steps

_FIRST_STEP = 2e-3
"""Distance of the first limit from the bound, as a share of it; each further step is twice as long."""
SAME_SUMS = 1e-12
"""Loads that differ by less, relatively, are the same: they are sums of floats."""

Counts = tuple[int, ...]
"""Number of devices in use, per class."""


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
        return self._best(np.maximum, limit, limit, control)

    def evenest(self, limit: float, control: Control) -> Split | None:
        """As `below`, but the chain whose squares of loads sum to the least; the split's load is that sum.

        Squares are of shares of `limit`, which stay within the range of floats.
        """

        def squares(so_far: Floats, load: Floats) -> Floats:
            share = load / limit
            return np.where(load < limit, so_far + share * share, np.inf)

        return self._best(squares, limit, np.inf, control)

    def _best(self, fold: Fold, limit: float, most: float, control: Control) -> Split | None:
        """The chain of least fold, which is below `most`, of loads below `limit`.

        Invariant: an ideal is kept for some devices only if what is in it can fit under `limit` on those devices, and
        what is not on the devices that are left.
        """
        promising = {used: self._promising(used, limit) for used in self._states()}
        rows = np.flatnonzero(np.logical_or.reduce(list(promising.values())))
        steps = Steps(self._pipeline, self._ideals, self._priced, rows, limit, fold)
        best: dict[Counts, Floats] = {}
        for used in self._states():
            wanted = promising[used][rows]
            load = np.full(len(rows), np.inf)
            if not any(used):
                load[0] = 0.0
            for kind, fewer in _one_fewer(used):
                load = np.minimum(load, steps.after(kind, self._position(used), best[fewer], wanted, control))
            best[used] = np.where(wanted & (load < most), load, np.inf)
            if control.stopped:
                return None
        return self._chain(best, steps, rows) if np.isfinite(best[self._counts][-1]) else None

    def _states(self) -> Iterator[Counts]:
        return product(*(range(count + 1) for count in self._counts))

    def _position(self, used: Counts) -> int:
        """Of the last of the used devices, from the end."""
        return sum(self._counts) - sum(used) + 1

    def _promising(self, used: Counts, limit: float) -> NDArray[np.bool_]:
        """Ideals whose work, cut and memory leave them a chance on both sides of a cut after `used` devices."""
        left = tuple(all_of - some for all_of, some in zip(self._counts, used, strict=True))
        if not any(used) or not any(left):
            found = np.zeros(len(self._ideals), dtype=bool)
            found[-1 if any(used) else 0] = True
            return found
        ideals = self._ideals
        held = ideals.memory + self._pipeline.further_at(self._position(used)) * ideals.kept
        inside = self._fits(used, ideals.work, held, limit)
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

    def _chain(self, best: dict[Counts, Floats], steps: Steps, rows: Rows) -> Split:
        """Walks back from the whole pipeline; devices of a class are given out in the order of the flow."""
        used, at = self._counts, len(rows) - 1
        total = float(best[used][at])
        device_of = np.zeros(len(self._pipeline.members), dtype=np.int64)
        while any(used):
            kind, fewer, before = _step_back(best, steps, used, at, self._position(used))
            stage = self._ideals.bits[rows[at]] & ~self._ideals.bits[rows[before]]
            device = self._pipeline.classes[kind].devices[fewer[kind]]
            device_of[members_of(stage, len(device_of)).astype(bool)] = device
            used, at = fewer, before
        return Split(total, tuple(device_of.tolist()))


def _step_back(
    best: dict[Counts, Floats], steps: Steps, used: Counts, at: int, position: int
) -> tuple[int, Counts, int]:
    """The class of the last of the used devices, the devices before it, and the row that they hold."""
    found = list[tuple[float, int, Counts, int]]()
    for kind, fewer in _one_fewer(used):
        sources, load = steps.sources_of(kind, position, at)
        totals = steps.fold(best[fewer][sources], load)
        if len(totals):
            least = int(totals.argmin())
            found.append((float(totals[least]), kind, fewer, int(sources[least])))
    return min(found)[1:]


def _one_fewer(used: Counts) -> Iterator[tuple[int, Counts]]:
    """The classes in use, and what is in use without one device of each."""
    for kind, count in enumerate(used):
        if count:
            yield kind, tuple(number - (each == kind) for each, number in enumerate(used))


def best_chain(pipeline: Pipeline, most_ideals: int, control: Control, known: Split | None = None) -> Best:
    """The chain of least largest load: from a few linear orders first, then over all ideals.

    `known` is a chain to be beaten.  Where there are more ideals than `most_ideals`, or `control` stops, the best so
    far is returned.
    """

    def search(asked: Pipeline, beaten: Split | None) -> Best:
        best = best_in_orders(asked, promising_orders(asked), control, beaten)
        if control.stopped or best.complete:
            return best
        bits = all_ideals(asked, most_ideals)
        if bits is None:
            return best
        priced = priced_work(asked)
        return _deepen(asked, Ideals.of(asked, bits, priced.work), priced, best, control)

    return rescaled_search(pipeline, THROUGHPUT, known, search)


def best_in_orders(
    pipeline: Pipeline, orders: Sequence[Sequence[int]], control: Control, known: Split | None = None
) -> Best:
    """The best of `known` and the chains whose ideals are prefixes of some orders; the bound is one on all chains."""
    priced = priced_work(pipeline)
    ideals = Ideals.of(pipeline, prefixes(orders), priced.work)
    chain = _deepen(pipeline, ideals, priced, Best(known, priced.bound, False), control.quiet()).split
    meets = chain is not None and chain.load <= priced.bound * (1 + SAME_SUMS)
    return Best(chain, priced.bound, meets)


def _deepen(pipeline: Pipeline, ideals: Ideals, priced: PricedWork, best: Best, control: Control) -> Best:
    """The best chain of `ideals`, none below `best.bound` and none worse than `best.split`."""
    search = ChainSearch(pipeline, ideals, priced)
    top = best.split.load if best.split else highest_load(pipeline) * (1 + 1e-6) + 1e-300
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
