"""An export: the makespan and the work of each device as a table in Markdown."""

from __future__ import annotations

from tessel_core.exports import Export
from tessel_core.model import Schedule, ScheduleReport


def write(schedule: Schedule, report: ScheduleReport) -> bytes:
    """Write one row for each device."""
    plan = schedule.plan
    rows = [
        f"| {device.name} | {schedule.micro_batches * work} | {schedule.makespan} |"
        for device, work in zip(plan.devices, plan.work, strict=True)
    ]
    head = f"| device | busy ({plan.time_unit}) | makespan ({plan.time_unit}) |"
    return "\n".join([head, "|---|---|---|", *rows, ""]).encode()


MARKDOWN = Export("markdown", "Markdown table", "for notes and pull requests", ".md", "text/markdown", write)
