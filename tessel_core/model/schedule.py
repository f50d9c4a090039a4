"""When every block of every micro-batch runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tessel_core import hosting
from tessel_core.errors import InputError
from tessel_core.model.plan import MicroBatchPlan
from tessel_core.shown import Shown
from tessel_core.units import counted

IntColumn = NDArray[np.int64]

MOST_RUNS = 1_000_000
"""Blocks times micro-batches of one schedule: what fits in memory and in a file that can be read back."""


def check_size(plan: MicroBatchPlan, micro_batches: int, where: str) -> None:
    """Raise InputError for more runs than a schedule may have, naming the place where the number was given."""
    runs, most = micro_batches * len(plan.blocks), hosting.MAX_SCHEDULE_RUNS if hosting.hosted() else MOST_RUNS
    if runs > most:
        amount = f"{counted(micro_batches, 'micro-batch')} of {counted(len(plan.blocks), 'block')} are {runs:,} runs"
        raise InputError(where, f"{amount}, more than the {most:,} that a schedule may have")


class Phase(StrEnum):
    """Which part of a schedule a run belongs to."""

    WARMUP = "warmup"
    REPETEND = "repetend"
    COOLDOWN = "cooldown"

    @property
    def words(self) -> str:
        """In plain words; files and searches say repetend."""
        return "repeated stretch" if self is Phase.REPETEND else str(self)


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The stretch of a schedule that repeats.

    For every m with `first_micro_batch` <= m and m + `unroll` <= `last_micro_batch`, each block starts `period`
    ticks later for micro-batch m + `unroll` than for m.
    """

    period: int
    unroll: int
    first_micro_batch: int
    last_micro_batch: int

    @property
    def period_per_micro_batch(self) -> Fraction:
        """Ticks from one micro-batch to the next."""
        return Fraction(self.period, self.unroll)

    def __post_init__(self) -> None:
        if self.period < 1 or self.unroll < 1:
            raise InputError("repetend", f"period and unroll must be at least 1, got {self.period} and {self.unroll}")
        first, last = self.first_micro_batch, self.last_micro_batch
        if first < 0 or last < first + self.unroll:
            why = f"micro-batches {first} to {last} hold no repetition of {counted(self.unroll, 'micro-batch')}"
            raise InputError("repetend", why)


