"""Reports: the solution of a solver, with its bound and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Generic, TypeVar

from tessel_core.control import Progress, gap
from tessel_core.model.memory import MemoryProfile
from tessel_core.model.placement import Placement
from tessel_core.model.repetend import PeriodInfimum, Repetend
from tessel_core.model.schedule import Schedule, SteadyState
from tessel_core.shown import Shown

T = TypeVar("T")

MAKESPAN, PERIOD = "makespan", "period"
"""Names of the objectives of schedules: the time until all micro-batches have ended, and the time after which the
schedule repeats.
"""

STOPPED = "cancelled: the best so far"
"""The `reason` in the report of a search that was cancelled after it had found a solution."""


class Status(StrEnum):
    """Outcome of a search. Only `PROVED_OPTIMAL` claims that nothing is better, and only for the named objective."""

    PROVED_OPTIMAL = "PROVED_OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    NOTHING_FOUND = "NOTHING_FOUND"
    CANCELLED = "CANCELLED"

    @property
    def label(self) -> str:
        """The status as tables show it, such as "proved optimal"."""
        return self.value.replace("_", " ").lower()


@dataclass(frozen=True, kw_only=True)
class SolveReport(Shown, Generic[T]):
    """The result of one search.

    `objective` and `bound` are in the unit of `objective_name`, or None. No solution is better than `bound`. If the
    status is INFEASIBLE, `relaxed_solution` may give a solution that breaks only the memory rule. `Solver.ask` fills in
    the config (the solver's frozen dataclass of options), the solver's name, the time and the history.
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
    """A sentence that says why there is no solution, or why the solution may not be optimal. May be empty."""

    @property
    def gap(self) -> float | None:
        """(objective - bound) / objective, as a fraction."""
        return gap(self.objective, self.bound)


@dataclass(frozen=True, kw_only=True)
class PlacementReport(SolveReport[Placement]):
    """The result of a placement search. If no placement exists, it may give the devices that would be enough."""

    least_memory: int | None = None
    """Least memory per accelerator, in bytes, at which this number of accelerators is enough."""
    least_accelerators: int | None = None
    """Least number of accelerators with the given memory that is enough."""


@dataclass(frozen=True, kw_only=True)
class ScheduleReport(SolveReport[Schedule]):
    """The result of a schedule search: the steady state and the makespan, each with its bound.

    One search may return two schedules: the one with the least makespan and the one with the least period. `solution`
    is the schedule of `objective_name`, and `about` returns the report for the other objective.
    """

    shortest: Schedule | None = None
    """Schedule of least makespan.

    If several are equally short, one that repeats `repetend` is preferred. None if the search returned a single
    schedule.
    """
    steady: Schedule | None = None
    """Shortest schedule found that repeats `repetend`.

    If `repetend` needs more micro-batches than the schedule has, a schedule with the shortest period that fits. None if
    there are too few micro-batches for any repetition.
    """
    repetend: Repetend | None = None
    """Repetend with the shortest period found. `solution` need not repeat it. None if no repetend was found."""
    period_bound: Fraction
    """Lower bound on the period per micro-batch of any schedule at any unroll."""
    period_infimum: PeriodInfimum | None = None
    """Proof that no repetend attains `period_bound`, although repetends come as close to it as one likes, or None."""
    makespan_bound: int
    """Lower bound on the makespan of any schedule of this many micro-batches."""
    repetend_s: float | None = None
    completion_s: float | None = None
    least_capacity: int | None = None
    """If the status is INFEASIBLE: the least `memory_capacity`, the same on every device, at which a schedule exists.
    """

    @property
    def cancelled(self) -> bool:
        """Whether the search was cancelled, with or without a solution."""
        return self.status is Status.CANCELLED or self.reason == STOPPED

    def about(self, objective_name: str) -> ScheduleReport:
        """Return the report for the given objective, MAKESPAN or PERIOD. A report on one schedule returns itself."""
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
        """Relative increase of the makespan from `shortest` to `steady`.

        None if one is missing or both are the same schedule.
        """
        if self.shortest is None or self.steady is None or self.shortest is self.steady:
            return None
        return self.steady.makespan / self.shortest.makespan - 1

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Distinct valid schedules, with `solution` first."""
        known = (self.solution, self.shortest, self.steady)
        return tuple({id(each): each for each in known if each is not None}.values())

    @property
    def drawable(self) -> Schedule | None:
        """The solution, or `relaxed_solution` if there is none."""
        return self.solution or self.relaxed_solution

    @property
    def period(self) -> int | None:
        """Ticks after which the steady state repeats, or None if nothing repeats."""
        return None if self._repeated is None else self._repeated.period

    @property
    def unroll(self) -> int | None:
        """Number of micro-batches in one period, or None if nothing repeats."""
        return None if self._repeated is None else self._repeated.unroll

    @property
    def period_per_micro_batch(self) -> Fraction | None:
        """Ticks per micro-batch in the steady state, or None if nothing repeats."""
        return None if self._repeated is None else self._repeated.period_per_micro_batch

    @property
    def kept_period(self) -> Fraction | None:
        """Ticks per micro-batch in the steady state of `steady`.

        It is longer than `period_per_micro_batch` if the shortest period needs more micro-batches than there are.
        """
        kept = None if self.steady is None else self.steady.repetend
        return self.period_per_micro_batch if kept is None else kept.period_per_micro_batch

    @property
    def _repeated(self) -> Repetend | SteadyState | None:
        return self.repetend or (self.drawable.repetend if self.drawable else None)

    @property
    def repetend_makespan(self) -> int | None:
        """Makespan of the schedule that repeats the steady state, in ticks. None if there is no such schedule."""
        kept = self.steady if self.kept_period == self.period_per_micro_batch else None
        if self.steady is None and self.drawable is not None and self.drawable.repetend is not None:
            kept = self.drawable
        return None if kept is None else kept.makespan

    @property
    def steady_bubble_rate(self) -> float | None:
        """Idle share of the busiest device in the steady state, or None if nothing repeats.

        It is 1 - the device's work / period per micro-batch.
        """
        if self.drawable is None or self.period_per_micro_batch is None:
            return None
        return float(1 - self.drawable.plan.busiest_work / self.period_per_micro_batch)

    @property
    def makespan(self) -> int | None:
        """Makespan of `drawable`, or None without a schedule."""
        return None if self.drawable is None else self.drawable.makespan

    @property
    def bubble_rate(self) -> float | None:
        """Bubble rate of `drawable`, or None without a schedule. See `Schedule.bubble_rate`."""
        return None if self.drawable is None else self.drawable.bubble_rate

    @property
    def peak_memory(self) -> tuple[int, ...] | None:
        """Largest memory that each device holds, static memory included, or None without a schedule."""
        return None if self.drawable is None else MemoryProfile.of(self.drawable).peaks
