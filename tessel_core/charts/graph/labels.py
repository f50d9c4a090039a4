"""Names under marks, where they fit."""

from __future__ import annotations

from collections import defaultdict

from tessel_core.charts.graph.groups import MarkedGraph, short_name
from tessel_core.charts.graph.layout import Layout
from tessel_core.charts.text import plain

LABEL_SIZE, LABEL_PX = 10, 15
"""Of letters, and of what a label takes below its mark, in pixels."""
_LETTER = 6.0
"""Pixels of a letter at that size."""
_LEAST_LANE, _FEWEST_LETTERS, _MOST_LETTERS = 24, 5, 26
"""A lane in pixels that has room for a label under its mark; a label with fewer letters tells nothing."""


def has_labels(lane_px: float) -> bool:
    """Whether lanes leave room for labels."""
    return lane_px >= _LEAST_LANE


def labels_of(marked: MarkedGraph, layout: Layout, column_px: float, lane_px: float) -> list[str]:
    """Per mark the last part of its name, shortened to what is free on its lane, or nothing."""
    names = [short_name(mark.name) if len(mark.members) == 1 else mark.key for mark in marked.marks]
    if not has_labels(lane_px):
        return [""] * len(names)
    labels = []
    for name, free in zip(names, _free_columns(layout), strict=True):
        letters = min(_MOST_LETTERS, int((free * column_px - 4) / _LETTER))
        labels.append(plain(_shortened(name, letters), _MOST_LETTERS) if letters >= min(len(name), _FEWEST_LETTERS) else "")
    return labels


def _shortened(name: str, letters: int) -> str:
    """A name that ends in a number is told by its end.

    >>> _shortened("layers.12", 5), _shortened("attention", 5)
    ('…s.12', 'atte…')
    """
    if len(name) <= letters:
        return name
    return "…" + name[len(name) - letters + 1 :] if name[-1].isdigit() else name[: letters - 1] + "…"


def _free_columns(layout: Layout) -> list[int]:
    """Per mark, the columns from it to the nearest mark on its lane, or twice those to the edge."""
    lanes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for mark, (x, y) in enumerate(zip(layout.x.tolist(), layout.y.tolist(), strict=True)):
        lanes[y].append((x, mark))
    free = [0] * len(layout.x)
    for on_lane in lanes.values():
        on_lane.sort()
        for i, (x, mark) in enumerate(on_lane):
            before = x - on_lane[i - 1][0] if i else 2 * x + 1
            behind = on_lane[i + 1][0] - x if i + 1 < len(on_lane) else 2 * (layout.width - 1 - x) + 1
            free[mark] = min(before, behind)
    return free
