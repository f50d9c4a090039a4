"""What is told about one run of a schedule beside what the timeline knows by itself."""

from __future__ import annotations

from tessel_core.model import Schedule
from tessel_core.units import show_time

Lines = tuple[tuple[str, str], ...]
"""Names, and what there is to say under each."""


def about_run(schedule: Schedule, block: int, micro_batch: int) -> Lines:
    """Of the run of a block; nothing where the schedule has no such run."""
    if not (0 <= block < len(schedule.plan.blocks) and 0 <= micro_batch < schedule.micro_batches):
        return ()
    starts = schedule.starts
    durations = [each.duration for each in schedule.plan.blocks]
    flights = (starts + durations).max(axis=1) - starts.min(axis=1)
    unit = schedule.plan.time_unit
    mean = show_time(round(float(flights.mean()), 2), unit)
    took = show_time(int(flights[micro_batch]), unit)
    return ((f"Micro-batch {micro_batch}", f"takes {took} from its first block to its last; the mean is {mean}."),)
