"""Summarise busy time, idle time and memory of the devices between two moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessel_core.errors import InputError
from tessel_core.inspection.causes import Cause, idle_causes
from tessel_core.model import MemoryProfile, Schedule


@dataclass(frozen=True, slots=True)
class DeviceSpan:
    """Time of one device in an interval, in ticks. Busy and idle sum to its length, and causes sum to idle."""

    busy: int
    idle: int
    causes: dict[Cause, int]
    peak_memory: int
    """Largest memory in the span, including static memory."""


def span_of(schedule: Schedule, start: int, end: int) -> tuple[DeviceSpan, ...]:
    """Summarise [start, end) for each device.

    Raises InputError unless 0 <= start < end <= makespan.
    """
    if not 0 <= start < end <= schedule.makespan:
        raise InputError(
            "range", f"must begin before it ends and be within 0 and {schedule.makespan}, got {start} to {end}"
        )
    part, held = idle_causes(schedule).within(start, end), MemoryProfile.of(schedule)
    edges, spans = np.array([start, end]), []
    for d in range(len(schedule.plan.devices)):
        ticks = part.ticks(d)
        idle = sum(ticks.values())
        spans.append(DeviceSpan(end - start - idle, idle, ticks, int(held.most_between(d, edges)[0])))
    return tuple(spans)
