"""Text of the drawing: hover texts, and names below marks and above rows where space allows."""

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
"""Height of letters, and height of a label below its mark, in pixels."""
LAYER_SIZE, LANES_OF_LAYERS = 9, 2
"""Height of letters in pixels, and number of free lanes above a row for the names of layers."""
_MAX_LABELLED, _MAX_LAYERED = 150, 5_000
"""Largest number of marks that get a label each, and largest number with names of layers above the rows."""
_MAX_LAYER_NAMES = 300
_BACKWARD = "/backward"
"""Suffix that a backward operator's name adds to the name of its forward operator."""
_LETTER_PIXELS = 6.0
"""Width of a letter in a label, in pixels."""
_MIN_LANE_PIXELS, _MIN_LETTERS, _MAX_LETTERS = 24, 5, 26
"""Least height in pixels of a lane with labels, and least and largest number of letters of a label."""

_MAX_DETAILED = 5_000
"""Largest number of marks with detailed hover texts.

With more marks, hover texts have only names, so that a picture stays below two megabytes.
"""
_NAME_LETTERS, _BRIEF_LETTERS = 60, 24
"""Largest number of letters of a name in detailed hover texts, and in brief ones."""
_MAX_LISTED = 6


def has_labels(lane_px: float) -> bool:
    """Return whether lanes are high enough for labels."""
    return lane_px >= _MIN_LANE_PIXELS


def labels_of(marked: MarkedGraph, layout: Layout, column_px: float, lane_px: float) -> list[str]:
    """Return a label for each mark: the last part of its name, shortened to fit, or empty.

    The mark of `NAME/backward` has no label if that of `NAME` has one: its shape already shows that it is backward.
    """
    names = [short_name(mark.name) if len(mark.members) == 1 else mark.key for mark in marked.marks]
    if not has_labels(lane_px):
        return [""] * len(names)
    labels = []
    for name, free in zip(names, _free_columns(layout), strict=True):
        letters = min(_MAX_LETTERS, int((free * column_px - 4) / _LETTER_PIXELS))
        labels.append(plain(_shortened(name, letters), _MAX_LETTERS) if letters >= min(len(name), _MIN_LETTERS) else "")
    return ["" if _says_backward_only(marked, i, labels) else label for i, label in enumerate(labels)]


def _says_backward_only(marked: MarkedGraph, i: int, labels: Sequence[str]) -> bool:
    mark = marked.marks[i]
    return mark.name.endswith(_BACKWARD) and any(
        labels[mate] and marked.marks[mate].name == mark.name.removesuffix(_BACKWARD) for mate in marked.mates[i]
    )


def _shortened(name: str, letters: int) -> str:
    """Return the end of a name that ends with a digit, or else its beginning.

    >>> _shortened("layers.12", 5), _shortened("attention", 5)
    ('…s.12', 'atte…')
    """
    if len(name) <= letters:
        return name
    return "…" + name[len(name) - letters + 1 :] if name[-1].isdigit() else name[: letters - 1] + "…"


def names_layers(marked: MarkedGraph) -> bool:
    """Return whether to show names of layers above rows.

    This is so if there are too many marks for labels and marks belong to layers.
    """
    return _MAX_LABELLED < len(marked.marks) <= _MAX_LAYERED and any(layer_names(marked.graph))


def layer_labels(marked: MarkedGraph, layout: Layout, column_px: float) -> list[dict[str, Any]]:
    """Return annotations above the rows.

    Each layer is named where it begins, unless names would overlap. A layer that continues from the row above is named
    again if this leaves space for the next name.
    """
    shown: list[dict[str, Any]] = []
    named: set[str] = set()
    for row, begun in zip(layout.rows, _layer_starts(marked, layout), strict=True):
        free_from = 0.0
        ordered = sorted(begun, key=lambda name: (begun[name], name))
        for name, following in zip(ordered, [*ordered[1:], None], strict=True):
            label = plain(name.rsplit("/", 1)[-1])
            left, width = begun[name] * column_px, (len(label) + 2) * _LETTER_PIXELS
            yields = name in named and following is not None and begun[following] * column_px < left + width
            if left >= free_from and not yields:
                shown.append(_annotation(label, begun[name], row.top - 1.1))
                named.add(name)
                free_from = left + width
    return shown[:: -(-len(shown) // _MAX_LAYER_NAMES) or 1]


def _layer_starts(marked: MarkedGraph, layout: Layout) -> list[dict[str, int]]:
    """Return, for each row, the first column of each layer with forward operators."""
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
    """Return, for each mark, its distance in columns to the nearest mark on its lane.

    Without a neighbour, return twice the distance to the edge.
    """
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
    """Return the hover text of each mark."""
    if len(marked.marks) > _MAX_DETAILED:
        names, most = [mark.name for mark in marked.marks], _BRIEF_LETTERS
        return [plain(name if len(name) <= most else "…" + name[1 - most :], most) for name in names]
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
        f"<b>{plain(mark.name, _NAME_LETTERS)}</b>",
        f"{plain(what, _NAME_LETTERS)}, {direction}"
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
    return listed([plain(part, _NAME_LETTERS) for part in parts], _MAX_LISTED)
