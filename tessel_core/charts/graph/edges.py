"""The lines of the drawing as few traces: within devices, from forward to backward, between devices."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.graph.groups import MarkedGraph
from tessel_core.charts.graph.layout import Layout
from tessel_core.charts.palette import QUIET, TRANSFER
from tessel_core.model import Placement

_MANY = 3_000
"""Lines above which they are thin."""


def edge_traces(marked: MarkedGraph, layout: Layout, placement: Placement | None) -> list[go.Scatter]:
    """Tensors kept for the backward pass below, those that move to another device on top."""
    moves = _moving(marked, layout, placement)
    thin = len(layout.lines) > _MANY
    kinds = (
        ("kept for the backward pass", layout.mirror & ~moves, QUIET, 0.5, "dot"),
        ("tensors", ~layout.mirror & ~moves, QUIET, 0.7 if thin else 1.1, "solid"),
        ("between devices", moves, TRANSFER, 1.0 if thin else 1.6, "solid"),
    )
    return [
        _trace(name, layout.lines[chosen], colour, width, dash) for name, chosen, colour, width, dash in kinds if chosen.any()
    ]


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


def _trace(name: str, lines: NDArray[np.float64], colour: str, width: float, dash: str) -> go.Scatter:
    x, y = _drawn(_joined(lines))
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": width, "dash": dash},
        hoverinfo="skip",
        showlegend=name != "tensors",
    )


def _joined(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Level lines that continue each other are one line: most are, and the picture is the same."""
    level = lines[:, 1] == lines[:, 3]
    flat = lines[level]
    left, right = np.minimum(flat[:, 0], flat[:, 2]), np.maximum(flat[:, 0], flat[:, 2])
    order = np.lexsort((left, flat[:, 1]))
    y, left, right = flat[order, 1], left[order], right[order]
    opens = np.ones(len(y), dtype=bool)
    opens[1:] = (y[1:] != y[:-1]) | (left[1:] > right[:-1])
    firsts = np.flatnonzero(opens)
    if not len(firsts):
        return lines
    ends = np.maximum.reduceat(right, firsts)
    return np.concatenate([lines[~level], np.stack([left[firsts], y[firsts], ends, y[firsts]], axis=1)])


def _drawn(lines: NDArray[np.float64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both coordinates of the ends, with a gap behind each line."""
    gap = np.full(len(lines), np.nan)
    x = np.stack([lines[:, 0], lines[:, 2], gap], axis=1).ravel()
    y = np.stack([lines[:, 1], lines[:, 3], gap], axis=1).ravel()
    return x.astype(np.float32), y.astype(np.float32)
