"""Blocks that stand in for real ones: they last and hold what the plan says, at a scale, and compute nothing of use.

What goes along a dependency is the moment at which its block ended, so that the block behind it waits out the lag.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tessel_core.execution.rank_process import Rank
from tessel_core.execution.walk import Order, Walked, sleep_until, walk
from tessel_core.model import MemoryProfile, Schedule

SLEEP, COMPUTE = "sleep", "compute"
_SHORTEST_NS = 5_000_000
"""What the shortest block lasts if nobody says otherwise, unless the run would last longer than this:"""
_LONGEST_NS = 60_000_000_000
_MOST_HELD = 8 << 20
"""Bytes that the device which holds most holds at its peak; a unit of memory is no more than a real one's."""
_SIDE = 64
"""Of the matrices that blocks compute with while they last."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What the plan's units are in a run."""

    time: Fraction
    """Nanoseconds."""
    memory: Fraction
    """Bytes."""

    @classmethod
    def of(cls, schedule: Schedule, time: Fraction | None = None) -> Scale:
        """As said, else so that the shortest block lasts 5 ms, or less where the run would take above a minute."""
        if time is None:
            shortest = min(block.duration for block in schedule.plan.blocks)
            time = min(Fraction(_SHORTEST_NS, shortest), Fraction(_LONGEST_NS, schedule.makespan))
        most = max(1, *MemoryProfile.of(schedule).peaks)
        one = Fraction(1) if schedule.plan.memory_unit == "B" else Fraction(_MOST_HELD)
        return cls(time, min(one, Fraction(_MOST_HELD, most)))


@dataclass(frozen=True, slots=True)
class StandInOrder:
    """What one rank does, and what its blocks do meanwhile: sleep or compute."""

    order: Order
    scale: Scale
    does: str


class StandIns:
    """The blocks of a plan on one rank, as stand-ins."""

    def __init__(self, rank: Rank, asked: StandInOrder) -> None:
        import torch

        self.torch, self.rank, self.plan, self.scale = torch, rank, asked.order.plan, asked.scale
        plan = self.plan
        self.computes = asked.does == COMPUTE
        self.matrix = torch.full((_SIDE, _SIDE), 1 / _SIDE, device=rank.device)
        self.outgoing = [
            [a for a, (before, _, _) in enumerate(plan.arcs) if before == b] for b in range(len(plan.blocks))
        ]
        self.lasting = [int(block.duration * asked.scale.time) for block in plan.blocks]
        self.lags = [int(lag * asked.scale.time) for _, _, lag in plan.arcs]
        self.units, self.store = 0, list[Any]()
        self.held = 0
        self._hold(plan.devices[rank.number].static_memory)

    def buffer(self, arc: int) -> Any:
        return self.torch.empty(1, dtype=self.torch.int64, device=self.rank.device)

    def wait(self, arc: int, micro_batch: int, carried: Any) -> None:
        sleep_until(int(carried.item()) + self.lags[arc])

    def run(self, block: int, micro_batch: int, taken: dict[int, Any]) -> tuple[int, dict[int, Any]]:
        """Sleep or compute as long as the block lasts, and hold its memory from its start or until its end."""
        until, memory = time.monotonic_ns() + self.lasting[block], self.plan.blocks[block].memory
        self._hold(max(0, memory))
        if self.computes:
            while time.monotonic_ns() < until:
                self.matrix = self.matrix @ self.matrix
                self.rank.settle()
        else:
            sleep_until(until)
        self._hold(min(0, memory))
        end = time.monotonic_ns()
        return end, dict.fromkeys(self.outgoing[block], self.torch.tensor([end], device=self.rank.device))

    def _hold(self, more: int) -> None:
        """So many units of memory more or less, in bytes that are there and were written."""
        self.units += more
        wanted = int(self.units * self.scale.memory)
        while self.held > wanted:
            self.held -= self.store.pop().size
        if self.held < wanted:
            self.store.append(np.ones(wanted - self.held, dtype=np.uint8))
            self.held = wanted

    def result(self) -> None:
        return None


def run_stand_ins(rank: Rank, asked: StandInOrder) -> Walked:
    """Work of a rank: its blocks, each for as long as it lasts."""
    return walk(rank, asked.order, StandIns(rank, asked))
