"""Evaluation of a puzzle: broken rules, distance from the best known schedule, and the recognised order."""

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
    """Evaluation of a complete schedule that breaks no rule."""

    report: ScheduleReport
    """Report on the schedule, with the best proved bound."""
    reached: bool
    """Whether the schedule is as short as the best known one, and has the required order if the puzzle requires one."""
    sentence: str
    """Sentence on the schedule's length, the best known length and the bound."""
    orders: tuple[str, ...]
    """Titles of published schedules with the same order on every device."""

    @property
    def recognised(self) -> str:
        """Sentence that names the published schedules with this order."""
        if not self.orders:
            return "No published schedule has this order."
        names = self.orders[0] if len(self.orders) == 1 else f"{', '.join(self.orders[:-1])} and {self.orders[-1]}"
        return f"Recognised: {names}."


def schedule_of(puzzle: Puzzle, placed: Iterable[Placed]) -> Schedule | None:
    """Return the schedule of the placed runs.

    None if runs are missing. It may break rules, which `judge` reports. Raises InputError for a run that the puzzle
    does not have.
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
    """Compare a complete schedule with the answer `best` of its puzzle, and with the required published `order`.

    Raises InputError with the broken rule and its place, and if `best` has no schedule.
    """
    if best.solution is None:
        raise InputError("puzzle", f"has no schedule to compare with: {best.reason or best.status}")
    report = evaluate(schedule, BY_HAND, bound=best.makespan_bound)
    unit, least = schedule.plan.time_unit, min(best.solution.makespan, schedule.makespan)
    took, shortest, bound = show_times((schedule.makespan, least, best.makespan_bound), unit)
    more, proved, orders = schedule.makespan - least, best.makespan_bound == least, orders_like(schedule)
    limit, missed = f"the bound is {bound}", bool(order) and title_of(order) not in orders
    if not more:
        nobody = "proved optimal" if proved else f"no shorter schedule is known, and {limit}"
        sentence = f"{took}, {nobody}."
    else:
        known = f"{shortest} is possible{', and proved to be the shortest' if proved else f', and {limit}'}"
        sentence = f"{took}, {more / least:.1%} longer than necessary: {known}."
    if missed and not more:
        sentence += f" The task asks for another order, {title_of(order)}."
    return Judged(report, not more and not missed, sentence, orders)


def orders_like(schedule: Schedule) -> tuple[str, ...]:
    """Return titles of published schedules with this order on every device.

    Micro-batches may be numbered differently.
    """
    return tuple(
        title for title, other in _published(schedule.plan, schedule.micro_batches) if same_order(schedule, other)
    )


@lru_cache(maxsize=64)
def _published(plan: MicroBatchPlan, micro_batches: int) -> Sequence[tuple[str, Schedule]]:
    """Return the published schedules that apply to the plan, including those that exceed its memory."""
    found = []
    for name in BASELINES:
        if not BASELINES[name].why_not(plan, micro_batches):
            drawn = solve_schedule(name, plan, micro_batches).drawable
            if drawn is not None:
                found.append((title_of(name), drawn))
    return tuple(found)


def horizon(puzzle: Puzzle) -> int:
    """Return the initial length of a board in ticks. It is a quarter more than the bound, which needs no search."""
    least = makespan_bound(puzzle.plan, puzzle.micro_batches)
    return least + max(1, least // 4)


def best_line(best: ScheduleReport) -> str:
    """Return a clause on what is proved about the shortest schedule. It follows the schedule's length in a sentence."""
    if best.solution is None:
        return "no schedule fits the memory" if best.status is Status.INFEASIBLE else "no schedule was found"
    return "is proved optimal" if best.makespan_bound == best.solution.makespan else "is the best known"


def target_of(puzzle: Puzzle, best: ScheduleReport) -> Schedule | None:
    """Return the schedule that the coach's hints lead to.

    It has the required order, or is the shortest if no order is required. None if no schedule is known.
    """
    if best.solution is None or not puzzle.order:
        return best.solution
    return solve_schedule(puzzle.order, puzzle.plan, puzzle.micro_batches).solution
