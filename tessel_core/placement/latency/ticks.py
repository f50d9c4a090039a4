"""Costs as whole ticks of the CP-SAT model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tessel_core.placement.latency.split import LatencyTask

TICKS = 10**12
"""The best latency known, in ticks: a sum of a thousand costs is then off by a billionth at most."""


_MOST = 4.0
"""Of the best latency known: more than a part of a better split can take."""


@dataclass(frozen=True)
class Ticks:
    """Costs as the model counts them, rounded down."""

    task: LatencyTask
    whole: float
    """How long `TICKS` last, in the graph's time unit."""

    def of(self, time: float) -> int:
        """Times that no split of interest takes are all one: sums of them stay within what CP-SAT counts."""
        return math.floor(min(time / self.whole, _MOST) * TICKS)

    def time(self, ticks: float) -> float:
        """In the graph's unit."""
        return ticks / TICKS * self.whole

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per operator, moving its output over the fastest link."""
        return tuple(map(self.of, self.task.moved))
