"""Positions of the marks of a layered drawing: columns folded into rows, as words into lines of text.

The forward pass runs from left to right in the upper band of each row, the backward pass comes back in the lower one.
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
"""Lanes left free."""
_MOST_ROWS = 120
_WIDER = 1.5
"""Columns are wider than lanes are high, so that labels fit."""
_STUB = 0.45
"""Columns that each visible end of an interrupted line spans."""
_LONGEST_MIRROR = 6
"""Columns; a line from a forward mark to its mirror that is longer would only cross others."""
_BENDS_PER_MARK, _MOST_BENDS = 5, 25_000
"""About so many bends are worth their room; arcs that reach further are drawn by their ends only."""


@dataclass(frozen=True)
class Layout:
    """Integer positions, x in columns to the right and y in lanes down, and the lines between them."""

    x: IntArray
    y: IntArray
    rows: tuple[Row, ...]
    lines: NDArray[np.float64]
    """Shaped (lines, 4): x and y of both ends."""
    arc_of_line: tuple[IntArray, IntArray]
    """Pairs of an arc and a line along it, as (arcs, lines) of one length; a trunk carries several arcs."""
    mirror: NDArray[np.bool_]
    """Per line, whether it leads from a forward mark to a backward one."""

    @property
    def width(self) -> int:
        """Columns of the longest row."""
        return max(row.columns for row in self.rows)

    @property
    def height(self) -> int:
        """Lanes of all rows."""
        return self.rows[-1].bottom


@dataclass(frozen=True, slots=True)
class Row:
    """Columns `first` to `first + columns - 1`, lanes `top` to `bottom - 1`, the backward band from `middle` on."""

    first: int
    columns: int
    top: int
    middle: int
    bottom: int


@dataclass(frozen=True, slots=True)
class Frame:
    """The picture to fill: so many times as wide as high, some lanes free between rows."""

    aspect: float
    between_rows: int = 1
    enough: float = 1.0
    """The share of the height from which on a lane need not be higher."""


def layout_of(marked: MarkedGraph, frame: Frame) -> Layout:
    """The layout that can be drawn largest in the frame, with as few rows as that allows."""
    return _layout(marked.arcs, tuple(mark.backward for mark in marked.marks), marked.mates, frame)


@lru_cache(maxsize=16)
def _layout(
    arcs: tuple[tuple[int, int], ...],
    backward: tuple[bool, ...],
    mates: tuple[tuple[int, ...], ...],
    frame: Frame,
) -> Layout:
    """Kept, because colours change more often than the graph."""
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
    """Per column and direction the least and the largest lane, shaped (columns, 2, 2).

    Where there is no mark, the least is larger than any lane, and the largest is less.
    """
    huge = np.iinfo(np.int64).max // 4
    spans = np.empty((int(column.max()) + 1, 2, 2), dtype=np.int64)
    spans[:, :, 0], spans[:, :, 1] = huge, -huge
    np.minimum.at(spans[:, :, 0], (column, side.astype(int)), lane)
    np.maximum.at(spans[:, :, 1], (column, side.astype(int)), lane)
    return spans


def _crossing(routes: Routes, column: IntArray) -> IntArray:
    """Per column, how many lines lead to it from the one before."""
    ends = np.array([right for _, right in routes.wires.pieces], dtype=np.int64)
    return np.bincount(column[ends], minlength=int(column.max()) + 1)


def _folded(spans: IntArray, crossing: IntArray, frame: Frame) -> IntArray:
    """The first columns of the rows for which the picture can be drawn largest."""
    count = len(spans)
    options = [_breaks(count, crossing, rows) for rows in range(1, min(count, _MOST_ROWS) + 1)]

    def scale(firsts: IntArray) -> float:
        height = _stacked(firsts, spans, frame.between_rows)[0][-1].bottom
        longest = np.diff(np.append(firsts, count)).max()
        return float(min(frame.aspect / _WIDER / (longest + 1), 1 / (height + 1), frame.enough))

    return max(options, key=scale)


def _breaks(count: int, crossing: IntArray, rows: int) -> IntArray:
    """Rows of about the same length, broken nearby where the fewest lines cross."""
    firsts = [0]
    for left in range(rows, 1, -1):
        length = (count - firsts[-1]) / left
        least, most = max(1, int(0.85 * length)), max(1, int(1.1 * length))
        candidates = range(firsts[-1] + least, min(firsts[-1] + most, count - left + 1) + 1)
        ideal = firsts[-1] + length
        firsts.append(min(candidates, key=lambda at: (crossing[at], abs(at - ideal))))
    return np.array(firsts)


def _stacked(firsts: IntArray, spans: IntArray, between_rows: int) -> tuple[tuple[Row, ...], IntArray]:
    """The rows below each other, and the least lane of each row and direction."""
    low = np.minimum.reduceat(spans[:, :, 0], firsts, axis=0)
    high = np.maximum.reduceat(spans[:, :, 1], firsts, axis=0)
    heights = np.maximum(0, high - low + 1)  # where there is nothing, the least is above the largest
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
    """Lines, the arcs along them and whether they mirror, as `Layout` says.

    What stays in its row is a line; what goes on in another row, or too far, is drawn by its two ends.
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
    near = mirror & (np.abs(x[one] - x[other]) <= _LONGEST_MIRROR)
    joined = (row[one] == row[other]) & (near | (np.arange(len(ends)) < len(routes.wires.pieces)))
    start, end = np.stack([x[one], y[one]], axis=1).astype(float), np.stack([x[other], y[other]], axis=1).astype(float)
    away = _STUB * np.stack([~mirror, mirror], axis=1)
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
    stacks = grouped(2 * width, ((at + width * sides[point], point) for point, at in enumerate(columns)))
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
