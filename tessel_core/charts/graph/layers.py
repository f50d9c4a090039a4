"""Assign the marks of a layered drawing to columns.

Forward operators go from left to right, backward operators from right to left. This is the first step of Sugiyama's
method (Sugiyama, Tagawa, Toda 1981), with longest paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.checks import grouped, topological_order

IntArray = NDArray[np.int64]
Arcs = Sequence[tuple[int, int]]

_MIN_COLUMN_LIMIT, _COLUMN_LIMIT_FACTOR = 12, 1.5
"""Constants of the limit of marks per column.

The limit is the larger of the first, and the second times the square root of the number of marks.
"""


@dataclass(frozen=True)
class Directions:
    """Direction in which each mark's tensors are drawn."""

    backward: tuple[bool, ...]
    comes_back: bool
    """Whether the backward pass is drawn from right to left.

    This holds except for files that omit the loss and give the backward pass the same arcs as the forward pass.
    """

    @classmethod
    def of(cls, arcs: Arcs, backward: Sequence[bool], mates: Sequence[Sequence[int]]) -> Directions:
        """Choose the directions.

        The backward pass goes from right to left, unless most of its arcs have the same direction as those of the
        mirrored marks.
        """
        before = grouped(len(backward), ((target, source) for source, target in arcs))
        place = {mark: i for i, mark in enumerate(topological_order(before))}
        pairs = [(mates[a][0], mates[b][0]) for a, b in arcs if mates[a] and mates[b]]
        along = sum(place[one] < place[other] for one, other in pairs)
        return cls(tuple(backward), 2 * along <= sum(one != other for one, other in pairs))

    def leftward(self, mark: int) -> bool:
        """Return whether the mark's tensors go to the left."""
        return self.backward[mark] and self.comes_back

    def rightward(self, arcs: Arcs) -> list[tuple[int, int]]:
        """Return the arcs between marks of one direction, each with its left end first."""
        one_way = ((a, b) for a, b in arcs if self.backward[a] == self.backward[b])
        return [(b, a) if self.leftward(a) else (a, b) for a, b in one_way]


def columns_of(arcs: Arcs, directions: Directions, mates: Sequence[Sequence[int]]) -> IntArray:
    """Return the column of each mark, from 0.

    An arc between marks of one direction spans at least one column, in that direction. A backward mark is never left
    of the forward marks that it mirrors, and directly below them if arcs allow.
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
    """Return a column for `v` further right.

    It is above the mirror marks of `v`, or next to its consumers if arcs get shorter.
    """
    room = min((column[u] - 1 for u in after[v]), default=None)
    if reflections[v]:
        over = min(column[u] for u in reflections[v])
        return over if room is None else min(room, over)
    if room is None or mates[v] or len(before[v]) > len(after[v]):
        return column[v]
    return room


def _split_tall(column: IntArray, backward: NDArray[np.bool_]) -> IntArray:
    """Split columns with too many marks of one direction into neighbouring columns."""
    tallest = max(_MIN_COLUMN_LIMIT, round(_COLUMN_LIMIT_FACTOR * len(column) ** 0.5))
    rank = np.zeros_like(column)
    for side in (False, True):
        where = np.flatnonzero(backward == side)
        ordered = where[np.argsort(column[where], kind="stable")]
        firsts = np.searchsorted(column[ordered], column[ordered])
        rank[ordered] = np.arange(len(ordered)) - firsts
    part = rank // tallest
    _, dense = np.unique(column * (int(part.max()) + 1) + part, return_inverse=True)
    return np.asarray(dense, dtype=np.int64)
