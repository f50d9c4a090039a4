"""Search for a faster order of a recommended pipeline. Its step time was computed with a published order."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import MAKESPAN, Schedule, ScheduleReport
from tessel_core.scheduling import DEFAULT_SCHEDULER, find_scheduler, solve_schedule
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.closely import plan_of_stages
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.recommendation import Candidate, Question, Recommendation

SEARCHED_PIPELINES = 3
"""The search is run for this many of the fastest pipelines of a recommendation."""
SEARCH_SECONDS = 1.0
"""Time limit in seconds for each pipeline."""
TICKS_PER_SECOND = 1e9
"""Plans of stages count time in nanoseconds."""


@dataclass(frozen=True)
class SearchedOrder:
    """A pipeline in the faster of two orders: the published one, and the one that a search found."""

    candidate: Candidate
    report: ScheduleReport
    """Report on the faster order. The blocks of its plan are the stages."""
    named_makespan_s: float
    """Makespan of the published order in seconds."""
    makespan_s: float
    """Makespan of the faster order in seconds."""
    bound_s: float
    """Lower bound of the makespan in seconds. It holds for all orders of these stages that fit into memory."""

    @property
    def schedule(self) -> Schedule:
        """Schedule in the faster order."""
        assert self.report.drawable is not None
        return self.report.drawable

    @property
    def latency(self) -> float:
        """Seconds of a step in the faster order.

        The reductions over replicas and the optimizer step come after the pipeline. They take the same time as before.
        """
        return self.candidate.outcome.latency - (self.named_makespan_s - self.makespan_s)

    @property
    def shorter(self) -> Candidate:
        """The candidate with the step time of the faster order."""
        return replace(self.candidate, outcome=replace(self.candidate.outcome, latency=self.latency))

    @property
    def bound(self) -> float:
        """Lower bound of the step time in seconds. It holds for all orders of these stages that fit into memory."""
        return self.candidate.outcome.latency - (self.named_makespan_s - self.bound_s)

    @property
    def is_shorter(self) -> bool:
        """Whether the search found an order that is faster than the published one."""
        return self.makespan_s < self.named_makespan_s

    @property
    def proved(self) -> bool:
        """Whether the lower bound proves that no order of these stages that fits into memory is faster."""
        return self.makespan_s <= self.bound_s


def search_order(table: BlockTable, candidate: Candidate, seconds: float, control: Control) -> SearchedOrder | None:
    """Search for `seconds` for an order of a candidate's stages, and return the faster order.

    Return None if there are more runs than a schedule may have, or if the published order has no schedule. Raises
    InputError in the cases of `BlockEngine.staged`.
    """
    strategy = candidate.strategy
    plan = plan_of_stages(BlockEngine(table).staged(Configuration(table.spec, strategy)), table)
    config = find_scheduler(DEFAULT_SCHEDULER).config(time_limit=seconds)
    try:
        named = solve_schedule(strategy.schedule, plan, strategy.micro_batches)
        searched = solve_schedule(DEFAULT_SCHEDULER, plan, strategy.micro_batches, config, control).about(MAKESPAN)
    except InputError:  # There are more runs than a schedule may have.
        return None
    if named.drawable is None:
        return None
    before, after = named.drawable.makespan, searched.solution.makespan if searched.solution else math.inf
    kept = searched if after < before else named
    shorter = min(before, after)
    # The bound holds for orders within the plan's memory, which is counted generously. A published order that exceeds
    # this memory may be faster than the bound.
    bound = min(shorter, searched.makespan_bound)
    return SearchedOrder(candidate, kept, *(ticks / TICKS_PER_SECOND for ticks in (before, shorter, bound)))


def searched_orders(
    found: Recommendation[Question], table: BlockTable, control: Control, seconds: float = SEARCH_SECONDS
) -> tuple[SearchedOrder, ...]:
    """Search for orders of the fastest pipelines. Return the results, shortest step first.

    If `control` stops, return the results so far.
    """
    pipelines = [each for each in found.candidates if each.strategy.pipeline > 1][:SEARCHED_PIPELINES]
    orders = list[SearchedOrder]()
    for number, candidate in enumerate(pipelines, 1):
        if control.stopped:
            break
        control.report(f"order of pipeline {number} of {len(pipelines)} searched", None, None)
        searched = search_order(table, candidate, seconds, control.quiet())
        orders += [] if searched is None else [searched]
    return tuple(sorted(orders, key=lambda each: each.latency))
