"""Longest paths through one micro-batch's dependencies."""

from __future__ import annotations

from collections.abc import Collection

from tessel_core.model import MicroBatchPlan


def path_lengths(plan: MicroBatchPlan, quantum: int = 1) -> tuple[list[int], list[int]]:
    """Per block, the longest path to its start, and from its start to the end of the micro-batch.

    Durations and lags are rounded down to quanta, and lengths counted in them.
    """
    duration = [block.duration // quantum for block in plan.blocks]
    heads, tails = [0] * len(plan.blocks), [0] * len(plan.blocks)
    for b in plan.topological_order:
        heads[b] = max((heads[a] + duration[a] + lag // quantum for a, lag in plan.predecessors[b]), default=0)
    for b in reversed(plan.topological_order):
        tails[b] = duration[b] + max((lag // quantum + tails[a] for a, lag in plan.successors[b]), default=0)
    return heads, tails


def ways_from(plan: MicroBatchPlan, first: int, quantum: int = 1, ends: Collection[int] = ()) -> dict[int, int]:
    """Per block that follows `first`, the longest path from the end of `first` to its start, through none of `ends`."""
    way: dict[int, int] = {}
    for b in plan.topological_order:
        reached = [
            lag // quantum + (0 if a == first else way[a] + plan.blocks[a].duration // quantum)
            for a, lag in plan.predecessors[b]
            if a == first or (a in way and a not in ends)
        ]
        if reached:
            way[b] = max(reached)
    return way
