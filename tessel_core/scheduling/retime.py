"""Exact timing of a combinatorial answer: keep each device's cyclic order, find the least period."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import MicroBatchPlan, Repetend

Arc = tuple[int, int, int, int]
"""(from, to, weight, height): start(to) >= start(from) + weight - height * period"""


def retime(plan: MicroBatchPlan, repetend: Repetend, least_period: int) -> Repetend:
    """The shortest repetend of `plan`, of at least `least_period`, with the order of runs of `repetend`.

    `repetend` may belong to a quantised copy of `plan`.  Keeping the order on every device keeps what it holds.  The
    least period is a maximum cycle ratio, found by raising the period until no positive cycle is left [Lawler 1976].
    """
    arcs = np.array(_arcs(plan, repetend), dtype=np.int64)
    period = least_period
    while True:
        starts, cycle = _longest_paths(arcs, period, repetend.first_start.size)
        if cycle is None:
            return Repetend(plan, period, starts.reshape(repetend.first_start.shape))
        weight, height = int(arcs[cycle, 2].sum()), int(arcs[cycle, 3].sum())
        period = max(period + 1, -(-weight // height))


def _arcs(plan: MicroBatchPlan, repetend: Repetend) -> list[Arc]:
    blocks, unroll = len(plan.blocks), repetend.unroll
    k, r = np.divmod(repetend.first_start, repetend.period)
    arcs = [
        (u * blocks + a, u * blocks + b, plan.blocks[a].duration + lag, 0)
        for u in range(unroll)
        for a, b, lag in plan.arcs
    ]
    for on in plan.blocks_on:
        line = sorted((int(r[u, b]), int(k[u, b]), u * blocks + b, b) for u in range(unroll) for b in on)
        for here, there in pairwise(line):
            arcs.append((here[2], there[2], plan.blocks[here[3]].duration, here[1] - there[1]))
        if line:
            last, first = line[-1], line[0]
            arcs.append((last[2], first[2], plan.blocks[last[3]].duration, last[1] - first[1] + 1))
    return arcs


def _longest_paths(arcs: NDArray[np.int64], period: int, nodes: int) -> tuple[NDArray[np.int64], list[int] | None]:
    """Earliest starts under the arcs (Bellman-Ford), or the arcs of a positive cycle."""
    source, target = arcs[:, 0], arcs[:, 1]
    length = arcs[:, 2] - arcs[:, 3] * period
    starts = np.zeros(nodes, dtype=np.int64)
    through = np.full(nodes, -1, dtype=np.int64)
    for _ in range(nodes + 1):
        reached = starts[source] + length
        later = starts.copy()
        np.maximum.at(later, target, reached)
        moved = np.flatnonzero(reached == later[target])
        moved = moved[later[target[moved]] > starts[target[moved]]]
        if not len(moved):
            return starts, None
        through[target[moved]] = moved
        starts = later
    return starts, _cycle_through(source, through, int(target[moved[0]]), nodes)


def _cycle_through(source: NDArray[np.int64], through: NDArray[np.int64], node: int, nodes: int) -> list[int]:
    for _ in range(nodes):
        node = int(source[through[node]])
    cycle, here = [], node
    while True:
        arc = int(through[here])
        cycle.append(arc)
        here = int(source[arc])
        if here == node:
            return cycle
