"""The text of the drawing: names under marks and over rows, where they fit, and the hover text of each mark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessel_core.charts.figure import listed, plain
from tessel_core.charts.graph.colouring import amount_of, devices_of
from tessel_core.charts.graph.groups import ColourBy, GraphView, Mark, MarkedGraph, layer_names, short_name
from tessel_core.charts.graph.layout import Layout
from tessel_core.model import Operator, OperatorGraph, Placement
from tessel_core.units import show_flops, show_memory, show_time

LABEL_SIZE, LABEL_PX = 10, 15
"""Sizes in pixels of letters, and of a label below its mark."""
LAYER_SIZE, LANES_OF_LAYERS = 9, 2
"""Size of letters in pixels, and free lanes for layers' names above a row."""
_LABELLED, _LAYERED = 150, 5_000
"""Marks up to which each may have its label, and up to which rows have room for the names of layers."""
_MOST_LAYERS = 300
_BACKWARD = "/backward"
"""Suffix that names a backward operator after its forward one."""
_LETTER = 6.0
"""Pixels of a letter at that size."""
_LEAST_LANE, _FEWEST_LETTERS, _MOST_LETTERS = 24, 5, 26
"""A lane in pixels that has room for a label under its mark; a label with fewer letters tells nothing."""

_DETAILED = 5_000
"""Marks up to which the hover text has all details; beyond, only names, so that a picture stays below two megabytes."""
_LONGEST, _BRIEF = 60, 24
"""Letters of a name; briefly, its last ones."""
_MOST_LISTED = 6


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
    """The end of a name that ends in a number, else its beginning.

    >>> _shortened("layers.12", 5), _shortened("attention", 5)
    ('…s.12', 'atte…')
    """
    if len(name) <= letters:
        return name
    return "…" + name[len(name) - letters + 1 :] if name[-1].isdigit() else name[: letters - 1] + "…"


def names_layers(marked: MarkedGraph) -> bool:
    """Whether the rows should say which layers they hold: where marks are too many for labels but have layers."""
    return _LABELLED < len(marked.marks) <= _LAYERED and any(layer_names(marked.graph))


def layer_labels(marked: MarkedGraph, layout: Layout, column_px: float) -> list[dict[str, Any]]:
    """Annotations over the rows: each layer's name where it begins, as far as names do not run into each other.

    A layer that goes on from the row above is named again where that leaves room for the next one.
    """
    shown: list[dict[str, Any]] = []
    named: set[str] = set()
    for row, begun in zip(layout.rows, _layer_starts(marked, layout), strict=True):
        free_from = 0.0
        ordered = sorted(begun, key=lambda name: (begun[name], name))
        for name, following in zip(ordered, [*ordered[1:], None], strict=True):
            label = plain(name.rsplit("/", 1)[-1])
            left, width = begun[name] * column_px, (len(label) + 2) * _LETTER
            yields = name in named and following is not None and begun[following] * column_px < left + width
            if left >= free_from and not yields:
                shown.append(_annotation(label, begun[name], row.top - 1.1))
                named.add(name)
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


def hover_texts(marked: MarkedGraph, view: GraphView, placement: Placement | None) -> list[str]:
    """Per mark, lines of text for plotly."""
    if len(marked.marks) > _DETAILED:
        return [
            plain(mark.name if len(mark.name) <= _BRIEF else "…" + mark.name[1 - _BRIEF :], _BRIEF)
            for mark in marked.marks
        ]
    return ["<br>".join(filter(None, _hover_lines(marked.graph, mark, view, placement))) for mark in marked.marks]


def _hover_lines(graph: OperatorGraph, mark: Mark, view: GraphView, placement: Placement | None) -> list[str]:
    operators = [graph.operators[i] for i in mark.members]
    single = operators[0] if len(operators) == 1 else None
    direction = "backward" if mark.backward else "forward"
    what = (single.kind or "operator") if single else f"{len(operators):,} operators"
    times = [(kind, amount_of(operators, ColourBy.TIME, kind)) for kind in graph.kinds]
    on = [f"{show_time(time, graph.time_unit)} on {kind}" for kind, time in times if time is not None]
    flops = amount_of(operators, ColourBy.FLOPS, "")
    pinned = sum(operator.name in view.pinned for operator in operators)
    return [
        f"<b>{plain(mark.name, _LONGEST)}</b>",
        f"{plain(what, _LONGEST)}, {direction}"
        + ("" if not pinned else ", pinned" if single else f", {pinned} pinned"),
        _listed(on),
        show_flops(flops) if flops else "",
        _memory_line(operators),
        _devices_line(mark, placement),
        _colours_line(operators),
    ]


def _memory_line(operators: list[Operator]) -> str:
    parts = (
        ("weights", [each.weight_bytes for each in operators]),
        ("activations", [each.activation_bytes for each in operators]),
        ("output" if len(operators) == 1 else "outputs", [each.output_bytes for each in operators]),
        ("holds", [each.size for each in operators]),
    )
    known = [(what, [each for each in amounts if each is not None]) for what, amounts in parts]
    return ", ".join(f"{what} {show_memory(sum(amounts), 'B')}" for what, amounts in known if amounts)


def _devices_line(mark: Mark, placement: Placement | None) -> str:
    if placement is None:
        return ""
    names = [placement.devices[d].name for d in devices_of(mark, placement)]
    return f"on {_listed(names)}" if names else "on no device"


def _colours_line(operators: list[Operator]) -> str:
    classes = list(dict.fromkeys(each.colour for each in operators if each.colour is not None))
    return f"colour class {_listed(classes)}" if classes else ""


def _listed(parts: Sequence[str]) -> str:
    return listed([plain(part, _LONGEST) for part in parts], _MOST_LISTED)
