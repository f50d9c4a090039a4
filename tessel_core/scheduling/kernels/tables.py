"""A plan as flat arrays, which is what compiled code can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.model import Dependency, MicroBatchPlan
from tessel_core.model.schedule import IntColumn

UNLIMITED = 2**60


class Tables(NamedTuple):
    """Lists of lists are rows: row i of `before` is `before[before_row[i]:before_row[i + 1]]`.

    A *place* is a (block, device) pair; those of one block are neighbours.  A run is the number
    micro-batch · blocks + block, and its stop at a place is micro-batch · places + place.
    """

    duration: IntColumn
    """Ticks, per block."""
    memory: IntColumn
    """Acquired at the start or released at the end, per block."""
    capacity: IntColumn
    """What micro-batches may hold, per device; `UNLIMITED` where there is no limit."""
    before_row: IntColumn
    before: IntColumn
    """Blocks that a block waits for."""
    before_ticks: IntColumn
    """From the start of the block waited for to the start of the one that waits."""
    after_row: IntColumn
    after: IntColumn
    after_ticks: IntColumn
    """From the end of a block to the start of the one that waits: the lag."""
    place_row: IntColumn
    place_device: IntColumn
    place_block: IntColumn
    on_row: IntColumn
    on: IntColumn
    """Blocks on a device, in an order in which one micro-batch alone fits."""
    guarded: NDArray[np.bool_]
    """Whether micro-batches can lock each other out of a device: several of its blocks acquire."""


def tables_of(plan: MicroBatchPlan, order: Sequence[int]) -> Tables:
    """The tables of `plan`, where `order` is one of its blocks in which one micro-batch alone fits."""
    capacities = [device.activation_capacity for device in plan.devices]
    position = {block: i for i, block in enumerate(order)}
    on = [sorted(blocks, key=position.__getitem__) for blocks in plan.blocks_on]
    acquiring = [sum(plan.blocks[b].memory > 0 for b in blocks) for blocks in plan.blocks_on]
    return Tables(
        duration=column(block.duration for block in plan.blocks),
        memory=column(block.memory for block in plan.blocks),
        capacity=column(UNLIMITED if c is None else c for c in capacities),
        before_row=rows(plan.predecessors),
        before=column(a for arcs in plan.predecessors for a, _ in arcs),
        before_ticks=column(plan.blocks[a].duration + lag for arcs in plan.predecessors for a, lag in arcs),
        after_row=rows(plan.successors),
        after=column(a for arcs in plan.successors for a, _ in arcs),
        after_ticks=column(lag for arcs in plan.successors for _, lag in arcs),
        place_row=rows([block.devices for block in plan.blocks]),
        place_device=column(d for block in plan.blocks for d in block.devices),
        place_block=column(b for b, block in enumerate(plan.blocks) for _ in block.devices),
        on_row=rows(on),
        on=column(b for blocks in on for b in blocks),
        guarded=np.array([n > 1 and c is not None for n, c in zip(acquiring, capacities, strict=True)], dtype=np.bool_),
    )


@lru_cache(maxsize=64)
def backwards(plan: MicroBatchPlan) -> MicroBatchPlan:
    """The plan with time reversed: dependencies turn round, and a release at its end acquires at its start.

    A schedule read from its end to its start is one of the reversed plan, with the same makespan.
    """
    return replace(
        plan,
        blocks=tuple(replace(block, memory=-block.memory) for block in plan.blocks),
        dependencies=tuple(Dependency(dep.successor, dep.predecessor, dep.lag) for dep in plan.dependencies),
    )


def column(values: Iterable[int]) -> IntColumn:
    """The values as compiled code reads them."""
    return np.array(list(values), dtype=np.int64)


def rows(lists: Sequence[Sequence[object]]) -> IntColumn:
    """Where each of the lists begins when they stand one after the other, and where the last one ends."""
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)
