"""Exact timing of a combinatorial answer: keep each device's cyclic order, find the least period."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tessel_core.model import MicroBatchPlan, Repetend
from tessel_core.scheduling.search.difference import earliest_starts

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
        source, target, weights, heights = arcs.T
        starts, cycle = earliest_starts(repetend.first_start.size, source, target, weights - heights * period)
        if cycle is None:
            return Repetend(plan, period, starts.reshape(repetend.first_start.shape))
        weight, height = int(weights[cycle].sum()), int(heights[cycle].sum())
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
