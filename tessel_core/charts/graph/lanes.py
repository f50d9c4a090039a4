"""Assign the marks of a layered drawing to lanes (horizontal lines).

First, order the marks of each column so that few lines cross. Barycentre sweeps (Sugiyama, Tagawa, Toda 1981) order the
marks and the bends of long tensors. Then move each column as near to its neighbours' lanes as its order allows, so that
lines are straight. This is an isotonic regression (pool adjacent violators).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.model.checks import grouped

_MAX_STEPS = 400_000
"""Largest number of steps of all sweeps together. They take about a third of a second."""
_MAX_SWEEPS, _MIN_SWEEPS = 24, 3
_NEARBY_COLUMNS = 12


Points = Sequence[tuple[int, ...]]
"""For each point, the points that it is connected to."""


@dataclass(frozen=True)
class Wires:
    """Points in columns, and line segments (left point, right point) between neighbouring columns."""

    columns: Sequence[Sequence[int]]
    pieces: list[tuple[int, int]]
    straight: frozenset[int]
    """Points that are bends of long lines."""

    def neighbours(self) -> tuple[Points, Points]:
        """Return the neighbours of each point in the column to the left, and to the right."""
        count = sum(map(len, self.columns))
        return grouped(count, ((right, left) for left, right in self.pieces)), grouped(count, self.pieces)


def lanes_of(wires: Wires) -> list[int]:
    """Return the lane of each point, an integer. Points of a column have distinct lanes."""
    left, right = wires.neighbours()
    steps = len(left) + len(wires.pieces)
    sweeps = max(_MIN_SWEEPS, min(_MAX_SWEEPS, _MAX_STEPS // (3 * steps + 1)))
    columns = _least_crossed(wires.columns, left, right, sweeps)
    lanes = [0] * len(left)
    for column in columns:
        for place, point in enumerate(column):
            lanes[point] = place - len(column) // 2
    room = list(zip(columns, _room(columns), strict=True))
    for turn in range(max(2, sweeps // 4)):
        near = left if turn % 2 == 0 else right
        for column, half in room if turn % 2 == 0 else reversed(room):
            _straighten(column, half, lanes, near, wires.straight)
    both = [before + behind for before, behind in zip(left, right, strict=True)]
    for column, half in room:
        _straighten(column, half, lanes, both, wires.straight)
    return lanes


def _room(columns: list[list[int]]) -> list[int]:
    """Return how far each column may extend from the middle lane.

    The limit is the height of the tallest column nearby, so that the drawing does not drift.
    """
    heights = [len(column) for column in columns]
    return [max(heights[max(0, i - _NEARBY_COLUMNS) : i + _NEARBY_COLUMNS + 1]) // 2 + 1 for i in range(len(columns))]


def _least_crossed(points: Sequence[Sequence[int]], left: Points, right: Points, sweeps: int) -> list[list[int]]:
    """Return the order with the fewest crossings that the sweeps find."""
    columns = [list(column) for column in points]
    place = [0.0] * len(left)
    for column in columns:
        _number(column, place)
    best, fewest = [list(column) for column in columns], _crossings(columns, right, place)
    unchanged = 0
    for sweep in range(sweeps):
        if fewest == 0 or unchanged >= 6:
            break
        near = left if sweep % 2 == 0 else right
        for column in columns if sweep % 2 == 0 else reversed(columns):
            if len(column) > 1:
                weight = {v: sum(place[u] for u in near[v]) / len(near[v]) if near[v] else place[v] for v in column}
                column.sort(key=weight.__getitem__)
                _number(column, place)
        found = _crossings(columns, right, place)
        unchanged = 0 if found < fewest else unchanged + 1
        if found < fewest:
            best, fewest = [list(column) for column in columns], found
    return best


def _number(column: list[int], place: list[float]) -> None:
    """Set the positions of a column's points, counted from its middle.

    So positions in columns of different heights are comparable.
    """
    for i, point in enumerate(column):
        place[point] = i - (len(column) - 1) / 2


def _crossings(columns: list[list[int]], right: Points, place: list[float]) -> int:
    """Return the number of crossings of line segments."""
    total = 0
    for column in columns:
        seen: list[float] = []
        for point in column:
            ends = sorted(place[u] for u in right[point])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _straighten(
    column: list[int], half: int, lanes: list[int], near: Sequence[Sequence[int]], straight: frozenset[int]
) -> None:
    """Move a column's points towards the median lanes of their neighbours, by least squares without changing the order.

    The points stay within lanes -half to half. With target lane w and place i of a point, w - i must not fall along the
    column. Bends have more weight than marks.
    """
    pools: list[tuple[float, float, int]] = []
    for i, point in enumerate(column):
        neighbours = near[point]
        wish = _median([lanes[u] for u in neighbours] or [lanes[point]]) - i
        weight = (4.0 if point in straight else 1.0) if neighbours else 0.1
        mean, count = float(wish), 1
        while pools and pools[-1][0] > mean:
            other_mean, other_weight, other_count = pools.pop()
            mean = (mean * weight + other_mean * other_weight) / (weight + other_weight)
            weight, count = weight + other_weight, count + other_count
        pools.append((mean, weight, count))
    i = 0
    for mean, _, count in pools:
        for _ in range(count):
            lanes[column[i]] = round(max(-half, min(mean, half - len(column) + 1))) + i
            i += 1


def _median(lanes: list[int]) -> int:
    """Return the median.

    If two values are in the middle, return the value nearer to the middle lane, so that drawings do not drift.
    """
    ordered = sorted(lanes)
    return min(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2], key=abs)
