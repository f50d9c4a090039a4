"""A schedule as a table for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from tessel_core.model import MemoryProfile, Schedule

COLUMNS = ("device", "block", "kind", "micro_batch", "start", "end", "phase", "memory_after")


def schedule_csv(schedule: Schedule) -> str:
    """One line a run and device, in the plan's units, ordered by device and start.

    `memory_after` is what the device holds when the run has ended, static memory included.
    """
    plan, profile = schedule.plan, MemoryProfile.of(schedule)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for d, device in enumerate(plan.devices):
        rows = schedule.runs_on(d)
        for row, after in zip(rows.tolist(), profile.after_runs(schedule, d).tolist(), strict=True):
            block = plan.blocks[schedule.block[row]]
            when = (schedule.micro_batch[row], schedule.start[row], schedule.end[row])
            writer.writerow((device.name, block.name, block.kind, *when, schedule.phase[row], after))
    return text.getvalue()
