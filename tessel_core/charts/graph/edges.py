"""The lines of the drawing as few traces: within devices, from forward to backward, between devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.graph.groups import MarkedGraph
from tessel_core.charts.graph.layout import Layout
from tessel_core.charts.palette import QUIET, TRANSFER
from tessel_core.model import Placement

_MOVED, _INSIDE, _KEPT = "between devices", "tensors", "kept for the backward pass"
_MOST_LINES = 14_000
"""Of all traces together: half a megabyte."""
_APART = 1e6
"""More than any drawing is wide: levels times this do not mix."""
_MANY = 3_000
"""Lines above which they are thin."""


def edge_traces(marked: MarkedGraph, layout: Layout, placement: Placement | None) -> list[go.Scatter]:
    """Tensors kept for the backward pass below, those that move to another device on top.

    Where there are more lines than a picture can hold, the longest are left out and the legend says so.
    """
    moves = _moving(marked, layout, placement)
    thin = len(layout.lines) > _MANY
    looks = (
        (_MOVED, moves, {"color": TRANSFER, "width": 1.0 if thin else 1.6}),
        (_INSIDE, ~layout.mirror & ~moves, {"color": QUIET, "width": 0.7 if thin else 1.1}),
        (_KEPT, layout.mirror & ~moves, {"color": QUIET, "width": 0.5, "dash": "dot"}),
    )
    traces: list[go.Scatter] = []
    room = _MOST_LINES
    for name, chosen, look in looks:
        lines = _joined(layout.lines[chosen])
        if len(lines):
            traces.insert(0, _trace(name, lines, room, look))
            room = max(0, room - len(lines))
    return traces


def _moving(marked: MarkedGraph, layout: Layout, placement: Placement | None) -> NDArray[np.bool_]:
    """Per line, whether a tensor along it moves between operators that are not on the same devices."""
    moves = np.zeros(len(layout.lines), dtype=bool)
    if placement is None:
        return moves
    on = placement.assignment
    moving = {ends for (source, target), ends in marked.arc_of.items() if set(on[source]) != set(on[target])}
    of_arc = np.array([arc in moving for arc in marked.arcs], dtype=bool)
    arcs, lines = layout.arc_of_line
    moves[lines[of_arc[arcs]]] = True
    return moves


def _trace(name: str, lines: NDArray[np.float64], room: int, look: dict[str, Any]) -> go.Scatter:
    """The shortest of the lines, as many as there is room for."""
    left_out = len(lines) - room
    if left_out > 0:
        length = np.hypot(lines[:, 2] - lines[:, 0], lines[:, 3] - lines[:, 1])
        lines = lines[np.argsort(length, kind="stable")[:room]]
        name += f" ({left_out:,} lines left out)"
    x, y = _drawn(lines)
    named = left_out > 0 or name != _INSIDE
    return go.Scatter(name=name, x=x, y=y, mode="lines", line=look, hoverinfo="skip", showlegend=named)


def _joined(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Level lines that continue each other are one line, and so are upright ones: the picture is the same."""
    swapped = [1, 0, 3, 2]
    return _levels_joined(_levels_joined(lines)[:, swapped])[:, swapped]


def _levels_joined(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    level = lines[:, 1] == lines[:, 3]
    flat = lines[level]
    if not len(flat):
        return lines
    left, right = np.minimum(flat[:, 0], flat[:, 2]), np.maximum(flat[:, 0], flat[:, 2])
    order = np.lexsort((left, flat[:, 1]))
    y, left, right = flat[order, 1], left[order], right[order]
    reached = np.maximum.accumulate(right + y * _APART) - y * _APART
    firsts = np.flatnonzero(np.append(True, (y[1:] != y[:-1]) | (left[1:] > reached[:-1])))
    ends = np.maximum.reduceat(right, firsts)
    return np.concatenate([lines[~level], np.stack([left[firsts], y[firsts], ends, y[firsts]], axis=1)])


def _drawn(lines: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both coordinates of the ends, with a gap behind each line."""
    gap = np.full(len(lines), np.nan)
    x = np.stack([lines[:, 0], lines[:, 2], gap], axis=1).ravel()
    y = np.stack([lines[:, 1], lines[:, 3], gap], axis=1).ravel()
    return x.astype(np.float32), y.astype(np.float32)
