"""Reports: the outcomes of solvers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Generic, TypeVar

from tessel_core.control import Progress, gap
from tessel_core.model.memory import MemoryProfile
from tessel_core.model.placement import Placement
from tessel_core.model.repetend import Repetend
from tessel_core.model.schedule import Schedule, SteadyState
from tessel_core.shown import Shown

T = TypeVar("T")

MAKESPAN, PERIOD = "makespan", "period"
"""Objectives of schedules: the least time until all micro-batches have ended, or from one to the next."""

STOPPED = "cancelled: the best so far"
"""The reason in a report of a search that was cancelled after it had found something."""


class Status(StrEnum):
    """How a solve ended.  Only `PROVED_OPTIMAL` claims that nothing is better, and only for the named objective."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    CANCELLED = "CANCELLED"

    @property
    def label(self) -> str:
        """As tables show it: proved optimal, feasible …"""
        return self.value.replace("_", " ").lower()


@dataclass(frozen=True, kw_only=True)
class SolveReport(Shown, Generic[T]):
    """The outcome of one solve.

    `objective` and `bound` are in the unit of `objective_name` and None where there is none; no solution is better
    than `bound`.  `relaxed_solution` breaks only the memory rule and comes with INFEASIBLE.
    `config` is the frozen dataclass that the solver was given; it, the solver's name, time and history are filled in
    by who asked (`Solver.ask`).
    """

    status: Status
    solution: T | None = None
    relaxed_solution: T | None = None
    objective_name: str
    objective: Fraction | None = None
    bound: Fraction | None = None
    wall_s: float = 0.0
    solver: str = ""
    config: object = None
    history: tuple[Progress, ...] = ()
    reason: str = ""
    """Why there is no solution, or what limits the claim, in one sentence; empty where nothing needs saying."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, a fraction."""
        return gap(self.objective, self.bound)


@dataclass(frozen=True, kw_only=True)
class PlacementReport(SolveReport[Placement]):
    """The outcome of one placement search; with INFEASIBLE, what would do instead, where that was found."""

    least_memory: int | None = None
    """The least memory of each accelerator at which as many of them do."""
    least_accelerators: int | None = None
    """The least number of accelerators of the same memory that do."""


@dataclass(frozen=True, kw_only=True)
class ScheduleReport(SolveReport[Schedule]):
    """The outcome of one schedule search: the steady state and the makespan, each with its bound.

    A search for both finds the shortest and the steadiest schedule in one run; `solution` is the one of the objective
    that the report speaks of, and `about` has it speak of the other.
    """

    shortest: Schedule | None = None
    """Of least makespan; it keeps `repetend` where such a schedule is as short.  None where one schedule is all."""
    steady: Schedule | None = None
    """The shortest found that keeps `repetend`, or, where that needs more micro-batches, the steadiest that they can
    keep; None where they are too few to repeat anything."""
    repetend: Repetend | None = None
    """The steadiest state that was found, kept by `solution` or not; None for a schedule without one."""
    period_bound: Fraction
    """Least period per micro-batch of any schedule at any unroll."""
    makespan_bound: int
    """Least makespan of any schedule of this many micro-batches."""
    repetend_s: float | None = None
    completion_s: float | None = None
    least_capacity: int | None = None
    """With INFEASIBLE: the least `memory_capacity`, the same on every device, at which a schedule exists."""

    @property
    def cancelled(self) -> bool:
        """Whether somebody ended the search, with or without a solution."""
        return self.status is Status.CANCELLED or self.reason == STOPPED

    def about(self, objective_name: str) -> ScheduleReport:
        """The same answer, speaking of the makespan or of the period; itself where it can speak of one only."""
        if objective_name == self.objective_name or (self.drawable is not None and self.shortest is None):
            return self
        if objective_name == PERIOD:
            solution, objective, bound = self.steady or self.shortest, self.kept_period, self.period_bound
        else:
            makespan = None if self.shortest is None else Fraction(self.shortest.makespan)
            solution, objective, bound = self.shortest, makespan, Fraction(self.makespan_bound)
        if solution is None:
            known = None if self.status is Status.INFEASIBLE else bound
            return replace(self, objective_name=objective_name, bound=known)
        return replace(
            self,
            status=Status.PROVED_OPTIMAL if objective == bound else Status.FEASIBLE,
            solution=solution,
            objective_name=objective_name,
            objective=objective,
            bound=bound,
        )

    @property
    def steady_costs(self) -> float | None:
        """How much longer than the shortest schedule the steady one is, a fraction; None where there are not both."""
        if self.shortest is None or self.steady is None or self.shortest is self.steady:
            return None
        return self.steady.makespan / self.shortest.makespan - 1

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Every schedule that keeps the rules, each once, `solution` first."""
        known = (self.solution, self.shortest, self.steady)
        return tuple({id(each): each for each in known if each is not None}.values())

    @property
    def drawable(self) -> Schedule | None:
        """The solution, or the schedule that does not fit where that is all there is."""
        return self.solution or self.relaxed_solution

    @property
    def period(self) -> int | None:
        """Ticks after which the steady state repeats; None where nothing repeats."""
        return None if self._repeated is None else self._repeated.period

    @property
    def unroll(self) -> int | None:
        """Micro-batches in one period; None where nothing repeats."""
        return None if self._repeated is None else self._repeated.unroll

    @property
    def period_per_micro_batch(self) -> Fraction | None:
        """Ticks per micro-batch in the steady state; None where nothing repeats."""
        return None if self._repeated is None else self._repeated.period_per_micro_batch

    @property
    def kept_period(self) -> Fraction | None:
        """Ticks per micro-batch of what `steady` repeats: more than the period where that needs more micro-batches."""
        kept = None if self.steady is None else self.steady.repetend
        return self.period_per_micro_batch if kept is None else kept.period_per_micro_batch

    @property
    def _repeated(self) -> Repetend | SteadyState | None:
        return self.repetend or (self.drawable.repetend if self.drawable else None)

    @property
    def repetend_makespan(self) -> int | None:
        """Ticks until the micro-batches have ended in the schedule that keeps the steady state; None without one."""
        kept = self.steady if self.kept_period == self.period_per_micro_batch else None
        if self.steady is None and self.drawable is not None and self.drawable.repetend is not None:
            kept = self.drawable
        return None if kept is None else kept.makespan

    @property
    def steady_bubble_rate(self) -> float | None:
        """1 - busiest device's work / period per micro-batch; None where nothing repeats."""
        if self.drawable is None or self.period_per_micro_batch is None:
            return None
        return float(1 - self.drawable.plan.busiest_work / self.period_per_micro_batch)

    @property
    def makespan(self) -> int | None:
        return None if self.drawable is None else self.drawable.makespan

    @property
    def bubble_rate(self) -> float | None:
        """Of the whole schedule: 1 - micro-batches x busiest device's work / makespan."""
        return None if self.drawable is None else self.drawable.bubble_rate

    @property
    def peak_memory(self) -> tuple[int, ...] | None:
        """Most that each device holds, static memory included."""
        return None if self.drawable is None else MemoryProfile.of(self.drawable).peaks
