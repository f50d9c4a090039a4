"""Costs as whole ticks of the CP-SAT model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tessel_core.placement.latency.split import LatencyTask

TICKS = 10**12
"""The best latency known, in ticks: a sum of a thousand costs is then off by a billionth at most."""


@dataclass(frozen=True)
class Ticks:
    """Costs as the model counts them, rounded down."""

    task: LatencyTask
    per_unit: float
    """Ticks in one of the graph's time units."""

    def of(self, time: float) -> int:
        return math.floor(time * self.per_unit)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per operator, moving its output over the fastest link."""
        return tuple(map(self.of, self.task.moved))
