"""Repetends: the repeating part of a schedule, stored as a modulo schedule."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.model.plan import MicroBatchPlan
from tessel_core.model.schedule import Schedule, SteadyState


@dataclass(frozen=True, eq=False)
class Repetend:
    """Start times of `unroll` micro-batches, which repeat every `period` ticks.

    start(b, m) = first_start[m mod unroll, b] + (m div unroll) * period   [modulo scheduling, Rau 1994]

    `first_start` is int64, shaped (unroll, blocks), read-only, and its least entry is 0.
    """

    plan: MicroBatchPlan
    period: int
    first_start: NDArray[np.int64]

    def __post_init__(self) -> None:
        starts = np.array(self.first_start, dtype=np.int64)
        if starts.ndim != 2 or not starts.shape[0] or starts.shape[1] != len(self.plan.blocks):
            raise InputError("repetend", f"first starts must be shaped (unroll, blocks), got {starts.shape}")
        if self.period < 1:
            raise InputError("repetend", f"period must be at least 1, got {self.period}")
        starts -= starts.min()
        starts.flags.writeable = False
        object.__setattr__(self, "first_start", starts)

    @property
    def unroll(self) -> int:
        """Number of micro-batches in one period."""
        return int(self.first_start.shape[0])

    @property
    def period_per_micro_batch(self) -> Fraction:
        """Ticks from one micro-batch to the next in the steady state."""
        return Fraction(self.period, self.unroll)

    @property
    def bubble_rate(self) -> float:
        """Idle share of the busiest device in the steady state: 1 - its work / period per micro-batch."""
        return float(1 - self.plan.busiest_work / self.period_per_micro_batch)

    @property
    def latency(self) -> int:
        """Ticks from the first start to the last end of the micro-batches of one period."""
        durations = np.array([block.duration for block in self.plan.blocks])
        return int((self.first_start + durations).max())

    def expand(self, micro_batches: int) -> Schedule:
        """Repeat the period for `micro_batches`. The schedule is always valid, but rarely the shortest.

        Raises InputError if `micro_batches` is less than 1.
        """
        if micro_batches < 1:
            raise InputError("micro_batches", f"must be at least 1, got {micro_batches}")
        turn, copy = np.divmod(np.arange(micro_batches), self.unroll)
        starts = self.first_start[copy] + (turn * self.period)[:, None]
        if micro_batches <= self.unroll:
            return Schedule.from_starts(self.plan, starts)
        return Schedule.from_starts(self.plan, starts, SteadyState(self.period, self.unroll, 0, micro_batches - 1))


@dataclass(frozen=True, slots=True)
class PeriodInfimum:
    """A proof that no repetend attains the least period, although repetends come as close to it as one likes.

    A repetend of U micro-batches lasts longer than U * `per_micro_batch`. If U > `micro_batches`, it lasts at least
    U * `per_micro_batch` + `excess`. All times are in ticks.
    """

    per_micro_batch: Fraction
    excess: Fraction
    micro_batches: int

    def least_period(self, unroll: int) -> int:
        """Return a lower bound on the period of a repetend of `unroll` micro-batches, in ticks."""
        whole = unroll * self.per_micro_batch
        return floor(whole) + 1 if unroll <= self.micro_batches else max(floor(whole) + 1, ceil(whole + self.excess))
