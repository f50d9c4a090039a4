"""Measurements of a schedule that ran on real processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tessel_core.errors import InputError
from tessel_core.model.schedule import IntColumn, Schedule


@dataclass(frozen=True, slots=True)
class Expected:
    """Times and memory that an earlier run of the schedule predicts for this run, in nanoseconds and bytes."""

    block_ns: tuple[int, ...]
    """Duration of each block."""
    turn_ns: tuple[int, ...]
    """Time from each block's end to the start of the next block on its device, if only the device keeps it waiting."""
    lag_ns: tuple[int, ...]
    """Lag of each dependency of the plan."""
    peak_bytes: tuple[int, ...]
    """Peak of each device."""


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """Start and end of each run on real processes, in nanoseconds since their common start."""

    schedule: Schedule
    engine: str
    """Name of the engine that ran the blocks."""
    start_ns: tuple[tuple[int, ...], ...]
    """Start of each run on each device of its block. Runs are in the order of the schedule's columns."""
    end_ns: tuple[tuple[int, ...], ...]
    peak_bytes: tuple[int, ...]
    """Peak bytes that the blocks of each device held."""
    losses: tuple[float, ...] = ()
    """Loss of each micro-batch if the blocks trained a network, else empty."""
    equal: bool | None = None
    """Whether the results equal those of the same computation in a single process.

    None if there were no results to compare.
    """
    difference: float | None = None
    """Largest relative difference of a tensor: max |a - b| / max |b|, where b is the result of a single process.

    None if nothing was compared or a tensor is missing.
    """
    tick_ns: float | None = None
    """Nanoseconds per unit of the plan's time, if stand-ins ran instead of the real blocks."""
    unit_bytes: float | None = None
    """Bytes per unit of the plan's memory, if stand-ins ran instead of the real blocks."""
    expected: Expected | None = None
    """Prediction from a run just before this one, or None if there was none."""

    def __post_init__(self) -> None:
        runs, devices = len(self.schedule.start), len(self.schedule.plan.devices)
        for name, column, wanted in (
            ("start_ns", self.start_ns, runs),
            ("end_ns", self.end_ns, runs),
            ("peak_bytes", self.peak_bytes, devices),
        ):
            if len(column) != wanted:
                raise InputError(name, f"has {len(column)} entries, but must have {wanted}")
        self._check_expected()
        blocks = self.schedule.plan.blocks
        for row, b in enumerate(self.schedule.block.tolist()):
            starts, ends = self.start_ns[row], self.end_ns[row]
            wanted = len(blocks[b].devices)
            for name, times in (("start", starts), ("end", ends)):
                if len(times) != wanted:
                    raise InputError(f"{name}_ns[{row}]", f"has {len(times)} of {wanted} {name}s")
            if any(end < start for start, end in zip(starts, ends, strict=True)):
                raise InputError(f"end_ns[{row}]", "is before the run's start")

    def _check_expected(self) -> None:
        plan = self.schedule.plan
        counts = len(plan.blocks), len(plan.blocks), len(plan.dependencies), len(plan.devices)
        for name, count in zip(Expected.__slots__, counts, strict=True):
            entries = count if self.expected is None else len(getattr(self.expected, name))
            if entries != count:
                raise InputError(f"expected, {name}", f"has {entries} entries, but must have {count}")

    @cached_property
    def start(self) -> IntColumn:
        """Time at which each run had started on all of its devices."""
        return np.array([max(each) for each in self.start_ns], dtype=np.int64)

    @cached_property
    def end(self) -> IntColumn:
        """Time at which each run had ended on all of its devices."""
        return np.array([max(each) for each in self.end_ns], dtype=np.int64)

    @property
    def makespan_ns(self) -> int:
        """Time from the common start to the end of the last run."""
        return int(self.end.max()) if len(self.end) else 0

    def on(self, device: int) -> tuple[IntColumn, IntColumn, IntColumn]:
        """Return rows, starts and ends of the runs of a device, in the order of the schedule."""
        rows = self.schedule.runs_on(device)
        places = [self.schedule.plan.blocks[b].devices.index(device) for b in self.schedule.block[rows].tolist()]
        start, end = (
            np.array([column[row][place] for row, place in zip(rows.tolist(), places, strict=True)], dtype=np.int64)
            for column in (self.start_ns, self.end_ns)
        )
        return rows, start, end

    @property
    def idle(self) -> tuple[float, ...]:
        """Share of the makespan in which each device runs nothing."""
        length = max(1, self.makespan_ns)
        on = (self.on(device) for device in range(len(self.schedule.plan.devices)))
        return tuple(1 - int((end - start).sum()) / length for _, start, end in on)

    @property
    def block_ns(self) -> tuple[int, ...]:
        """Median duration of each block's runs, counted from the moment at which all of its devices had started."""
        lasting, block = np.maximum(0, self.end - self.start), self.schedule.block
        return tuple(int(np.median(lasting[block == b])) for b in range(len(self.schedule.plan.blocks)))
