"""Schedules: the start time of every block of every micro-batch."""

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

MAX_RUNS = 1_000_000
"""Largest number of runs (blocks times micro-batches) of a schedule, so that it fits in memory and in a file."""


def check_size(plan: MicroBatchPlan, micro_batches: int, where: str) -> None:
    """Raise InputError if a schedule would have too many runs. `where` names the source of `micro_batches`."""
    runs, most = micro_batches * len(plan.blocks), hosting.MAX_SCHEDULE_RUNS if hosting.hosted() else MAX_RUNS
    if runs > most:
        amount = f"{counted(micro_batches, 'micro-batch')} of {counted(len(plan.blocks), 'block')} are {runs:,} runs"
        raise InputError(where, f"{amount}, more than the {most:,} that a schedule may have")


class Phase(StrEnum):
    """Part of a schedule to which a run belongs."""

    WARMUP = "warmup"
    REPETEND = "repetend"
    COOLDOWN = "cooldown"


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The part of a schedule that repeats with a constant period.

    For each m with `first_micro_batch` <= m and m + `unroll` <= `last_micro_batch`, each block of micro-batch
    m + `unroll` starts `period` ticks after the same block of micro-batch m.
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
    """A plan and the start of every run. A run is one block of one micro-batch.

    The columns `block`, `micro_batch` and `start` are read-only int64 arrays of equal length. They are sorted by
    start, then micro-batch, then block. Ends, devices and kinds come from the plan, so they always agree with it.
    A schedule may break the rules; `tessel_core.rules` checks it.
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
        """Return a schedule without runs."""
        none = np.zeros(0, dtype=np.int64)
        return cls(plan, micro_batches, none, none, none)

    @classmethod
    def from_starts(
        cls, plan: MicroBatchPlan, starts: NDArray[np.int64], repetend: SteadyState | None = None
    ) -> Schedule:
        """Build a schedule from all starts, shaped (micro-batches, blocks), and shift them so that the first is 0."""
        return cls.at_starts(plan, starts - starts.min(), repetend)

    @classmethod
    def at_starts(
        cls, plan: MicroBatchPlan, starts: NDArray[np.int64], repetend: SteadyState | None = None
    ) -> Schedule:
        """Build a schedule from all starts, shaped (micro-batches, blocks), without a shift."""
        micro_batches, blocks = starts.shape
        micro_batch, block = np.divmod(np.arange(starts.size), blocks)
        return cls(plan, micro_batches, block, micro_batch, starts.ravel(), repetend)

    @cached_property
    def starts(self) -> IntColumn:
        """Starts, shaped (micro-batches, blocks).

        Raises ValueError unless the schedule runs every block of every micro-batch exactly once.
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
        """Duration of each run in ticks."""
        return np.array([block.duration for block in self.plan.blocks], dtype=np.int64)[self.block]

    @cached_property
    def end(self) -> IntColumn:
        """Tick at which each run ends."""
        return self.start + self.duration

    @property
    def makespan(self) -> int:
        """Ticks from 0 to the end of the last run, or 0 for a schedule without runs."""
        return int(self.end.max()) if len(self.end) else 0

    @property
    def time_per_micro_batch(self) -> Fraction:
        """Ticks per micro-batch in the steady state, or makespan / micro-batches without a steady state."""
        if self.repetend is None:
            return Fraction(self.makespan, self.micro_batches)
        return Fraction(self.repetend.period, self.repetend.unroll)

    @property
    def bubble_rate(self) -> float:
        """Idle share of the busiest device in the whole schedule: 1 - its work for all micro-batches / makespan."""
        return float(1 - Fraction(self.micro_batches * self.plan.busiest_work, self.makespan)) if self.makespan else 0.0

    @cached_property
    def repetend_windows(self) -> tuple[tuple[int, int], ...]:
        """First start and last end of the repetend's runs on each device, in ticks.

        A device without such runs has 0 and the makespan.
        """
        in_repetend = self.phase == Phase.REPETEND
        windows = []
        for d in range(len(self.plan.devices)):
            rows = self.runs_on(d)
            rows = rows[in_repetend[rows]]
            opens, closes = (self.start[rows].min(), self.end[rows].max()) if len(rows) else (0, self.makespan)
            windows.append((int(opens), int(closes)))
        return tuple(windows)

    def runs_on(self, device: int) -> IntColumn:
        """Return the row numbers of the runs on `device`, in order of start."""
        on = np.zeros(len(self.plan.blocks), dtype=bool)
        on[list(self.plan.blocks_on[device])] = True
        return np.flatnonzero(on[self.block])

    @cached_property
    def phase(self) -> NDArray[np.object_]:
        """Phase of each run. Complete instances of the repetend are the steady phase.

        Let k be the start of a block in the first period of the steady state, divided by the period and rounded down.
        Run (b, m) then belongs to instance m div unroll + k. An instance is complete if all its runs start when the
        steady state would start them. Without a steady state, all runs count as repetend.
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
        """Return the instance of the repetend to which each run belongs, and whether the run starts on time.

        A run is on time if it starts when the steady state, extended in both directions, would start it.
        """
        assert self.repetend is not None
        first, unroll, period = self.repetend.first_micro_batch, self.repetend.unroll, self.repetend.period
        pattern = self.starts[first : first + unroll]
        k = (pattern - pattern.min()) // period
        turn, copy = np.divmod(self.micro_batch - first, unroll)
        instance: IntColumn = turn + k[copy, self.block]
        return instance, self.start == pattern[copy, self.block] + turn * period


def runs_in_order(schedule: Schedule) -> Iterable[tuple[int, int, int]]:
    """Return the runs as (block, micro-batch, start), with Python integers and in order of start."""
    return zip(schedule.block.tolist(), schedule.micro_batch.tolist(), schedule.start.tolist(), strict=True)
