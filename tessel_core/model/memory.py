"""Memory that each device holds over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.model.plan import MicroBatchPlan
from tessel_core.model.schedule import IntColumn, Schedule


@dataclass(frozen=True, eq=False)
class MemoryProfile:
    """Memory held per device as a step function of time, static memory included.

    On device d, `levels[d][i]` is held from `times[d][i]` until `times[d][i + 1]`; `times[d][0]` is 0.
    A block with positive memory acquires it at its start, and one with negative memory releases it at its end.
    Releases come before acquisitions at the same tick.
    """

    plan: MicroBatchPlan
    times: tuple[IntColumn, ...]
    levels: tuple[IntColumn, ...]

    @classmethod
    def of(cls, schedule: Schedule) -> MemoryProfile:
        """Compute the profile of a schedule, which may break the rules."""
        memory = np.array([block.memory for block in schedule.plan.blocks], dtype=np.int64)[schedule.block]
        when = np.where(memory > 0, schedule.start, schedule.end)
        times, levels = [], []
        for d, device in enumerate(schedule.plan.devices):
            rows = schedule.runs_on(d)
            rows = rows[memory[rows] != 0]
            rows = rows[np.lexsort((memory[rows] > 0, when[rows]))]
            at = np.concatenate(([0], when[rows]))
            level = device.static_memory + np.concatenate(([0], np.cumsum(memory[rows])))
            last_of_instant = np.append(at[1:] != at[:-1], True)
            times.append(at[last_of_instant])
            levels.append(level[last_of_instant])
        return cls(schedule.plan, tuple(times), tuple(levels))

    @property
    def peaks(self) -> tuple[int, ...]:
        """Largest memory that each device holds at any time, static memory included."""
        return tuple(int(level.max()) for level in self.levels)

    @property
    def excess(self) -> tuple[int, ...]:
        """Amount by which each device's peak exceeds its capacity, or 0 if it fits."""
        return tuple(
            0 if device.memory_capacity is None else max(0, peak - device.memory_capacity)
            for device, peak in zip(self.plan.devices, self.peaks, strict=True)
        )

    def at(self, device: int, times: IntColumn) -> IntColumn:
        """Return the memory that `device` holds at each of `times`, after the changes at that tick."""
        step = np.searchsorted(self.times[device], times, side="right") - 1
        return self.levels[device][step]

    def most_between(self, device: int, edges: IntColumn) -> IntColumn:
        """Return the largest memory that `device` holds in each interval [edges[i], edges[i + 1]).

        `edges` must increase.
        """
        first = np.searchsorted(self.times[device], edges[:-1], side="right") - 1
        beyond = np.searchsorted(self.times[device], edges[1:], side="left")
        levels = np.append(self.levels[device], np.iinfo(np.int64).min)
        most: IntColumn = np.maximum.reduceat(levels, np.column_stack((first, np.maximum(beyond, first + 1))).ravel())
        return most[::2]

    def after_runs(self, schedule: Schedule, device: int, rows: IntColumn | None = None) -> IntColumn:
        """Return the memory that `device` holds after each run on it, before the next run acquires any.

        `rows` selects some of the runs; all runs of the device are the default.
        """
        rows = schedule.runs_on(device) if rows is None else rows
        memory = np.array([block.memory for block in self.plan.blocks], dtype=np.int64)[schedule.block[rows]]
        return self.at(device, schedule.start[rows]) + np.minimum(memory, 0)
