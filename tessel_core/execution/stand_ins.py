"""Duration and memory of stand-ins, which run instead of the real blocks of a plan.

A scale converts the plan's units.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import TICKS_PER_SECOND

SLEEP, COMPUTE = "sleep", "compute"
_SHORTEST_BLOCK_NS = 5_000_000
"""Default duration of the shortest block, unless the run would take longer than `_MAX_RUN_NS`."""
_MAX_RUN_NS = 60_000_000_000
_MAX_PEAK_BYTES = 8 << 20
"""Peak bytes of the fullest device in a run. Plans in bytes are never scaled up."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Nanoseconds and bytes of a run that correspond to one unit of the plan."""

    time: Fraction
    """Nanoseconds per time unit."""
    memory: Fraction
    """Bytes per memory unit."""

    @classmethod
    def of(cls, schedule: Schedule, time: Fraction | None = None) -> Scale:
        """Return the scale with the given time, or a default time.

        By default the shortest block takes 5 ms, or less if the run would take more than a minute.
        """
        if time is None:
            shortest = min(block.duration for block in schedule.plan.blocks)
            time = min(Fraction(_SHORTEST_BLOCK_NS, shortest), Fraction(_MAX_RUN_NS, schedule.makespan))
        most = max(1, *MemoryProfile.of(schedule).peaks)
        one = Fraction(1) if schedule.plan.memory_unit == "B" else Fraction(_MAX_PEAK_BYTES)
        memory = min(one, Fraction(_MAX_PEAK_BYTES, most))
        return cls(time, Fraction(int(memory)) if memory > 1 else memory)


@dataclass(frozen=True, slots=True)
class StandIns:
    """Behaviour of stand-ins on every rank."""

    does: str
    """`SLEEP` or `COMPUTE`."""
    ns_per_second: float
    """Nanoseconds of the run per second of the program."""
    memory: Fraction
    """Bytes of the run per byte of the program."""

    @classmethod
    def of(cls, schedule: Schedule, scale: Scale, does: str) -> StandIns:
        """Return the stand-ins of a schedule at a scale of its plan's units."""
        per_second = TICKS_PER_SECOND.get(schedule.plan.time_unit, 1.0)
        return cls(does, float(scale.time * Fraction(per_second)), scale.memory)
