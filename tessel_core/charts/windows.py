"""Which part of the time a picture shows, and the parts that have names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.charts.bars import Window
from tessel_core.model import Schedule
from tessel_core.model.bubbles import repetend_windows
from tessel_core.units import many, time_scale

EVERYTHING = "Everything"
_PERIODS_SHOWN = 3
"""A close look at what repeats: enough to see that it does."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The common time axis of some schedules in one unit of time, from 0 to the last end, and its named windows."""

    longest: int
    divisor: float
    """Ticks per unit of the axis."""
    unit: str
    windows: dict[str, Window]
    """Everything, and where something repeats its warmup, repetend and cooldown."""

    @classmethod
    def of(cls, schedules: Sequence[Schedule]) -> TimeAxis:
        """The axis that holds all of `schedules`, at least one."""
        longest = max(schedule.makespan for schedule in schedules)
        divisor, unit = time_scale(longest, schedules[0].plan.time_unit)
        named = {EVERYTHING: (0, longest), **_phase_windows(schedules, longest)}
        return cls(longest, divisor, many(unit), named)

    @property
    def step(self) -> float:
        """What a slider over the whole axis moves by, in units of the axis."""
        return self.longest / self.divisor / 1_000

    def shown(self, window: Window) -> tuple[float, float]:
        """A window in units of the axis."""
        return window[0] / self.divisor, window[1] / self.divisor

    def window(self, shown: tuple[float, float]) -> Window:
        """What was chosen in units of the axis, in ticks, never empty."""
        opens = min(round(shown[0] * self.divisor), self.longest - 1)
        return opens, max(round(shown[1] * self.divisor), opens + 1)


def _phase_windows(schedules: Sequence[Schedule], longest: int) -> dict[str, Window]:
    """From the first to the last device, over all schedules that repeat, that is in this phase."""
    repeating = [schedule for schedule in schedules if schedule.repetend is not None]
    if not repeating:
        return {}
    opens = [[first for first, _ in repetend_windows(schedule)] for schedule in repeating]
    closes = [[last for _, last in repetend_windows(schedule)] for schedule in repeating]
    periods = [schedule.repetend.period for schedule in repeating if schedule.repetend is not None]
    last_shown = max(
        min(max(last), min(first) + _PERIODS_SHOWN * period)
        for first, last, period in zip(opens, closes, periods, strict=True)
    )
    found = {
        "Warmup": (0, max(map(max, opens))),
        "Repetend": (min(map(min, opens)), last_shown),
        "Cooldown": (min(map(min, closes)), longest),
    }
    return {name: window for name, window in found.items() if window[1] > window[0]}
