"""The ways that tensors take through a layered drawing: pieces of line from column to column, shared by consumers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tessel_core.charts.graph.lanes import Wires
from tessel_core.charts.graph.layers import Arcs, Directions, IntArray

_BENDS_PER_MARK, _MOST_BENDS = 5, 25_000
"""About so many bends are worth their room; arcs that reach further are drawn by their ends only."""


@dataclass(frozen=True)
class Routes:
    """Marks come first among the points, then the bends."""

    wires: Wires
    """Columns of the forward marks from left to right, then those of the backward ones."""
    column: list[int]
    """Per point."""
    backward: list[bool]
    """Per point."""
    pieces_of: list[tuple[int, ...]]
    """Per arc, its pieces; none where it reaches too far, or leads from a forward mark to a backward one."""


def routed(arcs: Arcs, directions: Directions, column: IntArray) -> Routes:
    """Ways for all arcs that do not reach too far; consumers of one output share the trunk."""
    backward = directions.backward
    columns, sides = column.tolist(), list(backward)
    reach = _reach(directions.rightward(arcs), columns)
    pieces: dict[tuple[int, int], int] = {}
    pieces_of: list[tuple[int, ...]] = [()] * len(arcs)
    consumers: dict[int, list[int]] = defaultdict(list)
    for number, (source, target) in enumerate(arcs):
        if backward[source] == backward[target] and abs(columns[source] - columns[target]) <= reach:
            consumers[source].append(number)
    for source, numbers in consumers.items():
        step = -1 if directions.leftward(source) else 1
        trunk = [source]
        for number in numbers:
            target = arcs[number][1]
            distance = abs(columns[target] - columns[source])
            while len(trunk) < distance:
                columns.append(columns[trunk[-1]] + step)
                sides.append(backward[source])
                trunk.append(len(columns) - 1)
            way = [*trunk[:distance], target]
            ends = [(one, other)[::step] for one, other in pairwise(way)]
            pieces_of[number] = tuple(pieces.setdefault((left, right), len(pieces)) for left, right in ends)
    width = int(column.max()) + 1
    stacks: list[list[int]] = [[] for _ in range(2 * width)]
    for point, (at, side) in enumerate(zip(columns, sides, strict=True)):
        stacks[at + width * side].append(point)
    bends = frozenset(range(len(backward), len(columns)))
    return Routes(Wires(stacks, list(pieces), bends), columns, sides, pieces_of)


def _reach(arcs: Arcs, column: list[int]) -> int:
    """The most columns that an arc, left end first, may span, so that all bends stay in proportion to the marks."""
    spans = np.sort([column[right] - column[left] for left, right in arcs])
    if not len(spans):
        return 1
    affordable = np.searchsorted(
        np.cumsum(spans - 1), min(_MOST_BENDS, _BENDS_PER_MARK * len(column) + 200), side="right"
    )
    return int(spans[-1]) if affordable == len(spans) else max(1, int(spans[affordable]) - 1)
