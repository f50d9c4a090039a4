"""Where devices stand idle, and in which phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tessel_core.model.schedule import Phase, Schedule


def repetend_windows(schedule: Schedule) -> tuple[tuple[int, int], ...]:
    """Per device, when its first block of the repetend starts and its last one ends; 0 and the makespan without any."""
    in_repetend = schedule.phase == Phase.REPETEND
    windows = []
    for d in range(len(schedule.plan.devices)):
        rows = schedule.runs_on(d)
        rows = rows[in_repetend[rows]]
        opens, closes = (schedule.start[rows].min(), schedule.end[rows].max()) if len(rows) else (0, schedule.makespan)
        windows.append((int(opens), int(closes)))
    return tuple(windows)


@dataclass(frozen=True, slots=True)
class BubbleBreakdown:
    """Idle ticks of each device between 0 and the makespan, split by phase.

    See `DEFINITION`.  For each device, busy + warmup + steady + cooldown = makespan.
    """

    makespan: int
    busy: tuple[int, ...]
    warmup: tuple[int, ...]
    steady: tuple[int, ...]
    cooldown: tuple[int, ...]

    DEFINITION: ClassVar[str] = (
        "A bubble is time in which a device runs nothing, from 0 to the makespan. It counts as warmup before the "
        "device's first block of the repetend starts, as cooldown after its last block of the repetend ends, and as "
        "steady in between. Where nothing repeats, warmup ends with the device's first block and cooldown begins "
        "after its last."
    )

    @classmethod
    def of(cls, schedule: Schedule) -> BubbleBreakdown:
        """The breakdown of a schedule whose runs do not overlap on a device."""
        makespan = schedule.makespan
        busy, warmup, steady, cooldown = [], [], [], []
        for d, (opens, closes) in enumerate(repetend_windows(schedule)):
            rows = schedule.runs_on(d)
            work = schedule.duration[rows]
            before = int(work[schedule.end[rows] <= opens].sum())
            after = int(work[schedule.start[rows] >= closes].sum())
            between = int(work.sum()) - before - after
            busy.append(before + between + after)
            warmup.append(opens - before)
            steady.append(closes - opens - between)
            cooldown.append(makespan - closes - after)
        return cls(makespan, tuple(busy), tuple(warmup), tuple(steady), tuple(cooldown))

    @property
    def idle_share(self) -> float:
        """Of all devices' time from 0 to the makespan, the fraction in which they run nothing."""
        return 1 - sum(self.busy) / (self.makespan * len(self.busy)) if self.makespan else 0.0

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """Ticks of each device by where they go."""
        return {"busy": self.busy, "warmup": self.warmup, "steady": self.steady, "cooldown": self.cooldown}

    def shares(self) -> dict[str, float]:
        """Of all devices' time from 0 to the makespan, the fraction that goes to each part."""
        total = max(1, self.makespan * len(self.busy))
        return {name: sum(ticks) / total for name, ticks in self.parts.items()}
