"""Stages between pairs of ideals: their loads, and all stages with a load below a limit.

A group is a set of operators that must share a device. An ideal is a set of groups that contains all predecessors of
its members. A chain is a sequence of growing ideals. The stage from a source ideal I' to a target ideal I has the
groups of I that are not in I'. The position of a stage counts from the end of the chain, where the last stage has
position 1. A net is a tensor, with the groups of its producer and consumers. A class has interchangeable devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.placement.bounds import PricedWork
from tessel_core.placement.ideals import SMALL_PRODUCT, Ideals, bit_set
from tessel_core.placement.pipeline import Floats, Pipeline

Rows = NDArray[np.int64]
"""Row numbers of ideals in the arrays of `Ideals`."""
Fold = Callable[[Floats, Floats], Floats]
"""Function from the value of a chain and the load of one more stage to the value of the longer chain."""
_ROWS_PER_BLOCK = 64
"""Number of target ideals per block, so that the block of pairs (target, source) fits in the processor's cache."""
MAX_KEPT_PAIRS = 12_000_000
"""Largest number of stages that are kept for reuse, of 12 bytes each. Other stages are computed again."""


class StageLoads:
    """Computes the times, memory and transfers of the stages from source ideals to target ideals."""

    def __init__(self, pipeline: Pipeline, ideals: Ideals) -> None:
        self._pipeline, self._ideals = pipeline, ideals
        self._classes, self._nets = pipeline.classes, pipeline.nets
        self._masks = [bit_set(net.groups, len(pipeline.members)) for net in pipeline.nets]

    def work(self, kind: int, sources: Rows, targets: Rows, position: int = 1) -> Floats:
        """Return the times on a device of class `kind` at `position` from the end, shaped (targets, sources).

        A time is infinite if the class does not support a group of the stage, if the stage does not fit in memory, or
        if the stage has groups of two branches that must be kept apart.
        """
        each, ideals = self._classes[kind], self._ideals
        memory, done = self.held(position), self.done(kind, position)
        time: Floats = np.subtract.outer(done[targets], done[sources])
        if ideals.banned[kind][-1]:
            time[np.subtract.outer(ideals.banned[kind][targets], ideals.banned[kind][sources]) > 0] = np.inf
        if memory[-1] > each.capacity:
            time[np.subtract.outer(memory[targets], memory[sources]) > each.capacity] = np.inf
        for stretch in ideals.branches:
            met = sum(np.subtract.outer(branch[targets], branch[sources]) > 0 for branch in stretch)
            time[met > 1] = np.inf
        return time

    def held(self, position: int) -> Floats:
        """Return the bytes of each ideal's groups, if they are in a stage at `position` from the end."""
        further = self._pipeline.further_at(position)
        return self._ideals.memory + further * self._ideals.kept if further else self._ideals.memory

    def done(self, kind: int, position: int) -> Floats:
        """Return the time of each ideal's groups on class `kind`.

        If loads are bytes: their bytes at `position` from the end.
        """
        further = self._pipeline.further_at(position) if self._classes[kind].loads_are_bytes else 0
        time: Floats = self._ideals.time[kind]
        return time + further * self._ideals.kept if further else time

    def leaves(self, sources: Rows, targets: Rows) -> NDArray[np.bool_]:
        """Return whether each source is not a subset of each target, shaped (targets, sources)."""
        inner, outer = self._ideals.bits[sources], self._ideals.bits[targets]
        leaves = np.zeros((len(targets), len(sources)), dtype=bool)
        anywhere, everywhere = np.bitwise_or.reduce(inner, axis=0), np.bitwise_and.reduce(outer, axis=0)
        for word in np.flatnonzero(anywhere & ~everywhere):
            leaves |= (inner[:, word] & ~outer[:, word, None]) != 0
        return leaves

    def transfers(self, sources: Rows, targets: Rows) -> Floats:
        """Return the cost of the transfers of each stage, shaped (targets, sources).

            cut(I) + cut(I') - sum over nets that both cut of cost * (1 + [the net has no group in I less I'])

        I is the target and I' the source. An ideal cuts a net if the net has groups inside and outside the ideal, and
        cut(I) is the cost of these nets. The stage pays for each net that only one of the ideals cuts. The sum counts a
        net twice if both ideals cut it. The stage pays for it once if the stage has a group of the net, and not at all
        if both ideals have the same number of the net's groups. The cost is meaningless if I' is not a subset of I.
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
        """Return the nets that at least one of the ideals `rows` cuts, as a bit set."""
        nets: NDArray[np.uint64] = np.bitwise_or.reduce(self._ideals.cut_nets[rows], axis=0)
        return nets

    def _held(self, net: int, rows: Rows) -> NDArray[np.int64]:
        """Return the number of the net's groups in each ideal, or 0 if the ideal does not cut the net."""
        mask = self._masks[net]
        held = np.zeros(len(rows), dtype=np.int64)
        for word in np.flatnonzero(mask):
            held += np.bitwise_count(self._ideals.bits[rows, word] & mask[word])
        held[held == len(self._nets[net].groups)] = 0
        return held