@dataclass(frozen=True, eq=False)
class Schedule(Shown):
    """A plan and the start of every run (block, micro-batch).

    The columns `block`, `micro_batch` and `start` are int64, of one length, read-only and sorted by start, then
    micro-batch, then block.  Ends, devices and kinds come from the plan, so they cannot disagree with it.
    A Schedule may break the rules: `tessel_core.rules` judges it.
    """

    plan: MicroBatchPlan
    micro_batches: int
    block: IntColumn
    micro_batch: IntColumn
    start: IntColumn
    repetend: SteadyState | None = None

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise InputError("micro_batches", f"must be at least 1, got {self.micro_batches}")
        columns = [np.array(column, dtype=np.int64) for column in (self.block, self.micro_batch, self.start)]
        if len({len(column) for column in columns}) != 1:
            raise InputError("runs", "block, micro_batch and start differ in length")
        order = np.lexsort((columns[0], columns[1], columns[2]))
        for name, column in zip(("block", "micro_batch", "start"), columns, strict=True):
            ordered = column[order]
            ordered.flags.writeable = False
            object.__setattr__(self, name, ordered)

    @classmethod
    def empty(cls, plan: MicroBatchPlan, micro_batches: int) -> Schedule:
        """Before anything runs."""
        none = np.zeros(0, dtype=np.int64)
        return cls(plan, micro_batches, none, none, none)

    @classmethod
    def from_starts(
        cls, plan: MicroBatchPlan, starts: NDArray[np.int64], repetend: SteadyState | None = None
    ) -> Schedule:
        """From a complete matrix of starts, shaped (micro-batches, blocks), shifted so that the first is 0."""
        return cls.at_starts(plan, starts - starts.min(), repetend)

    @classmethod
    def at_starts(
        cls, plan: MicroBatchPlan, starts: NDArray[np.int64], repetend: SteadyState | None = None
    ) -> Schedule:
        """As `from_starts`, not shifted."""
        micro_batches, blocks = starts.shape
        micro_batch, block = np.divmod(np.arange(starts.size), blocks)
        return cls(plan, micro_batches, block, micro_batch, starts.ravel(), repetend)

    @cached_property
    def starts(self) -> IntColumn:
        """Starts shaped (micro-batches, blocks); only a schedule that runs each exactly once has it.

        Raises ValueError where runs are missing, repeated or out of range.
        """
        matrix = np.full((self.micro_batches, len(self.plan.blocks)), -1, dtype=np.int64)
        if matrix.size == len(self.start):
            matrix[self.micro_batch, self.block] = self.start
        if (matrix < 0).any():
            raise ValueError("the schedule does not run every block of every micro-batch exactly once")
        matrix.flags.writeable = False
        return matrix

    @cached_property
    def duration(self) -> IntColumn:
        """Ticks that each run lasts."""
        return np.array([block.duration for block in self.plan.blocks], dtype=np.int64)[self.block]

    @cached_property
    def end(self) -> IntColumn:
        """Tick at which each run ends."""
        return self.start + self.duration

    @property
    def makespan(self) -> int:
        """Ticks from 0 to the end of the last run; 0 for a schedule without runs."""
        return int(self.end.max()) if len(self.end) else 0

    @property
    def time_per_micro_batch(self) -> Fraction:
        """Ticks per micro-batch: those of the period that it keeps, else makespan / micro-batches."""
        if self.repetend is None:
            return Fraction(self.makespan, self.micro_batches)
        return Fraction(self.repetend.period, self.repetend.unroll)

    @property
    def bubble_rate(self) -> float:
        """Of the whole schedule: 1 - micro-batches x busiest device's work / makespan."""
        return float(1 - Fraction(self.micro_batches * self.plan.busiest_work, self.makespan)) if self.makespan else 0.0

    @cached_property
    def repetend_windows(self) -> tuple[tuple[int, int], ...]:
        """Per device, when its first block of the repetend starts and its last one ends; 0 and the makespan without."""
        in_repetend = self.phase == Phase.REPETEND
        windows = []
        for d in range(len(self.plan.devices)):
            rows = self.runs_on(d)
            rows = rows[in_repetend[rows]]
            opens, closes = (self.start[rows].min(), self.end[rows].max()) if len(rows) else (0, self.makespan)
            windows.append((int(opens), int(closes)))
        return tuple(windows)

    def runs_on(self, device: int) -> IntColumn:
        """Row numbers of the runs on `device`, in order of start."""
        on = np.zeros(len(self.plan.blocks), dtype=bool)
        on[list(self.plan.blocks_on[device])] = True
        return np.flatnonzero(on[self.block])

    @cached_property
    def phase(self) -> NDArray[np.object_]:
        """Phase of each run: instances of the repetend that are complete, what comes before and what comes after.

        With k = first start of a block's copy div period, counted inside the steady state, run (b, m) belongs to
        instance m div unroll + k, and it completes that instance only where it starts on the beat; without a steady
        state all runs count as repetend.
        """
        number = np.ones(len(self.start), dtype=np.int64)
        if self.repetend is not None:
            instance, on_beat = self._instances()
            values, counts = np.unique(instance[on_beat], return_counts=True)
            complete = values[counts == len(self.plan.blocks) * self.repetend.unroll]
            if len(complete):
                number += (instance > complete.max()).astype(np.int64) - (instance < complete.min())
        phases: NDArray[np.object_] = np.array(list(Phase), dtype=object)[number]
        phases.flags.writeable = False
        return phases

    def _instances(self) -> tuple[IntColumn, NDArray[np.bool_]]:
        """Per run, its instance, and whether it starts when the steady state, continued to there, would start it."""
        assert self.repetend is not None
        first, unroll, period = self.repetend.first_micro_batch, self.repetend.unroll, self.repetend.period
        pattern = self.starts[first : first + unroll]
        k = (pattern - pattern.min()) // period
        turn, copy = np.divmod(self.micro_batch - first, unroll)
        instance: IntColumn = turn + k[copy, self.block]
        return instance, self.start == pattern[copy, self.block] + turn * period


def runs_in_order(schedule: Schedule) -> Iterable[tuple[int, int, int]]:
    """The runs as (block, micro-batch, start) of plain integers, in order of start."""
    return zip(schedule.block.tolist(), schedule.micro_batch.tolist(), schedule.start.tolist(), strict=True)
