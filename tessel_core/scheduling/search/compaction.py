"""Shorten a schedule without changing any device's order, so that what it holds cannot grow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tessel_core.model import Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.order import run_in_order
from tessel_core.scheduling.search.difference import earliest_starts


@dataclass(frozen=True, slots=True)
class Tie:
    """Micro-batches `first` … `first + count - 1` start one `period` after the one `unroll` before them."""

    period: int
    unroll: int
    first: int
    count: int

    def bound_to(self, micro_batch: int) -> bool:
        """True where a micro-batch's starts follow from an earlier one's."""
        return self.first + self.unroll <= micro_batch < self.first + self.count

    def leader(self, micro_batch: int) -> tuple[int, int]:
        """(micro-batch that leads, ticks after it) for any micro-batch, itself and 0 where it is free."""
        if not self.bound_to(micro_batch):
            return micro_batch, 0
        turns, copy = divmod(micro_batch - self.first, self.unroll)
        return self.first + copy, turns * self.period


def compacted(schedule: Schedule) -> IntColumn:
    """Every run as early as its place in its devices' order allows; never later than before."""
    order = zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True)
    return run_in_order(schedule.plan, schedule.micro_batches, order)


def compacted_with_tie(schedule: Schedule, tie: Tie) -> IntColumn | None:
    """As `compacted`, among the schedules that make the tied stretch periodic; None where its order cannot be.

    Tied runs are their leader's variable plus a constant, so what remains is a system of difference constraints.
    Only the order of runs on each device is taken from `schedule`, whose starts may be coarse.
    """
    plan, blocks = schedule.plan, len(schedule.plan.blocks)
    leaders = [tie.leader(m) for m in range(schedule.micro_batches)]
    arcs: dict[tuple[int, int], int] = {}

    def after(early: tuple[int, int], late: tuple[int, int], ticks: int) -> None:
        """start(late) >= start(early) + ticks, written for their leaders."""
        (early_leader, early_shift), (late_leader, late_shift) = leaders[early[1]], leaders[late[1]]
        key = early_leader * blocks + early[0], late_leader * blocks + late[0]
        arcs[key] = max(arcs.get(key, -(2**62)), ticks + early_shift - late_shift)

    for m in range(schedule.micro_batches):
        for a, b, lag in plan.arcs:
            after((a, m), (b, m), plan.blocks[a].duration + lag)
    for d in range(len(plan.devices)):
        rows = schedule.runs_on(d)
        line = zip(schedule.block[rows].tolist(), schedule.micro_batch[rows].tolist(), strict=True)
        for here, there in pairwise(line):
            after(here, there, plan.blocks[here[0]].duration)
    ends = np.array(list(arcs), dtype=np.int64)
    lengths = np.array(list(arcs.values()), dtype=np.int64)
    starts, cycle = earliest_starts(schedule.micro_batches * blocks, ends[:, 0], ends[:, 1], lengths)
    if cycle is not None:
        return None
    matrix = starts.reshape(schedule.micro_batches, blocks)
    shifts = np.array([shift for _, shift in leaders], dtype=np.int64)
    found: IntColumn = matrix[[leader for leader, _ in leaders]] + shifts[:, None]
    return found
