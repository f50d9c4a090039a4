"""Names under marks, where they fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessel_core.charts.graph.groups import MarkedGraph, layer_names, short_name
from tessel_core.charts.graph.layout import Layout
from tessel_core.charts.text import plain

LABEL_SIZE, LABEL_PX = 10, 15
"""Of letters, and of what a label takes below its mark, in pixels."""
LAYER_SIZE, LANES_OF_LAYERS = 9, 2
"""Of letters in pixels, and free lanes that layers' names take above a row."""
_LABELLED, _LAYERED = 150, 5_000
"""Marks up to which each may have its label, and up to which rows have room for the names of layers."""
_MOST_LAYERS = 300
_BACKWARD = "/backward"
"""How the name of a backward operator ends that is its forward one's otherwise."""
_LETTER = 6.0
"""Pixels of a letter at that size."""
_LEAST_LANE, _FEWEST_LETTERS, _MOST_LETTERS = 24, 5, 26
"""A lane in pixels that has room for a label under its mark; a label with fewer letters tells nothing."""


def has_labels(lane_px: float) -> bool:
    """Whether lanes leave room for labels."""
    return lane_px >= _LEAST_LANE


def labels_of(marked: MarkedGraph, layout: Layout, column_px: float, lane_px: float) -> list[str]:
    """Per mark the last part of its name, shortened to what is free on its lane, or nothing.

    `NAME/backward` has none where `NAME` has one above it: the mark's shape and place say the rest.
    """
    names = [short_name(mark.name) if len(mark.members) == 1 else mark.key for mark in marked.marks]
    if not has_labels(lane_px):
        return [""] * len(names)
    labels = []
    for name, free in zip(names, _free_columns(layout), strict=True):
        letters = min(_MOST_LETTERS, int((free * column_px - 4) / _LETTER))
        labels.append(
            plain(_shortened(name, letters), _MOST_LETTERS) if letters >= min(len(name), _FEWEST_LETTERS) else ""
        )
    return ["" if _says_backward_only(marked, i, labels) else label for i, label in enumerate(labels)]


def _says_backward_only(marked: MarkedGraph, i: int, labels: Sequence[str]) -> bool:
    mark = marked.marks[i]
    return mark.name.endswith(_BACKWARD) and any(
        labels[mate] and marked.marks[mate].name == mark.name.removesuffix(_BACKWARD) for mate in marked.mates[i]
    )


def _shortened(name: str, letters: int) -> str:
    """A name that ends in a number is told by its end.

    >>> _shortened("layers.12", 5), _shortened("attention", 5)
    ('…s.12', 'atte…')
    """
    if len(name) <= letters:
        return name
    return "…" + name[len(name) - letters + 1 :] if name[-1].isdigit() else name[: letters - 1] + "…"


def tells_layers(marked: MarkedGraph) -> bool:
    """Whether the rows should say which layers they hold: where marks are too many for labels, and names tell."""
    return _LABELLED < len(marked.marks) <= _LAYERED and any(layer_names(marked.graph))


def layer_labels(marked: MarkedGraph, layout: Layout, column_px: float) -> list[dict[str, Any]]:
    """Annotations over the rows: each layer's name where it begins, as far as names do not run into each other.

    A layer that goes on from the row above is named again where that leaves room for the next one.
    """
    shown: list[dict[str, Any]] = []
    told: set[str] = set()
    for row, begun in zip(layout.rows, _layer_starts(marked, layout), strict=True):
        free_from = 0.0
        ordered = sorted(begun, key=lambda name: (begun[name], name))
        for name, following in zip(ordered, [*ordered[1:], None], strict=True):
            label = plain(name.rsplit("/", 1)[-1])
            left, width = begun[name] * column_px, (len(label) + 2) * _LETTER
            yields = name in told and following is not None and begun[following] * column_px < left + width
            if left >= free_from and not yields:
                shown.append(_annotation(label, begun[name], row.top - 1.1))
                told.add(name)
                free_from = left + width
    return shown[:: -(-len(shown) // _MOST_LAYERS) or 1]


def _layer_starts(marked: MarkedGraph, layout: Layout) -> list[dict[str, int]]:
    """Per row, the first column of each layer that has forward operators in it."""
    names = layer_names(marked.graph)
    starts: list[dict[str, int]] = [{} for _ in layout.rows]
    rows = np.searchsorted([row.top for row in layout.rows], layout.y, side="right") - 1
    for mark, x, row in zip(marked.marks, layout.x.tolist(), rows.tolist(), strict=True):
        name = names[mark.members[0]]
        if name and not mark.backward:
            starts[row][name] = min(x, starts[row].get(name, x))
    return starts


def _annotation(text: str, x: int, y: float) -> dict[str, Any]:
    return {
        "text": text,
        "x": x - 0.5,
        "y": y,
        "xanchor": "left",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"size": LAYER_SIZE},
        "opacity": 0.7,
    }


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
