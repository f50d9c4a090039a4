"""Split idle time by what could remove it: another order, or another placement."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.errors import InputError
from tessel_core.inspection.moments import repeated_memory, steadiest
from tessel_core.model import MemoryProfile, Repetend, Schedule, ScheduleReport

BUSY = "busy"
PARTS = (BUSY, "imbalance", "unavoidable", "open", "bubble")
"""Parts into which the time of all devices is divided. Their shares sum to 1."""


@dataclass(frozen=True, slots=True)
class IdleSplit:
    """Idle time of a schedule, a steady state or a program, as exact fractions of the time of all devices.

    idle = imbalance + bubble, and bubble = unavoidable + open.  Another order of the same placement removes at most
    `open`; imbalance and `unavoidable` need another placement, more memory or another mesh.
    """

    work: tuple[int, ...]
    """Busy ticks per device: for all micro-batches, or for one micro-batch in the steady state."""
    length: Fraction
    """Length in ticks: the makespan, or the period per micro-batch."""
    bound: Fraction | None = None
    """Lower bound on the length of any order; None for programs, and for schedules that exceed the memory capacity that
    bounds assume."""

    @classmethod
    def of(cls, schedule: Schedule, bound: Fraction | int | None = None) -> IdleSplit:
        """Split the idle time of a whole schedule, from 0 to the makespan.

        `bound` is a proved lower bound on the makespan of this plan with the same number of micro-batches. Raises
        InputError if the schedule fits its memory and is shorter than the bound.
        """
        work = tuple(schedule.micro_batches * ticks for ticks in schedule.plan.work)
        fits = not any(MemoryProfile.of(schedule).excess)
        return cls(work, Fraction(schedule.makespan), _bound(work, Fraction(schedule.makespan), bound, fits))

    @classmethod
    def of_steady(cls, repetend: Repetend, bound: Fraction | int | None = None) -> IdleSplit:
        """Split the idle time of the infinite repetition, which has no warmup or cooldown.

        `bound` is a proved lower bound on the period per micro-batch for any unroll.  Raises InputError as `of` does.
        """
        work, length = repetend.plan.work, repetend.period_per_micro_batch
        fits = not any(repeated_memory(repetend).excess)
        return cls(work, length, _bound(work, length, bound, fits))

    @classmethod
    def of_report(cls, report: ScheduleReport) -> tuple[IdleSplit | None, IdleSplit | None]:
        """Split the idle time of the schedule of a report, and of its steady state with the least period.

        A missing one gives None. The schedule need not contain that steady state.
        """
        drawn, steady = report.drawable, steadiest(report)
        return (
            None if drawn is None else cls.of(drawn, report.makespan_bound),
            None if steady is None else cls.of_steady(steady, report.period_bound),
        )

    @property
    def parts(self) -> dict[str, Fraction]:
        """Shares by `PARTS`. Without a bound, the bubble is one part; with a bound, it is split into two."""
        zero = Fraction(0)
        bubble = (self.unavoidable or zero, self.open or zero, self.bubble if self.bound is None else zero)
        return dict(zip(PARTS, (1 - self.idle, self.imbalance, *bubble), strict=True))

    @property
    def busiest(self) -> tuple[int, ...]:
        """Devices with the most work, which limit every order."""
        return tuple(d for d, ticks in enumerate(self.work) if ticks == max(self.work))

    @property
    def idle(self) -> Fraction:
        """1 - mean work / length."""
        return self._share(self.length - self._mean)

    @property
    def imbalance(self) -> Fraction:
        """(most work - mean work) / length: idle time because other devices have less work than the busiest."""
        return self._share(max(self.work) - self._mean)

    @property
    def bubble(self) -> Fraction:
        """1 - most work / length: idle time of the busiest device."""
        return self._share(self.length - max(self.work))

    @property
    def unavoidable(self) -> Fraction | None:
        """(bound - most work) / length: the part of the bubble that no order removes; None without a bound."""
        return None if self.bound is None else self._share(self.bound - max(self.work))

    @property
    def open(self) -> Fraction | None:
        """(length - bound) / length: the most that another order could remove; None without a bound."""
        return None if self.bound is None else self._share(self.length - self.bound)

    @property
    def _mean(self) -> Fraction:
        return Fraction(sum(self.work), len(self.work))

    def _share(self, ticks: Fraction | int) -> Fraction:
        return ticks / self.length if self.length else Fraction(0)


def _bound(work: tuple[int, ...], length: Fraction, proved: Fraction | int | None, fits: bool) -> Fraction | None:
    """Return a lower bound on the length in ticks, or None if the schedule exceeds the memory capacity.

    It is the proved bound or the work of the busiest device, whichever is larger.
    """
    if not fits:
        return None
    bound = Fraction(max(work) if proved is None else max(*work, proved))
    if bound > length:
        raise InputError("bound", f"is {bound}, which is more than the length of the schedule, {length}")
    return bound
