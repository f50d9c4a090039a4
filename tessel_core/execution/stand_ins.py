"""How long blocks that stand in for real ones last, and what they hold: what the plan says, at a scale."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.model import MemoryProfile, Schedule
from tessel_core.units import TICKS_PER_SECOND

SLEEP, COMPUTE = "sleep", "compute"
_SHORTEST_NS = 5_000_000
"""What the shortest block lasts if nobody says otherwise, unless the run would last longer than this:"""
_LONGEST_NS = 60_000_000_000
_MOST_HELD = 8 << 20
"""Bytes that the device which holds most holds at its peak; a unit of memory is no more than a real one's."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What the plan's units are in a run."""

    time: Fraction
    """Nanoseconds."""
    memory: Fraction
    """Bytes."""

    @classmethod
    def of(cls, schedule: Schedule, time: Fraction | None = None) -> Scale:
        """As said, else so that the shortest block lasts 5 ms, or less where the run would take above a minute."""
        if time is None:
            shortest = min(block.duration for block in schedule.plan.blocks)
            time = min(Fraction(_SHORTEST_NS, shortest), Fraction(_LONGEST_NS, schedule.makespan))
        most = max(1, *MemoryProfile.of(schedule).peaks)
        one = Fraction(1) if schedule.plan.memory_unit == "B" else Fraction(_MOST_HELD)
        memory = min(one, Fraction(_MOST_HELD, most))
        return cls(time, Fraction(int(memory)) if memory > 1 else memory)


@dataclass(frozen=True, slots=True)
class StandIns:
    """What the blocks of a schedule's program do on every rank: sleep or compute, at a scale."""

    does: str
    ns_per_second: float
    """Of the program's seconds."""
    memory: Fraction
    """Bytes that stand for one of the program's."""

    @classmethod
    def of(cls, schedule: Schedule, scale: Scale, does: str) -> StandIns:
        """Those of a schedule at a scale of its plan's units."""
        per_second = TICKS_PER_SECOND.get(schedule.plan.time_unit, 1.0)
        return cls(does, float(scale.time * Fraction(per_second)), scale.memory)
