"""The dynamic program over chains of ideals.  [Tarnawski et al., NeurIPS 2020]"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.placement.best import Split
from tessel_core.placement.bounds import PricedWork
from tessel_core.placement.crossing import Rows
from tessel_core.placement.ideals import Ideals, members_of
from tessel_core.placement.stages import Floats, Pipeline
from tessel_core.placement.steps import Fold, Steps

Counts = tuple[int, ...]
"""How many devices of each class have been used."""


class ChainSearch:
    """Least largest load over chains of given ideals, a stage between each ideal and the next.

    best[n][I] = min over classes c in n, ideals I' in I of fold(best[n less a c][I'], load of I less I' on a c)

    where the fold is the larger one, or for the evenest chain the sum of squares.
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
                load = np.minimum(load, steps.after(kind, best[fewer], wanted, control))
            best[used] = np.where(wanted & (load < most), load, np.inf)
            if control.stopped:
                return None
        return self._chain(best, steps, rows) if np.isfinite(best[self._counts][-1]) else None

    def _states(self) -> Iterator[Counts]:
        return product(*(range(count + 1) for count in self._counts))

    def _promising(self, used: Counts, limit: float) -> NDArray[np.bool_]:
        """Ideals whose work, cut and memory leave them a chance on both sides of a cut after `used` devices."""
        left = tuple(all_of - some for all_of, some in zip(self._counts, used, strict=True))
        if not any(used) or not any(left):
            found = np.zeros(len(self._ideals), dtype=bool)
            found[-1 if any(used) else 0] = True
            return found
        ideals = self._ideals
        inside = self._fits(used, ideals.work, ideals.memory, limit)
        outside = self._fits(left, ideals.work[-1] - ideals.work, ideals.memory[-1] - ideals.memory, limit)
        return inside & outside

    def _fits(self, counts: Counts, work: Floats, memory: Floats, limit: float) -> NDArray[np.bool_]:
        """Whether devices could do the work and hold the memory, if both could be spread at will."""
        used = [(each, count) for each, count in zip(self._pipeline.classes, counts, strict=True) if count]
        room = sum(count * price for count, price in zip(counts, self._priced.price, strict=True)) * limit
        held = sum(count * each.capacity for each, count in used)
        # Where all devices on one side pay for transfers, they pay for the whole cut between them, at their prices.
        prices = zip(self._pipeline.classes, counts, self._priced.price, strict=True)
        cheapest = min(price if each.pays else 0.0 for each, count, price in prices if count)
        loaded = work + cheapest * self._ideals.cut
        slack = 1e-9 * (limit + float(self._ideals.work[-1]))
        return np.asarray((loaded <= room + slack) & (memory <= held))

    def _chain(self, best: dict[Counts, Floats], steps: Steps, rows: Rows) -> Split:
        """Walks back from the whole pipeline; devices of a class are given out in the order of the flow."""
        used, at = self._counts, len(rows) - 1
        total = float(best[used][at])
        device_of = np.zeros(len(self._pipeline.members), dtype=np.int64)
        while any(used):
            kind, fewer, before = _step_back(best, steps, used, at)
            stage = self._ideals.bits[rows[at]] & ~self._ideals.bits[rows[before]]
            device = self._pipeline.classes[kind].devices[fewer[kind]]
            device_of[members_of(stage, len(device_of)).astype(bool)] = device
            used, at = fewer, before
        return Split(total, tuple(device_of.tolist()))


def _step_back(best: dict[Counts, Floats], steps: Steps, used: Counts, at: int) -> tuple[int, Counts, int]:
    """The class of the last of the used devices, the devices before it, and the row that they hold."""
    found = list[tuple[float, int, Counts, int]]()
    for kind, fewer in _one_fewer(used):
        sources, load = steps.sources_of(kind, at)
        totals = steps.fold(best[fewer][sources], load)
        if len(totals):
            least = int(totals.argmin())
            found.append((float(totals[least]), kind, fewer, int(sources[least])))
    _, kind, fewer, before = min(found)
    return kind, fewer, before


def _one_fewer(used: Counts) -> Iterator[tuple[int, Counts]]:
    """The classes in use, and what is in use without one device of each."""
    for kind, count in enumerate(used):
        if count:
            yield kind, tuple(number - (each == kind) for each, number in enumerate(used))
