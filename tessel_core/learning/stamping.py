"""Levels in which the player places a block of micro-batches that repeats with a period."""

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

_SHOWN_MICRO_BATCHES = 12
"""Number of micro-batches in the picture of a repeated block."""


@dataclass(frozen=True)
class Stamping:
    """Task: place a block of a few micro-batches and choose its period.

    The player minimizes the time per micro-batch.
    """

    plan: MicroBatchPlan
    most: int
    """Largest number of micro-batches per block."""
    best: Callable[[], Repetend]
    """Function that returns an optimal block. Its period per micro-batch meets the bound."""

    @property
    def puzzle(self) -> Puzzle:
        """Board on which the player places the block."""
        return Puzzle(self.plan, self.most)

    def block_of(self, placed: Iterable[Placed], period: int) -> Repetend | None:
        """Return the block of the placed runs.

        None if runs of its micro-batches are missing. Raises InputError for a run that is not on the board, and for a
        period below 1.
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
    """Evaluation of a block that repeats forever."""

    repetend: Repetend
    reached: bool
    sentence: str

    @property
    def shown(self) -> tuple[Titled, ...]:
        """First micro-batches of the repeated block, as a schedule with a title."""
        many = counted(self.repetend.unroll, "micro-batch")
        return ((f"A block of {many}, stamped", self.repetend.expand(_SHOWN_MICRO_BATCHES)),)


def broken_by(repetend: Repetend) -> str:
    """Return the first rule that the repeated block breaks, and the place.

    Empty if the block can repeat forever. It is enough to check the length of one block and one more period. After that
    time, its copies overlap in the same way.
    """
    copies = -(-repetend.latency // repetend.period) + 1
    schedule = repetend.expand(repetend.unroll * copies)
    return next((str(each) for each in check_schedule(schedule, without=("repetend repeats",))), "")


def least_period(repetend: Repetend) -> int:
    """Return the least period in ticks with which the block can repeat, if the block alone breaks no rule."""
    return next(period for period in count(1) if not broken_by(Repetend(repetend.plan, period, repetend.first_start)))


def judge_stamp(task: Stamping, repetend: Repetend) -> Stamped:
    """Compare a block with the best block.

    Raises InputError with the broken rule and the place if the block breaks a rule.
    """
    broken = broken_by(repetend)
    if broken:
        raise InputError(f"stamped every {repetend.period}", broken)
    each, best, unit = repetend.period_per_micro_batch, task.best().period_per_micro_batch, repetend.plan.time_unit
    took = f"{counted(repetend.period, unit)} for {counted(repetend.unroll, 'micro-batch')}, {_each(each, unit)}"
    if each == best:
        assert best == period_bound(task.plan), "the best block meets the bound for all blocks"
        return Stamped(repetend, True, f"{took}. Proved: no block of any size has a shorter time per micro-batch.")
    sentence = f"{took}. {_each(best, unit)} is possible, and proved to be the shortest."
    sooner = least_period(repetend)
    if sooner < repetend.period:
        sentence += f" This block can already repeat every {counted(sooner, unit)}."
    return Stamped(repetend, False, sentence)


def _each(period: Fraction, unit: str) -> str:
    return f"{period} {many(unit)} each"


def best_line(task: Stamping) -> str:
    """Return a sentence on the best block."""
    best = task.best().period_per_micro_batch
    return f"{best} {many(task.plan.time_unit)} per micro-batch is proved optimal"


def target_of(task: Stamping) -> Schedule:
    """Return the block that the coach's hints lead to."""
    return task.best().expand(task.best().unroll)
