"""How much devices stand idle, and how much of it another order could remove."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tessel_core.errors import InputError
from tessel_core.inspection.moments import repeated_memory, steadiest
from tessel_core.model import MemoryProfile, Repetend, Schedule, ScheduleReport

BUSY = "busy"
PARTS = (BUSY, "imbalance", "unavoidable", "open", "bubble")
"""Where the time of all devices goes, by what could change it; together 1."""


@dataclass(frozen=True, slots=True)
class IdleSplit:
    """Idle time as exact fractions of the time of all devices, of a schedule, its steady state or a program alike.

    idle = imbalance + bubble, and bubble = unavoidable + open.  Another order of the same placement removes at most
    `open`; imbalance and `unavoidable` need another placement, more memory or another mesh.
    """

    work: tuple[int, ...]
    """Busy ticks per device: of all micro-batches, or of one in the steady state."""
    length: Fraction
    """Ticks: the makespan, or the period per micro-batch."""
    bound: Fraction | None = None
    """The least length that any order can have; None where none is known, as of programs, and where the schedule
    exceeds the capacity that bounds count with."""

    @classmethod
    def of(cls, schedule: Schedule, bound: Fraction | int | None = None) -> IdleSplit:
        """Of a whole schedule, from 0 to the makespan.

        `bound` is a proved bound on the makespan of any schedule of this plan and as many micro-batches.  Raises
        InputError where the schedule fits its memory and yet is shorter than that.
        """
        work = tuple(schedule.micro_batches * ticks for ticks in schedule.plan.work)
        fits = not any(MemoryProfile.of(schedule).excess)
        return cls(work, Fraction(schedule.makespan), _bound(work, Fraction(schedule.makespan), bound, fits))

    @classmethod
    def of_steady(cls, repetend: Repetend, bound: Fraction | int | None = None) -> IdleSplit:
        """Of the infinite repetition, in which nothing is warmup or cooldown.

        `bound` is a proved bound on the period per micro-batch, at any unroll; errors as for `of`.
        """
        work, length = repetend.plan.work, repetend.period_per_micro_batch
        fits = not any(repeated_memory(repetend).excess)
        return cls(work, length, _bound(work, length, bound, fits))

    @classmethod
    def of_report(cls, report: ScheduleReport) -> tuple[IdleSplit | None, IdleSplit | None]:
        """Of the schedule that the report draws, and of the steadiest state, kept by that schedule or not.

        Each is None where there is none.
        """
        drawn, steady = report.drawable, steadiest(report)
        return (
            None if drawn is None else cls.of(drawn, report.makespan_bound),
            None if steady is None else cls.of_steady(steady, report.period_bound),
        )

    @property
    def parts(self) -> dict[str, Fraction]:
        """The share of busy time and those of idle time, by `PARTS`; the bubble is one part without a bound."""
        zero = Fraction(0)
        bubble = (self.unavoidable or zero, self.open or zero, self.bubble if self.bound is None else zero)
        return dict(zip(PARTS, (1 - self.idle, self.imbalance, *bubble), strict=True))

    @property
    def busiest(self) -> tuple[int, ...]:
        """The devices of most work, which limit every order."""
        return tuple(d for d, ticks in enumerate(self.work) if ticks == max(self.work))

    @property
    def idle(self) -> Fraction:
        """1 - mean work / length."""
        return self._share(self.length - self._mean)

    @property
    def imbalance(self) -> Fraction:
        """(most work - mean work) / length: what devices with less to do than the busiest must stand idle."""
        return self._share(max(self.work) - self._mean)

    @property
    def bubble(self) -> Fraction:
        """1 - most work / length: what even the busiest device stands idle."""
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
    """The larger of the proved bound and the busiest device's work."""
    if not fits:
        return None
    bound = Fraction(max(work) if proved is None else max(*work, proved))
    if bound > length:
        raise InputError("bound", f"is {bound}, more than the length of {length} that the schedule has")
    return bound
