"""A plan as flat arrays for compiled code."""

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
    """Arrays of a plan. Nested lists are flat columns with row offsets.

    Row i of `before` is `before[before_row[i]:before_row[i + 1]]`. A *place* is a (block, device) pair. The places of
    one block are consecutive. A *run* is one block of one micro-batch, with the number micro-batch · blocks + block. A
    *stop* is a run at one of its places, with the number micro-batch · places + place. Here "blocks" and "places" are
    the numbers of blocks and places in the plan.
    """

    duration: IntColumn
    """Duration of each block in ticks."""
    memory: IntColumn
    """Memory of each block, acquired at its start if positive and released at its end if negative."""
    capacity: IntColumn
    """Memory that micro-batches may use on each device, or `UNLIMITED`."""
    before_row: IntColumn
    before: IntColumn
    """Predecessors of each block."""
    before_ticks: IntColumn
    """Least ticks from the start of a predecessor to the start of the block."""
    after_row: IntColumn
    after: IntColumn
    after_ticks: IntColumn
    """Least ticks from the end of a block to the start of its successor, which is the lag."""
    place_row: IntColumn
    place_device: IntColumn
    place_block: IntColumn
    """Block of each place. `place_device` has its device.

    Block b has the places `place_row[b]` … `place_row[b + 1] - 1`.
    """
    on_row: IntColumn
    on: IntColumn
    """Blocks on each device, in an order in which one micro-batch alone fits in memory."""
    guarded: NDArray[np.bool_]
    """For each device, whether micro-batches may deadlock over its memory: several of its blocks acquire memory."""


def tables_of(plan: MicroBatchPlan, order: Sequence[int]) -> Tables:
    """Build the tables of `plan`.

    `order` lists all blocks in an order in which one micro-batch alone fits in memory.
    """
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
    """Return the plan with time reversed: dependencies change direction, and releases become acquisitions.

    A schedule read from its end to its start is a schedule of the reversed plan, with the same makespan.
    """
    return replace(
        plan,
        blocks=tuple(replace(block, memory=-block.memory) for block in plan.blocks),
        dependencies=tuple(Dependency(dep.successor, dep.predecessor, dep.lag) for dep in plan.dependencies),
    )


def column(values: Iterable[int]) -> IntColumn:
    """Return the values as an int64 array."""
    return np.array(list(values), dtype=np.int64)


def rows(lists: Sequence[Sequence[object]]) -> IntColumn:
    """Return the offset of each list in the concatenation of all lists, and the total length at the end."""
    return np.cumsum([0, *map(len, lists)], dtype=np.int64)
