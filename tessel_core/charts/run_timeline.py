"""Prepare measured and predicted runs of a schedule for the timeline, in nanoseconds on one axis.

As in a simulation, a run has separate times on each device. Only the peak of memory is known, so there are no memory
lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessel_core.charts.timeline import block_entry, chunks_of, colours_of, framed, heights, narrow, title_of
from tessel_core.model import MeasuredRun, Schedule
from tessel_core.model.schedule import IntColumn


@dataclass(frozen=True, eq=False)
class Laid:
    """Times of all runs. It has one row for each run and device, in order of start."""

    title: str
    schedule: Schedule
    """Schedule of the runs. Its plan names blocks and devices."""
    run: IntColumn
    """Row number of the run in the schedule."""
    device: IntColumn
    start: IntColumn
    """Start in nanoseconds."""
    end: IntColumn
    past: bool = False
    """Whether the runs are drawn pale, because newer ones are being computed."""

    @classmethod
    def of(
        cls, title: str, schedule: Schedule, rows: Sequence[tuple[int, int, int, int]], *, past: bool = False
    ) -> Laid:
        """Build the columns from rows (row of the schedule, device, start, end) in any order."""
        table = np.array(sorted(rows, key=lambda row: row[2]), dtype=np.int64).reshape(-1, 4)
        run, device, start, end = (np.ascontiguousarray(column) for column in table.T)
        return cls(title, schedule, run, device, start, end, past)

    @classmethod
    def planned(cls, title: str, schedule: Schedule, tick_ns: float, lasting_ns: Sequence[float] | None = None) -> Laid:
        """Build the columns from a schedule's starts, scaled to nanoseconds.

        Durations are those of the plan, or `lasting_ns`.
        """
        if lasting_ns is None:
            lasting_ns = [block.duration * tick_ns for block in schedule.plan.blocks]
        rows = [
            (row, device, round(start * tick_ns), round(start * tick_ns + lasting_ns[b]))
            for row, (b, start) in enumerate(zip(schedule.block.tolist(), schedule.start.tolist(), strict=True))
            for device in schedule.plan.blocks[b].devices
        ]
        return cls.of(title, schedule, rows)

    @classmethod
    def measured(cls, title: str, run: MeasuredRun) -> Laid:
        """Build the columns from a measured run."""
        plan, schedule = run.schedule.plan, run.schedule
        rows = [
            (row, device, start, end)
            for row, b in enumerate(schedule.block.tolist())
            for device, start, end in zip(plan.blocks[b].devices, run.start_ns[row], run.end_ns[row], strict=True)
        ]
        return cls.of(title, schedule, rows)


def run_data(shown: Sequence[Laid]) -> bytes:
    """Return the data of the runs for the timeline, which draws them below each other."""
    return b"".join(_frame(each, len(shown)) for each in shown)


def _frame(laid: Laid, count: int) -> bytes:
    schedule, plan = laid.schedule, laid.schedule.plan
    block, micro_batch = schedule.block[laid.run], schedule.micro_batch[laid.run]
    lasts, duration = np.unique(laid.end - laid.start, return_inverse=True)
    empty = np.empty(0, np.int64)
    columns: dict[str, NDArray[Any]] = {
        "block": narrow(block),
        "micro_batch": narrow(micro_batch),
        "operation": narrow(laid.run),
        "lane": narrow(laid.device),
        "start": narrow(np.diff(laid.start, prepend=0)),
        "duration": narrow(duration.astype(np.int64)),
        "memory_time": narrow(empty),
        "memory_held": empty.astype(np.float32),
    }
    names = [device.name for device in plan.devices]
    header = {
        "devices": [{"name": name, "capacity": None, "static": 0, "steps": 0} for name in names],
        "lanes": [{"name": name, "device": d, "communicates": False} for d, name in enumerate(names)],
        "blocks": [
            block_entry(each.name, each.kind, chunk) | title_of(each)
            for each, chunk in zip(plan.blocks, chunks_of(plan), strict=True)
        ],
        "durations": lasts.tolist(),
        "dependencies": [],
        "operations": len(schedule.start),
        "microBatches": schedule.micro_batches,
        "makespan": int(laid.end.max(initial=1)),
        "timeUnit": "ns",
        "memoryUnit": "B",
        "measured": True,
        "steady": None,
        "misfit": "",
        **colours_of(),
    }
    look = {"title": laid.title, **heights(len(names), len(names), count, memory=False)}
    return framed(header, columns, look | ({"past": True} if laid.past else {}))
