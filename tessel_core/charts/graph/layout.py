"""Positions of the marks of a layered drawing. Columns are broken into rows, like words into lines of text.

The forward pass runs from left to right in the upper band of each row, the backward pass back in the lower band.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tessel_core.charts.graph.groups import MarkedGraph
from tessel_core.charts.graph.lanes import Wires, lanes_of
from tessel_core.charts.graph.layers import Arcs, Directions, IntArray, columns_of
from tessel_core.model.checks import grouped

_BETWEEN_BANDS = 1
"""Number of free lanes between the forward and the backward band of a row."""
_MAX_ROWS = 120
_COLUMN_ASPECT = 1.5
"""Width of a column divided by height of a lane. It leaves space for labels."""
_STUB_COLUMNS = 0.45
"""Length in columns of each visible end of an interrupted line."""
_MAX_MIRROR_COLUMNS = 6
"""Longest line in columns from a forward mark to its backward mark.

A longer line is interrupted, because it would cross others.
"""
_BENDS_PER_MARK, _MAX_BENDS = 5, 25_000
"""Approximate limits of bends, per mark and in all. If they are exceeded, long arcs are drawn as two ends."""


@dataclass(frozen=True)
class Layout:
    """Positions of marks, x in columns to the right and y in lanes down, and the lines between them."""

    x: IntArray
    y: IntArray
    rows: tuple[Row, ...]
    lines: NDArray[np.float64]
    """Coordinates x and y of both ends, with shape (lines, 4)."""
    arc_of_line: tuple[IntArray, IntArray]
    """Arrays of arcs and of their lines, of equal length. A line can belong to several arcs."""
    mirror: NDArray[np.bool_]
    """Whether each line leads from a forward mark to a backward one."""

    @property
    def width(self) -> int:
        """Number of columns in the longest row."""
        return max(row.columns for row in self.rows)

    @property
    def height(self) -> int:
        """Number of lanes in all rows."""
        return self.rows[-1].bottom


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the drawing: columns `first` to `first + columns - 1`, and lanes `top` to `bottom - 1`.

    The backward band begins at lane `middle`.
    """

    first: int
    columns: int
    top: int
    middle: int
    bottom: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Picture to fill: width divided by height, and number of free lanes between rows."""

    aspect: float
    between_rows: int = 1
    enough: float = 1.0
    """Share of the height at which lanes are tall enough."""


def layout_of(marked: MarkedGraph, frame: Frame) -> Layout:
    """Return the layout that is largest in the frame.

    If several are equally large, take the one with the fewest rows.
    """
    return _layout(marked.arcs, tuple(mark.backward for mark in marked.marks), marked.mates, frame)


@lru_cache(maxsize=16)
def _layout(
    arcs: tuple[tuple[int, int], ...],
    backward: tuple[bool, ...],
    mates: tuple[tuple[int, ...], ...],
    frame: Frame,
) -> Layout:
    """Compute a layout. The result is cached, because colours change more often than the graph."""
    directions = Directions.of(arcs, backward, mates)
    routes = routed(arcs, directions, columns_of(arcs, directions, mates))
    lane = np.array(lanes_of(routes.wires))
    column, side = np.array(routes.column), np.array(routes.backward)
    spans = _band_spans(column, side, lane)
    firsts = _folded(spans, _crossing(routes, column), frame)
    rows, low = _stacked(firsts, spans, frame.between_rows)
    row = np.searchsorted(firsts, column, side="right") - 1
    tops = np.array([[each.top, each.middle] for each in rows])
    x = column - firsts[row]
    y = lane - low[row, side.astype(int)] + tops[row, side.astype(int)]
    marks = len(backward)
    return Layout(x[:marks], y[:marks], rows, *_lines(arcs, routes, directions, (x, y, row)))


def _band_spans(column: IntArray, side: NDArray[np.bool_], lane: IntArray) -> IntArray:
    """Return the least and the largest lane for each column and direction, with shape (columns, 2, 2).

    If a column has no mark, the least is larger than any lane, and the largest is smaller.
    """
    huge = np.iinfo(np.int64).max // 4
    spans = np.empty((int(column.max()) + 1, 2, 2), dtype=np.int64)
    spans[:, :, 0], spans[:, :, 1] = huge, -huge
    np.minimum.at(spans[:, :, 0], (column, side.astype(int)), lane)
    np.maximum.at(spans[:, :, 1], (column, side.astype(int)), lane)
    return spans


def _crossing(routes: Routes, column: IntArray) -> IntArray:
    """Return the number of lines that enter each column from the previous column."""
    ends = np.array([right for _, right in routes.wires.pieces], dtype=np.int64)
    return np.bincount(column[ends], minlength=int(column.max()) + 1)


def _folded(spans: IntArray, crossing: IntArray, frame: Frame) -> IntArray:
    """Return the first column of each row. The number of rows makes the picture as large as possible."""
    count = len(spans)
    options = [_breaks(count, crossing, rows) for rows in range(1, min(count, _MAX_ROWS) + 1)]

    def scale(firsts: IntArray) -> float:
        height = _stacked(firsts, spans, frame.between_rows)[0][-1].bottom
        longest = np.diff(np.append(firsts, count)).max()
        return float(min(frame.aspect / _COLUMN_ASPECT / (longest + 1), 1 / (height + 1), frame.enough))

    return max(options, key=scale)


def _breaks(count: int, crossing: IntArray, rows: int) -> IntArray:
    """Return the first columns of rows of similar length, broken where few lines cross."""
    firsts = [0]
    for left in range(rows, 1, -1):
        length = (count - firsts[-1]) / left
        least, most = max(1, int(0.85 * length)), max(1, int(1.1 * length))
        candidates = range(firsts[-1] + least, min(firsts[-1] + most, count - left + 1) + 1)
        ideal = firsts[-1] + length
        firsts.append(min(candidates, key=lambda at: (crossing[at], abs(at - ideal))))
    return np.array(firsts)


def _stacked(firsts: IntArray, spans: IntArray, between_rows: int) -> tuple[tuple[Row, ...], IntArray]:
    """Return the rows, and the smallest lane of each row and direction."""
    low = np.minimum.reduceat(spans[:, :, 0], firsts, axis=0)
    high = np.maximum.reduceat(spans[:, :, 1], firsts, axis=0)
    heights = np.maximum(0, high - low + 1)  # Without marks, the least lane is above the largest (see `_band_spans`).
    lengths = np.diff(np.append(firsts, len(spans)))
    rows, top = [], 0
    for first, columns, (ahead, back) in zip(firsts.tolist(), lengths.tolist(), heights.tolist(), strict=True):
        middle = top + ahead + (_BETWEEN_BANDS if ahead and back else 0)
        rows.append(Row(first, columns, top, middle, middle + back))
        top = rows[-1].bottom + between_rows
    return tuple(rows), low


def _lines(
    arcs: tuple[tuple[int, int], ...], routes: Routes, directions: Directions, at: tuple[IntArray, IntArray, IntArray]
) -> tuple[NDArray[np.float64], tuple[IntArray, IntArray], NDArray[np.bool_]]:
    """Return the lines, their arcs, and whether they lead to a mirror mark, as in `Layout`.

    A segment within one row is one line. A segment that is long or leads to another row is drawn as its two ends.
    """
    side = np.array(routes.backward)
    x, y, row = at
    unrouted = [number for number, pieces in enumerate(routes.pieces_of) if not pieces]
    left_first = (arcs[n][::-1] if all(map(directions.leftward, arcs[n])) else arcs[n] for n in unrouted)
    ends = np.array([*routes.wires.pieces, *left_first], dtype=np.int64).reshape(-1, 2)
    carried = [(number, piece) for number, pieces in enumerate(routes.pieces_of) for piece in pieces]
    carried += [(number, len(routes.wires.pieces) + i) for i, number in enumerate(unrouted)]
    one, other = ends[:, 0], ends[:, 1]
    mirror = side[one] != side[other]
    near = mirror & (np.abs(x[one] - x[other]) <= _MAX_MIRROR_COLUMNS)
    joined = (row[one] == row[other]) & (near | (np.arange(len(ends)) < len(routes.wires.pieces)))
    start, end = np.stack([x[one], y[one]], axis=1).astype(float), np.stack([x[other], y[other]], axis=1).astype(float)
    away = _STUB_COLUMNS * np.stack([~mirror, mirror], axis=1)
    leaving = np.where(joined[:, None], end, start + away)
    cut = np.flatnonzero(~joined)
    lines = np.concatenate([np.hstack([start, leaving]), np.hstack([end - away, end])[cut]])
    arc, line = np.array(carried, dtype=np.int64).reshape(-1, 2).T
    second = np.full(len(ends), -1)
    second[cut] = len(ends) + np.arange(len(cut))
    twice = second[line] >= 0
    along = np.concatenate([arc, arc[twice]]), np.concatenate([line, second[line[twice]]])
    return lines, along, np.concatenate([mirror, mirror[cut]])


@dataclass(frozen=True)
class Routes:
    """Paths of the arcs. Each path leads through points: first the marks, then the bends of long arcs."""

    wires: Wires
    """Columns of points: forward points from left to right, then backward points."""
    column: list[int]
    """Column of each point."""
    backward: list[bool]
    """Whether each point belongs to the backward pass."""
    pieces_of: list[tuple[int, ...]]
    """Segments of each arc. Empty if the arc is too long, or leads from a forward to a backward mark."""


def routed(arcs: Arcs, directions: Directions, column: IntArray) -> Routes:
    """Return paths for all arcs that are not too long. Consumers of one output share segments."""
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
    stacks = grouped(2 * width, ((at + width * sides[point], point) for point, at in enumerate(columns)))
    bends = frozenset(range(len(backward), len(columns)))
    return Routes(Wires(stacks, list(pieces), bends), columns, sides, pieces_of)


def _reach(arcs: Arcs, column: list[int]) -> int:
    """Return the largest number of columns that an arc may span. Longer arcs would need too many bends."""
    spans = np.sort([column[right] - column[left] for left, right in arcs])
    if not len(spans):
        return 1
    affordable = np.searchsorted(
        np.cumsum(spans - 1), min(_MAX_BENDS, _BENDS_PER_MARK * len(column) + 200), side="right"
    )
    return int(spans[-1]) if affordable == len(spans) else max(1, int(spans[affordable]) - 1)
