"""A block of work that is placed by hand and stamped across: its period, judged by the modulo rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import numpy as np

from tessel_core.errors import InputError
from tessel_core.learning.coach import Placed
from tessel_core.learning.task import Puzzle, Titled
from tessel_core.model import MicroBatchPlan, Repetend, Schedule
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import period_bound
from tessel_core.units import counted, many

_SHOWN = 12
"""Micro-batches of a block that is looked at as a schedule."""


@dataclass(frozen=True)
class Stamping:
    """A block of a few micro-batches, to be placed and stamped so that the time per micro-batch is least."""

    plan: MicroBatchPlan
    most: int
    """Micro-batches that a block may have."""
    best: Callable[[], Repetend]
    """What nothing repeats sooner than: its period per micro-batch is the bound for every block."""

    @property
    def puzzle(self) -> Puzzle:
        """The board on which the block is placed."""
        return Puzzle(self.plan, self.most)

    def block_of(self, placed: Iterable[Placed], period: int) -> Repetend | None:
        """The block that the placed runs make, None while runs of its micro-batches are missing.

        Raises InputError for a run that the board does not have, and a period below 1.
        """
        blocks, starts = len(self.plan.blocks), dict[tuple[int, int], int]()
        for b, m, start in placed:
            if not (0 <= b < blocks and 0 <= m < self.most and start >= 0):
                raise InputError("block", f"has no run {b} of micro-batch {m} at {start}")
            starts[m, b] = start
        unroll = len(starts) // blocks
        if not unroll or set(starts) != {(m, b) for m in range(unroll) for b in range(blocks)}:
            return None
        rows = [[starts[m, b] for b in range(blocks)] for m in range(unroll)]
        return Repetend(self.plan, period, np.array(rows, dtype=np.int64))


@dataclass(frozen=True)
class Stamped:
    """A block that repeats for ever, against the best that is possible."""

    repetend: Repetend
    reached: bool
    sentence: str

    @property
    def shown(self) -> tuple[Titled, ...]:
        """Its first micro-batches, as a schedule with a title."""
        many = counted(self.repetend.unroll, "micro-batch")
        return ((f"A block of {many}, stamped", self.repetend.expand(_SHOWN)),)


def broken_by(repetend: Repetend) -> str:
    """The first rule that stamping breaks, and where; empty where the block may be stamped for ever.

    Its copies meet in all the ways in which they ever will within its own length and one period more.
    """
    copies = -(-repetend.latency // repetend.period) + 1
    schedule = repetend.expand(repetend.unroll * copies)
    return next((str(each) for each in check_schedule(schedule, without=("repetend repeats",))), "")


def least_period(repetend: Repetend) -> int:
    """The least number of ticks after which a block that breaks no rule itself may be stamped again."""
    return next(period for period in count(1) if not broken_by(Repetend(repetend.plan, period, repetend.first_start)))


def judge_stamp(task: Stamping, repetend: Repetend) -> Stamped:
    """The block against the best one; InputError with the rule that it breaks and the place."""
    broken = broken_by(repetend)
    if broken:
        raise InputError(f"stamped every {repetend.period}", broken)
    each, best, unit = repetend.period_per_micro_batch, task.best().period_per_micro_batch, repetend.plan.time_unit
    took = f"{counted(repetend.period, unit)} for {counted(repetend.unroll, 'micro-batch')}, {_each(each, unit)}"
    if each == best:
        assert best == period_bound(task.plan), "the best block meets the bound for all blocks"
        return Stamped(repetend, True, f"{took}: proved, no block of any size repeats sooner.")
    sentence = f"{took}. {_each(best, unit)} is possible, and proved to be the least."
    sooner = least_period(repetend)
    if sooner < repetend.period:
        sentence += f" This block may be stamped every {counted(sooner, unit)} already."
    return Stamped(repetend, False, sentence)


def _each(period: Fraction, unit: str) -> str:
    return f"{period} {many(unit)} each"


def best_line(task: Stamping) -> str:
    """What is known of the best block."""
    best = task.best().period_per_micro_batch
    return f"{best} {many(task.plan.time_unit)} per micro-batch are the least, proved"


def target_of(task: Stamping) -> Schedule:
    """The block to which the coach leads."""
    return task.best().expand(task.best().unroll)
