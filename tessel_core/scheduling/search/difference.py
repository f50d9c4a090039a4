"""Difference constraints start(j) >= start(i) + length, solved by longest paths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def earliest_starts(
    nodes: int, source: IntArray, target: IntArray, length: IntArray
) -> tuple[IntArray, list[int] | None]:
    """Least starts, all at least 0, that meet start(target) >= start(source) + length (Bellman-Ford).

    Where a positive cycle makes that impossible, the second value lists its arcs.
    """
    starts = np.zeros(nodes, dtype=np.int64)
    through = np.full(nodes, -1, dtype=np.int64)
    for _ in range(nodes + 1):
        reached = starts[source] + length
        later = starts.copy()
        np.maximum.at(later, target, reached)
        moved = np.flatnonzero((reached == later[target]) & (later[target] > starts[target]))
        if not len(moved):
            return starts, None
        through[target[moved]] = moved
        starts = later
    return starts, _cycle(source, through, int(target[moved[0]]), nodes)


def _cycle(source: IntArray, through: IntArray, node: int, nodes: int) -> list[int]:
    """The arcs of the cycle that the last arcs `through` each node lead back into."""
    for _ in range(nodes):
        node = int(source[through[node]])
    cycle, here = [], node
    while True:
        arc = int(through[here])
        cycle.append(arc)
        here = int(source[arc])
        if here == node:
            return cycle