def _subtract_product(total: Floats, left: Floats, right: Floats) -> None:
    """Compute total -= left @ right in small products (see `SMALL_PRODUCT`)."""
    width = max(8, SMALL_PRODUCT // left.size)
    for first in range(0, right.shape[1], width):
        total[:, first : first + width] -= left @ right[:, first : first + width]


@dataclass(frozen=True)
class _Pairs:
    """Stages that end at a block of targets, sorted by target.

    Ideals are given as positions in the `rows` of `Steps`.
    """

    target: NDArray[np.int64]
    """Targets with at least one stage."""
    first: NDArray[np.int64]
    """For each target, the index of its first stage in `source` and `load`."""
    source: NDArray[np.int32]
    load: Floats


class Steps:
    """The stages between the ideals `rows`, which are sorted by work.

    Methods identify an ideal by its position in `rows`. At first, each call computes the stages that it needs, which is
    cheap if few stages have a load below the limit. Once calls have computed more stages than there are in
    total, every stage is computed once and kept.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        ideals: Ideals,
        priced: PricedWork,
        rows: Rows,
        limit: float,
        fold: Fold,
        stages: StageLoads | None = None,
        most_kept: int = MAX_KEPT_PAIRS,
    ) -> None:
        self.fold = fold
        self._pipeline, self._ideals, self._priced = pipeline, ideals, priced
        self._stages = StageLoads(pipeline, ideals) if stages is None else stages
        self._rows, self._limit = rows, limit
        self._kept: dict[tuple[int, int], _Pairs] = {}
        self._room = most_kept
        windows = (self._window(kind, rows, rows) for kind in range(len(pipeline.classes)))
        self._until_all = sum(int((end - first).sum()) for first, end in windows)

    def after(self, kind: int, position: int, so_far: Floats, wanted: NDArray[np.bool_], control: Control) -> Floats:
        """Return, for each wanted target, the least value of a chain that ends there with a stage on class `kind`.

        That stage is at `position` from the end. `so_far` has the least value of a chain to each ideal without that
        stage. Values of targets that are not wanted are meaningless.
        """
        folds = np.full(len(self._rows), np.inf)
        sources = np.flatnonzero(np.isfinite(so_far))
        keep = self._until_all <= 0
        targets = np.arange(len(self._rows)) if keep else np.flatnonzero(wanted)
        for begin in range(0, len(targets) if len(sources) else 0, _ROWS_PER_BLOCK):
            if control.stopped:
                break
            some = targets[begin : begin + _ROWS_PER_BLOCK]
            if not keep:
                folds[some] = self._freshly(kind, position, so_far, sources, some)
            elif wanted[some].any():
                pairs = self._pairs(kind, begin)
                if len(pairs.target):
                    folded = self.fold(so_far[pairs.source], self._at(kind, position, pairs))
                    folds[pairs.target] = np.minimum.reduceat(folded, pairs.first)
        return folds

    def _freshly(
        self, kind: int, position: int, so_far: Floats, sources: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> Floats | float:
        first, end = self._window(kind, self._rows[sources], self._rows[targets])
        near = sources[first[0] : end[-1]]
        if not len(near):
            return np.inf
        self._until_all -= len(near) * len(targets)
        load = self._loads(kind, self._rows[near], self._rows[targets], position)
        return np.asarray(self.fold(so_far[near], load).min(axis=1))

    def sources_of(self, kind: int, position: int, row: int) -> tuple[NDArray[np.int32], Floats]:
        """Return the sources of the stages that end at the ideal `row`, and the loads of these stages.

        The stages are at `position` from the end. `row` and the sources are positions in `rows`.
        """
        pairs = self._pairs(kind, row - row % _ROWS_PER_BLOCK)
        at = int(np.searchsorted(pairs.target, row))
        if at == len(pairs.target) or pairs.target[at] != row:
            return pairs.source[:0], pairs.load[:0]
        end = pairs.first[at + 1] if at + 1 < len(pairs.first) else len(pairs.source)
        return pairs.source[pairs.first[at] : end], self._at(kind, position, pairs)[pairs.first[at] : end]

    def _at(self, kind: int, position: int, pairs: _Pairs) -> Floats:
        """Return the loads of the stages `pairs` on class `kind` at `position` from the end.

        They are infinite if a stage does not fit in memory there. `pairs` was computed for the last position, where
        stages hold least.
        """
        if not self._pipeline.further_at(position):
            return pairs.load
        each, rows = self._pipeline.classes[kind], self._rows
        targets = rows[np.repeat(pairs.target, np.diff(pairs.first, append=len(pairs.source)))]
        sources, load = rows[pairs.source], pairs.load
        if each.loads_are_bytes:
            kept = self._ideals.kept
            load = load + self._pipeline.further_at(position) * (kept[targets] - kept[sources])
        memory = self._stages.held(position)
        fits = memory[targets] - memory[sources] <= each.capacity
        return np.where(fits & (load < self._limit), load, np.inf)

    def _pairs(self, kind: int, begin: int) -> _Pairs:
        if (kind, begin) in self._kept:
            return self._kept[kind, begin]
        targets = self._rows[begin : begin + _ROWS_PER_BLOCK]
        starts, ends = self._window(kind, self._rows, targets)
        first, end = starts[0], ends[-1]
        load = self._loads(kind, self._rows[first:end], targets)
        target, source = np.nonzero(load < self._limit)
        changes = np.flatnonzero(np.diff(target, prepend=-1))
        found = _Pairs(target[changes] + begin, changes, (source + first).astype(np.int32), load[target, source])
        if len(source) <= self._room:
            self._room -= len(source)
            self._kept[kind, begin] = found
        return found

    def _window(self, kind: int, sources: Rows, targets: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the range of possible sources of each target: the first source, and the end (excluded).

        A stage with a load below the limit has limited work, and ideals are sorted by work.
        """
        slack = 1e-9 * (self._limit + float(self._ideals.work[-1]))
        done, wanted = self._ideals.work[sources], self._ideals.work[targets]
        first = np.searchsorted(done, wanted - self._priced.price[kind] * self._limit - slack)
        return first, np.searchsorted(done, wanted + slack, side="right")

    def _loads(self, kind: int, sources: Rows, targets: Rows, position: int = 1) -> Floats:
        """Return the loads of stages on class `kind` at `position` from the end, shaped (targets, sources).

        They are infinite if the time alone reaches the limit, or if the source is not a subset of the target.
        """
        load = self._stages.work(kind, sources, targets, position)
        load[load >= self._limit] = np.inf
        load[self._stages.leaves(sources, targets)] = np.inf
        if self._pipeline.classes[kind].pays and np.isfinite(load).any():
            load += self._stages.transfers(sources, targets)
        return load
