"""Pairs of ideals: whether one holds the other, and what crosses the border of the stage between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessel_core.placement.ideals import Ideals, bit_set
from tessel_core.placement.stages import Floats, Pipeline

Rows = NDArray[np.int64]
"""Numbers of ideals."""


class Crossing:
    """Answers for blocks of (target, source) pairs of ideals, shape (targets, sources)."""

    def __init__(self, pipeline: Pipeline, ideals: Ideals) -> None:
        self._ideals = ideals
        self._nets = pipeline.nets
        self._masks = [bit_set(net.groups, len(pipeline.members)) for net in pipeline.nets]

    def leaves(self, sources: Rows, targets: Rows) -> NDArray[np.bool_]:
        """Where a source is not a subset of the target."""
        inner, outer = self._ideals.bits[sources], self._ideals.bits[targets]
        found = np.zeros((len(targets), len(sources)), dtype=bool)
        anywhere, everywhere = np.bitwise_or.reduce(inner, axis=0), np.bitwise_and.reduce(outer, axis=0)
        for word in np.flatnonzero(anywhere & ~everywhere):
            found |= (inner[:, word] & ~outer[:, word, None]) != 0
        return found

    def cost(self, sources: Rows, targets: Rows) -> Floats:
        """What a device pays for transfers that has target I less source I'; meaningless where I' is not in I.

        cut(I) + cut(I') - sum over nets that both cut of cost * (1 + [the net does not meet I less I'])

        A net that only one of them cuts is cut by the stage.  One that both cut is counted twice, and is cut by the
        stage if it meets it, which it does unless both ideals hold equally many of its groups.
        """
        ideals = self._ideals
        total: Floats = np.add.outer(ideals.cut[targets], ideals.cut[sources])
        both = self._cut_somewhere(sources) & self._cut_somewhere(targets)
        weights, of_sources, of_targets = [], [], []
        for word in np.flatnonzero(both):
            for bit in np.flatnonzero(np.unpackbits(both[word : word + 1].view(np.uint8), bitorder="little")):
                net = int(word) * 64 + int(bit)
                low, high = self._held(net, sources), self._held(net, targets)
                for level in np.intersect1d(low[low > 0], high[high > 0]):
                    weights.append(self._nets[net].cost)
                    of_sources.append(low == level)
                    of_targets.append(high == level)
                weights.append(self._nets[net].cost)
                of_sources.append(low > 0)
                of_targets.append(high > 0)
        if weights:
            left = np.array(of_targets, dtype=np.float64).T * np.array(weights)
            _subtract_product(total, left, np.array(of_sources, dtype=np.float64))
        return total

    def _cut_somewhere(self, rows: Rows) -> NDArray[np.uint64]:
        found: NDArray[np.uint64] = np.bitwise_or.reduce(self._ideals.cut_nets[rows], axis=0)
        return found

    def _held(self, net: int, rows: Rows) -> NDArray[np.int64]:
        """How many of the net's groups each ideal holds; 0 where it does not cut the net."""
        mask = self._masks[net]
        held = np.zeros(len(rows), dtype=np.int64)
        for word in np.flatnonzero(mask):
            held += np.bitwise_count(self._ideals.bits[rows, word] & mask[word])
        held[held == len(self._nets[net].groups)] = 0
        return held


_SMALL = 1 << 18
"""Multiplications in a product that OpenBLAS leaves to one thread."""


def _subtract_product(total: Floats, left: Floats, right: Floats) -> None:
    """total -= left @ right in small products: a large one wakes all cores, which then spin longer than it takes."""
    width = max(8, _SMALL // left.size)
    for first in range(0, right.shape[1], width):
        total[:, first : first + width] -= left @ right[:, first : first + width]
