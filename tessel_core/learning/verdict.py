"""What became of a puzzle: the referee's word, how near it is to what is proved, and whose order it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tessel_core.errors import InputError
from tessel_core.inspection.recognise import same_order
from tessel_core.learning.coach import Placed
from tessel_core.learning.task import Puzzle
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport, Status
from tessel_core.scheduling import BASELINES, solve_schedule, title_of
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.finish import BY_HAND
from tessel_core.scheduling.reports import evaluate
from tessel_core.units import show_times


@dataclass(frozen=True)
class Judged:
    """A complete schedule that keeps all rules, against the best that is known."""

    report: ScheduleReport
    """Of the schedule, with the best proved bound."""
    reached: bool
    """Whether it is as short as the best that is known, and in the order that is asked for where one is."""
    sentence: str
    """Its length against the best, and what is proved."""
    orders: tuple[str, ...]
    """Titles of the published schedules with the same order on every device."""

    @property
    def recognised(self) -> str:
        """Whose order it is, in a sentence."""
        if not self.orders:
            return "None of the published schedules here has this order."
        names = self.orders[0] if len(self.orders) == 1 else f"{', '.join(self.orders[:-1])} and {self.orders[-1]}"
        return f"Recognised: {names}."


def schedule_of(puzzle: Puzzle, placed: Iterable[Placed]) -> Schedule | None:
    """The schedule that the placed runs make, None while some are missing.

    It may break rules: `judge` says which.  Raises InputError for a run that the puzzle does not have.
    """
    blocks, micro_batches = len(puzzle.plan.blocks), puzzle.micro_batches
    starts = np.full((micro_batches, blocks), -1, dtype=np.int64)
    for b, m, start in placed:
        if not (0 <= b < blocks and 0 <= m < micro_batches and start >= 0):
            raise InputError("puzzle", f"has no block {b} of micro-batch {m} at {start}")
        starts[m, b] = start
    if (starts < 0).any():
        return None
    return Schedule.at_starts(puzzle.plan, starts)


def judge(schedule: Schedule, best: ScheduleReport, order: str = "") -> Judged:
    """A complete schedule against the answer to its puzzle's question, and the scheduler whose order is asked for.

    Raises InputError with the rule that it breaks and the place, and where that answer has no schedule.
    """
    if best.solution is None:
        raise InputError("puzzle", f"has no schedule to be held against: {best.reason or best.status}")
    report = evaluate(schedule, BY_HAND, bound=best.makespan_bound)
    unit, least = schedule.plan.time_unit, min(best.solution.makespan, schedule.makespan)
    took, shortest, bound = show_times((schedule.makespan, least, best.makespan_bound), unit)
    more, proved, orders = schedule.makespan - least, best.makespan_bound == least, orders_like(schedule)
    limit, missed = f"the bound is {bound}", bool(order) and title_of(order) not in orders
    if not more:
        nobody = "proved: nobody can do better" if proved else f"nothing shorter is known, and {limit}"
        sentence = f"{took}, {nobody}."
    else:
        known = f"{shortest} is possible{', and proved to be the least' if proved else f', and {limit}'}"
        sentence = f"{took}, {more / least:.1%} longer than it has to be: {known}."
    if missed and not more:
        sentence += f" What is asked for is another order, {title_of(order)}."
    return Judged(report, not more and not missed, sentence, orders)


def orders_like(schedule: Schedule) -> tuple[str, ...]:
    """Titles of the published schedules that have this order on every device, up to renumbering micro-batches."""
    return tuple(
        title for title, other in _published(schedule.plan, schedule.micro_batches) if same_order(schedule, other)
    )


@lru_cache(maxsize=64)
def _published(plan: MicroBatchPlan, micro_batches: int) -> Sequence[tuple[str, Schedule]]:
    """The published schedules that apply to the plan, whether they fit its memory or not."""
    found = []
    for name in BASELINES:
        if not BASELINES[name].why_not(plan, micro_batches):
            drawn = solve_schedule(name, plan, micro_batches).drawable
            if drawn is not None:
                found.append((title_of(name), drawn))
    return tuple(found)


def horizon(puzzle: Puzzle) -> int:
    """Ticks that a board has room for at first: somewhat more than the bound, which no search has to be awaited for."""
    least = makespan_bound(puzzle.plan, puzzle.micro_batches)
    return least + max(1, least // 4)


def best_line(best: ScheduleReport) -> str:
    """What is known of the shortest schedule, after its length."""
    if best.solution is None:
        return "no schedule fits the memory" if best.status is Status.INFEASIBLE else "no schedule was found"
    return "is the least, proved" if best.makespan_bound == best.solution.makespan else "is the best known"


def target_of(puzzle: Puzzle, best: ScheduleReport) -> Schedule | None:
    """What the coach leads to: the order that is asked for, else the shortest schedule; None without one."""
    if best.solution is None or not puzzle.order:
        return best.solution
    return solve_schedule(puzzle.order, puzzle.plan, puzzle.micro_batches).solution
