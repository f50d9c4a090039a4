"""How much each device holds over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.model.plan import MicroBatchPlan
from tessel_core.model.schedule import IntColumn, Schedule


@dataclass(frozen=True, eq=False)
class MemoryProfile:
    """Memory held per device as a step function of time, static memory included.

    On device d, `levels[d][i]` is held from `times[d][i]` until `times[d][i + 1]`; `times[d][0]` is 0.
    A positive block acquires at its start and a negative one releases at its end, releases first on a tie.
    """

    plan: MicroBatchPlan
    times: tuple[IntColumn, ...]
    levels: tuple[IntColumn, ...]

    @classmethod
    def of(cls, schedule: Schedule) -> MemoryProfile:
        """The profile of any schedule, legal or not."""
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
        """Most that each device holds at any time, static memory included."""
        return tuple(int(level.max()) for level in self.levels)

    @property
    def excess(self) -> tuple[int, ...]:
        """How far each device's peak is above its capacity, 0 where it fits."""
        return tuple(
            0 if device.memory_capacity is None else max(0, peak - device.memory_capacity)
            for device, peak in zip(self.plan.devices, self.peaks, strict=True)
        )

    def at(self, device: int, times: IntColumn) -> IntColumn:
        """What `device` holds at each of `times`, changes at that very tick included."""
        found = np.searchsorted(self.times[device], times, side="right") - 1
        return self.levels[device][found]

    def most_between(self, device: int, edges: IntColumn) -> IntColumn:
        """Most that `device` holds in each [edges[i], edges[i + 1]), edges increasing."""
        first = np.searchsorted(self.times[device], edges[:-1], side="right") - 1
        beyond = np.searchsorted(self.times[device], edges[1:], side="left")
        levels = np.append(self.levels[device], np.iinfo(np.int64).min)
        most: IntColumn = np.maximum.reduceat(levels, np.column_stack((first, np.maximum(beyond, first + 1))).ravel())
        return most[::2]

    def after_runs(self, schedule: Schedule, device: int, rows: IntColumn | None = None) -> IntColumn:
        """What `device` holds when each run on it, or of those in `rows`, has ended, before the next one acquires."""
        rows = schedule.runs_on(device) if rows is None else rows
        memory = np.array([block.memory for block in self.plan.blocks], dtype=np.int64)[schedule.block[rows]]
        return self.at(device, schedule.start[rows]) + np.minimum(memory, 0)
