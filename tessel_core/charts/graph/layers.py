"""Columns of a layered drawing: forward operators from left to right, backward ones from right to left.

The first step of Sugiyama's method (Sugiyama, Tagawa, Toda 1981), by longest paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.checks import grouped, topological_order

IntArray = NDArray[np.int64]
Arcs = Sequence[tuple[int, int]]

_TALLEST, _TALLER_THAN_SQUARE = 12, 1.5
"""Marks that any column may take, and times the side of the square of all marks; larger layers get several columns."""


@dataclass(frozen=True)
class Directions:
    """The direction of every mark's tensors."""

    backward: tuple[bool, ...]
    comes_back: bool
    """Whether the backward pass is drawn from right to left.

    It runs against the forward one, except in files that leave out where the loss is and give it the same arcs.
    """

    @classmethod
    def of(cls, arcs: Arcs, backward: Sequence[bool], mates: Sequence[Sequence[int]]) -> Directions:
        """The backward pass comes back unless most of its arcs follow those of the forward marks that it mirrors."""
        before = grouped(len(backward), ((target, source) for source, target in arcs))
        place = {mark: i for i, mark in enumerate(topological_order(before))}
        pairs = [(mates[a][0], mates[b][0]) for a, b in arcs if mates[a] and mates[b]]
        along = sum(place[one] < place[other] for one, other in pairs)
        return cls(tuple(backward), 2 * along <= sum(one != other for one, other in pairs))

    def leftward(self, mark: int) -> bool:
        """Whether the mark's tensors go to the left."""
        return self.backward[mark] and self.comes_back

    def rightward(self, arcs: Arcs) -> list[tuple[int, int]]:
        """Arcs between marks of one direction, the left end first."""
        one_way = ((a, b) for a, b in arcs if self.backward[a] == self.backward[b])
        return [(b, a) if self.leftward(a) else (a, b) for a, b in one_way]


def columns_of(arcs: Arcs, directions: Directions, mates: Sequence[Sequence[int]]) -> IntArray:
    """Per mark, its column from 0 on.

    An arc between marks of one direction goes at least one column on, to the right or, where the backward pass comes
    back, to the left.  A backward mark stands no further left than the forward marks that it mirrors, and straight
    below where arcs allow.
    """
    backward = directions.backward
    count = len(backward)
    rightward = directions.rightward(arcs)
    before, after = grouped(count, ((right, left) for left, right in rightward)), grouped(count, rightward)
    reflections = grouped(count, ((one, mirrored) for mirrored, ahead in enumerate(mates) for one in ahead))
    order = topological_order([[*before[v], *mates[v]] for v in range(count)])
    column = [0] * count
    for v in order:
        column[v] = max([column[u] + 1 for u in before[v]] + [column[u] for u in mates[v]], default=0)
    for v in reversed(order):
        column[v] = max(column[v], _pulled(column, v, before, after, mates, reflections))
    return _split_tall(np.array(column, dtype=np.int64), np.array(backward))


def _pulled(
    column: list[int],
    v: int,
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    mates: Sequence[Sequence[int]],
    reflections: Sequence[Sequence[int]],
) -> int:
    """The column for `v` further right: over its mirrors, or next to its consumers if that shortens its arcs."""
    room = min((column[u] - 1 for u in after[v]), default=None)
    if reflections[v]:
        over = min(column[u] for u in reflections[v])
        return over if room is None else min(room, over)
    if room is None or mates[v] or len(before[v]) > len(after[v]):
        return column[v]
    return room


def _split_tall(column: IntArray, backward: NDArray[np.bool_]) -> IntArray:
    """Columns with too many marks of one direction to stand above each other become several neighbours."""
    tallest = max(_TALLEST, round(_TALLER_THAN_SQUARE * len(column) ** 0.5))
    rank = np.zeros_like(column)
    for side in (False, True):
        where = np.flatnonzero(backward == side)
        ordered = where[np.argsort(column[where], kind="stable")]
        firsts = np.searchsorted(column[ordered], column[ordered])
        rank[ordered] = np.arange(len(ordered)) - firsts
    part = rank // tallest
    _, dense = np.unique(column * (int(part.max()) + 1) + part, return_inverse=True)
    return np.asarray(dense, dtype=np.int64)
