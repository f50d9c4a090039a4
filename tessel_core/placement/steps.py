"""Single stages: all pairs of ideals between which a device's load stays below a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.control import Control
from tessel_core.placement.bounds import PricedWork
from tessel_core.placement.crossing import Crossing, Rows
from tessel_core.placement.ideals import Ideals
from tessel_core.placement.stages import Floats, Pipeline

Fold = Callable[[Floats, Floats], Floats]
"""What loads so far, and the load of one stage more, come to."""
_ROWS = 64
"""Ideals that are extended to at a time; a block of pairs then stays in the processor's cache."""
_MOST_KEPT = 12_000_000
"""Pairs, of 12 bytes each, that are kept for the next question; others are computed anew."""


@dataclass(frozen=True)
class _Pairs:
    """Stages that end at some of the targets, in order of these."""

    target: NDArray[np.int64]
    """Positions of the targets that have any."""
    first: NDArray[np.int64]
    """Per such target, where its stages begin in the columns below."""
    source: NDArray[np.int32]
    load: Floats


class Steps:
    """The stages from one of `rows` to another; positions in `rows` stand for ideals, in order of their work.

    At first each question computes the stages that it needs, which is little where few ideals are within reach.  Once
    the questions have looked at more pairs than there are in all, every stage is computed once and kept.
    """

    def __init__(
        self, pipeline: Pipeline, ideals: Ideals, priced: PricedWork, rows: Rows, limit: float, fold: Fold
    ) -> None:
        self.fold = fold
        self._pipeline, self._ideals, self._priced = pipeline, ideals, priced
        self._crossing = Crossing(pipeline, ideals)
        self._rows, self._limit = rows, limit
        self._kept: dict[tuple[int, int], _Pairs] = {}
        self._room = _MOST_KEPT
        windows = (self._window(kind, rows, rows) for kind in range(len(pipeline.classes)))
        self._until_all = sum(int((end - first).sum()) for first, end in windows)

    def after(self, kind: int, so_far: Floats, wanted: NDArray[np.bool_], control: Control) -> Floats:
        """Per row that is wanted, the least fold when a device of class `kind` comes last; else infinite."""
        found = np.full(len(self._rows), np.inf)
        sources = np.flatnonzero(np.isfinite(so_far))
        keep = self._until_all <= 0
        targets = np.arange(len(self._rows)) if keep else np.flatnonzero(wanted)
        for begin in range(0, len(targets) if len(sources) else 0, _ROWS):
            if control.stopped:
                break
            some = targets[begin : begin + _ROWS]
            if not keep:
                found[some] = self._freshly(kind, so_far, sources, some)
            elif wanted[some].any():
                pairs = self._pairs(kind, begin)
                if len(pairs.target):
                    folded = self.fold(so_far[pairs.source], pairs.load)
                    found[pairs.target] = np.minimum.reduceat(folded, pairs.first)
        return found

    def _freshly(
        self, kind: int, so_far: Floats, sources: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> Floats | float:
        first, end = self._window(kind, self._rows[sources], self._rows[targets])
        near = sources[first[0] : end[-1]]
        if not len(near):
            return np.inf
        self._until_all -= len(near) * len(targets)
        load = self._loads(kind, self._rows[near], self._rows[targets])
        return np.asarray(self.fold(so_far[near], load).min(axis=1))

    def sources_of(self, kind: int, position: int) -> tuple[NDArray[np.int32], Floats]:
        """Where a stage that ends at one row may begin, and its loads."""
        pairs = self._pairs(kind, position - position % _ROWS)
        at = int(np.searchsorted(pairs.target, position))
        if at == len(pairs.target) or pairs.target[at] != position:
            return pairs.source[:0], pairs.load[:0]
        end = pairs.first[at + 1] if at + 1 < len(pairs.first) else len(pairs.source)
        return pairs.source[pairs.first[at] : end], pairs.load[pairs.first[at] : end]

    def _pairs(self, kind: int, begin: int) -> _Pairs:
        if (kind, begin) in self._kept:
            return self._kept[kind, begin]
        targets = self._rows[begin : begin + _ROWS]
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
        """Per target, the first and the end of the sources that a stage may begin at: work is limited by load."""
        slack = 1e-9 * (self._limit + float(self._ideals.work[-1]))
        done, wanted = self._ideals.work[sources], self._ideals.work[targets]
        first = np.searchsorted(done, wanted - self._priced.price[kind] * self._limit - slack)
        return first, np.searchsorted(done, wanted + slack, side="right")

    def _loads(self, kind: int, sources: Rows, targets: Rows) -> Floats:
        """Load of targets less sources on a device of class `kind`, shape (targets, sources); infinite where not."""
        each, ideals = self._pipeline.classes[kind], self._ideals
        load: Floats = np.subtract.outer(ideals.time[kind][targets], ideals.time[kind][sources])
        load[load >= self._limit] = np.inf
        if ideals.banned[kind][-1]:
            load[np.subtract.outer(ideals.banned[kind][targets], ideals.banned[kind][sources]) > 0] = np.inf
        if ideals.memory[-1] > each.capacity:
            load[np.subtract.outer(ideals.memory[targets], ideals.memory[sources]) > each.capacity] = np.inf
        load[self._crossing.leaves(sources, targets)] = np.inf
        if each.pays and np.isfinite(load).any():
            load += self._crossing.cost(sources, targets)
        return load
