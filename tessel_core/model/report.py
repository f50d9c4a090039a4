"""What a solver says when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Generic, TypeVar

from tessel_core.control import Progress
from tessel_core.model.memory import MemoryProfile
from tessel_core.model.placement import Placement
from tessel_core.model.repetend import Repetend
from tessel_core.model.schedule import Schedule

T = TypeVar("T")


class Status(StrEnum):
    """How a solve ended.  Only `PROVED_OPTIMAL` claims that nothing is better, and only for the named objective."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, kw_only=True)
class SolveReport(Generic[T]):
    """The outcome of one solve.

    `objective` and `bound` are in the unit of `objective_name` and None where there is none; no solution is better
    than `bound`.  `relaxed_solution` breaks only the memory rule and comes with INFEASIBLE.
    `config` is the frozen dataclass that the solver was given.
    """

    status: Status
    solution: T | None = None
    relaxed_solution: T | None = None
    objective_name: str
    objective: Fraction | None = None
    bound: Fraction | None = None
    wall_s: float
    solver: str
    config: object = None
    history: tuple[Progress, ...] = ()
    reason: str = ""
    """Why there is no solution, or what limits the claim, in one sentence; empty where nothing needs saying."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, a fraction."""
        if self.objective is None or self.bound is None:
            return None
        return float((self.objective - self.bound) / self.objective) if self.objective else 0.0


@dataclass(frozen=True, kw_only=True)
class PlacementReport(SolveReport[Placement]):
    """The outcome of one placement search; with INFEASIBLE, what would do instead, where that was found."""

    least_memory: int | None = None
    """The least memory of each accelerator at which as many of them do."""
    least_accelerators: int | None = None
    """The least number of accelerators of the same memory that do."""


@dataclass(frozen=True, kw_only=True)
class ScheduleReport(SolveReport[Schedule]):
    """The outcome of one schedule search: the steady state and the makespan, each with its bound."""

    repetend: Repetend | None = None
    """The steady state that was searched; None for a schedule without one."""
    period_bound: Fraction
    """Least period per micro-batch of any schedule at any unroll."""
    makespan_bound: int
    """Least makespan of any schedule of this many micro-batches."""
    repetend_s: float | None = None
    completion_s: float | None = None
    least_capacity: int | None = None
    """With INFEASIBLE: the least `memory_capacity`, the same on every device, at which a schedule exists."""

    @property
    def drawable(self) -> Schedule | None:
        """The solution, or the schedule that does not fit where that is all there is."""
        return self.solution or self.relaxed_solution

    @property
    def period(self) -> int | None:
        """Ticks after which the steady state repeats; None where nothing repeats."""
        steady = self._steady
        return steady[0] if steady else None

    @property
    def unroll(self) -> int | None:
        """Micro-batches in one period; None where nothing repeats."""
        steady = self._steady
        return steady[1] if steady else None

    @property
    def period_per_micro_batch(self) -> Fraction | None:
        """Ticks per micro-batch in the steady state; None where nothing repeats."""
        steady = self._steady
        return Fraction(*steady) if steady else None

    @property
    def _steady(self) -> tuple[int, int] | None:
        if self.repetend is not None:
            return self.repetend.period, self.repetend.unroll
        drawn = self.drawable
        if drawn is None or drawn.repetend is None:
            return None
        return drawn.repetend.period, drawn.repetend.unroll

    @property
    def steady_bubble_rate(self) -> float | None:
        """1 - busiest device's work / period per micro-batch; None where nothing repeats."""
        drawn, period = self.drawable, self.period_per_micro_batch
        if drawn is None or period is None:
            return None
        return float(1 - drawn.plan.busiest_work / period)

    @property
    def makespan(self) -> int | None:
        drawn = self.drawable
        return None if drawn is None else drawn.makespan

    @property
    def bubble_rate(self) -> float | None:
        """Of the whole schedule: 1 - micro-batches x busiest device's work / makespan."""
        drawn = self.drawable
        return None if drawn is None else drawn.bubble_rate

    @property
    def peak_memory(self) -> tuple[int, ...] | None:
        """Most that each device holds, static memory included."""
        drawn = self.drawable
        return None if drawn is None else MemoryProfile.of(drawn).peaks
