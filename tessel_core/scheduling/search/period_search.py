"""Phase 1: an anytime search for the least period per micro-batch, over periods and unrolls.

A repetend is a part of a schedule that repeats with a period. Its *unroll* is its number of micro-batches. A schedule
can *keep* a repetend, which means repeat it, only if the schedule has more micro-batches than the repetend. *Circles*
are circular orders of the runs on each device (see `circle_search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from sys import maxsize
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.model import PERIOD, MicroBatchPlan, PeriodInfimum, Repetend
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.bounds import kept_period_bound, period_bound
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.search.exact_period import exact_period
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.scheduling.search.quick import quick_repetends, steady_part
from tessel_core.scheduling.search.states_bound import states_bound
from tessel_core.scheduling.search.timing import quanta, quantised, retime

if TYPE_CHECKING:
    from tessel_core.scheduling.search.circle_search import CircleSearch
    from tessel_core.scheduling.search.list_search import ListSearch

_ROUNDS_S = (0.7, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 8.0)
"""Seconds per CP-SAT solve, for each round.

Each round has its own seed, because the difficulty depends on the seed.
"""
_MAX_REPEATABLE_ROUNDS = 2
"""Number of rounds in a search with one worker.

These rounds usually end before the time limit, so the answer is reproducible.
"""
_STATES_BOUND_S = 2.5
_APPROACHING_UNROLL = 100
"""Number of micro-batches in a repetend that approaches a bound which no repetend attains.

If the schedule has more than half and less than four times as many micro-batches, the repetend has twice as many as the
schedule. So the schedule cannot keep it.
"""
_LEAST_KEPT_PERIODS = 4
"""Least number of periods in a schedule that keeps a repetend which only approaches the bound.

Measured on the plan finetune-4 with 32 micro-batches: if the kept repetend has 8, 15 or 31 micro-batches, the schedule
takes 141, 193 or 257 steps.
"""
_CIRCLE_S_PER_BLOCK = 0.2
"""Seconds for the search of circles, per block and per second of a CP-SAT solve.

CP-SAT needs more time for larger plans, so the search of circles gets more seconds too.
"""
_MAX_MODEL_BLOCKS = 150
"""Largest number of blocks times unroll in a modulo model."""
_MAX_RETIMED_RUNS = 1_500
"""Largest number of runs in a schedule for which `repeat` computes the least period.

This takes up to a tenth of a second.
"""
_MAX_LIST_RUNS, _MAX_LIST_UNROLL = 10_000, 16
"""Largest number of runs in a list schedule that is searched for a steady state, and largest unroll of that state."""
_AT_BOUND_SHARE = 0.4
"""Fraction of the usual seconds for a solve with the period at the bound, for unrolls above 1.

Such a solve finds a repetend quickly or not at all.
"""


@dataclass(frozen=True, slots=True)
class FoundPeriod:
    """The result of phase 1: the best repetend, and a bound that holds for every unroll."""

    repetend: Repetend
    kept: Repetend
    """Best repetend of fewer micro-batches than the schedule has, so that the schedule can keep it."""
    bound: Fraction
    infimum: PeriodInfimum | None = None
    """Proof that repetends approach the bound but none attains it, or None."""

    @property
    def proved(self) -> bool:
        """Whether no repetend of any unroll has a shorter period per micro-batch."""
        return self.repetend.period_per_micro_batch == self.bound

    @property
    def settled(self) -> bool:
        """Whether the least period is known: the period is proved, or no repetend attains the bound."""
        return self.proved or self.infimum is not None


def search_period(
    plan: MicroBatchPlan, order: Sequence[int], max_unroll: int, effort: Effort, control: Control
) -> FoundPeriod:
    """Search for a repetend of least period per micro-batch until it meets the bound or time ends.

    CP-SAT tries unrolls 1 … `max_unroll`. In between, circles of any number of micro-batches are searched. `order`
    lists the blocks so that one micro-batch alone fits in memory. In the first repetend, micro-batches run one after
    another in this order.
    """
    periods = PeriodSearch(plan, maxsize, order, max_unroll, effort, control)
    periods.begin()
    periods.go_on(control)
    return periods.result


def _round_effort(effort: Effort, number: int, unroll: int) -> Effort:
    """Return the limits and settings of CP-SAT in round `number`.

    Unrolls above 1 use only one worker in every other round. This worker uses no linear relaxations, which is fastest
    for most models.
    """
    alone = unroll > 1 and number % 2 == 0
    return replace(effort, seed=effort.seed + number, workers=1 if alone else effort.workers, relaxation=not alone)


class PeriodSearch:
    """The search of phase 1.

    It keeps the best repetend, the best repetend of fewer than `micro_batches` micro-batches, and the periods that are
    proved infeasible.
    """

    def __init__(
        self,
        plan: MicroBatchPlan,
        micro_batches: int,
        order: Sequence[int],
        max_unroll: int,
        effort: Effort,
        control: Control,
    ) -> None:
        self.plan, self.bound, self.effort, self.control = plan, period_bound(plan), effort, control
        self._order, self._max_unroll, self._all_effort = order, max_unroll, effort
        self._durations = [block.duration for block in plan.blocks]
        self._micro_batches = micro_batches
        self._best = self._kept = one_after_the_other(plan, order)
        self._infimum: PeriodInfimum | None = None
        self._kept_approaches = False
        self._circle_search: CircleSearch | None = None
        self._impossible: dict[tuple[int, int], int] = {}
        """Largest period that is proved infeasible, in quanta, by (ticks per quantum, unroll)."""
        control.report(PERIOD, self._best.period_per_micro_batch, self.bound, "sequential")

    @property
    def result(self) -> FoundPeriod:
        """The best result so far."""
        return FoundPeriod(self._best, self._kept, self.bound, self._infimum)

    def begin(self) -> None:
        """Run the steps that take little time.

        They are CP-SAT at the bound with unroll 1, published and greedy orders, the states bound, and the exact period
        of small plans.
        """
        self._at_unroll(0, 1)
        if self.over:
            return
        for quick in quick_repetends(self.plan, self._max_unroll):
            self.offer(quick, "list")
            if self.over:
                return
        if not self.settled:
            self._bound_by_states()
        if not self.settled:
            self._settle_small()

    def _bound_by_states(self) -> None:
        known = self._best.period_per_micro_batch
        effort = self._all_effort.within(_STATES_BOUND_S)
        bound = states_bound(self.plan, self.bound, effort, self.control, known=known)
        if bound > self.bound:
            self.bound = bound
            self.control.report(PERIOD, known, bound, "bound")

    def _settle_small(self) -> None:
        """Offer a repetend of the exact least period, if the plan is small enough.

        If no repetend attains this period, offer a short repetend that the schedule can keep, and a long repetend that
        comes closer to this period.
        """
        exact = exact_period(self.plan, self.control)
        if exact is None:
            return
        self.bound, self._infimum = max(self.bound, exact.per_micro_batch), exact.infimum
        short = min(self._micro_batches // _LEAST_KEPT_PERIODS, _APPROACHING_UNROLL)
        long = short if short == _APPROACHING_UNROLL else max(2 * self._micro_batches, _APPROACHING_UNROLL)
        self.offer(exact.repetend(long), "states")
        self._kept_approaches = exact.infimum is not None and self.offer(exact.repetend(short), "states")

    def go_on(self, control: Control, *, ready: bool = True) -> None:
        """Search by circles and by CP-SAT in turn, until the bound is met or time ends.

        Circles are searched only if the kernels are `ready`. If the schedule has too few micro-batches to keep a
        repetend that meets the bound, CP-SAT still tries the smaller unrolls of the round.
        """
        self.control = control
        if self.over:
            return
        if ready:
            # Imported here because its compiled kernels take a moment to load.
            from tessel_core.scheduling.search.circle_search import CircleSearch

            micro_batches = self._micro_batches
            self._circle_search = CircleSearch(self.plan, self._order, self.bound, self._all_effort, micro_batches)
        circles = self._circle_search
        share = min(4.0, _CIRCLE_S_PER_BLOCK * len(self.plan.blocks))
        rounds = _ROUNDS_S[:_MAX_REPEATABLE_ROUNDS] if self._all_effort.repeatable else _ROUNDS_S
        for number, seconds in enumerate(rounds):
            if circles is not None:
                self._advance(circles, share * seconds)
            for unroll in range(1, self._max_unroll + 1):
                if unroll * len(self.plan.blocks) <= _MAX_MODEL_BLOCKS or unroll == 1:
                    self._at_unroll(number, unroll, asked=number == 0 and unroll == 1)
            if self.over or self.settled:
                return
        while circles is not None and not self.control.stopped and not self.settled and not self._all_effort.repeatable:
            self._advance(circles, share)

    def _advance(self, circles: CircleSearch, seconds: float) -> None:
        self.offer(circles.advance(seconds, self.control), "circles")
        self.offer(circles.kept, "circles")

    def close_long(self, lists: Sequence[ListSearch], control: Control) -> None:
        """Offer repetends that consist of very long list schedules, built by the rules of `lists`.

        Do nothing if circles are not searched.
        """
        self.control = control
        if self._circle_search is not None and not self.over and not self.settled:
            self.offer(self._circle_search.close_long(lists, control), "circles")

    def offer_steady(self, starts: IntColumn) -> None:
        """Offer the repetend in the steady state of a list schedule, if the schedule is small."""
        if not self.over and starts.size <= _MAX_LIST_RUNS:
            for repetend in steady_part(self.plan, starts, _MAX_LIST_UNROLL):
                self.offer(repetend, "list")

    def repeat(self, starts: IntColumn) -> None:
        """Offer the whole schedule as a repetend. Its period per micro-batch is at most makespan / micro-batches."""
        whole = Repetend(self.plan, int((starts + self._durations).max() - starts.min()), starts - starts.min())
        if starts.size <= _MAX_RETIMED_RUNS:
            whole = retime(self.plan, whole, ceil(self.bound * whole.unroll))
        self.offer(whole, "repeated")

    def _at_unroll(self, number: int, unroll: int, *, asked: bool = False) -> None:
        """Let CP-SAT search with one unroll in round `number`.

        `asked` is true if it has already tried the period at the bound.
        """
        self.effort = _round_effort(self._all_effort, number, unroll).within(_ROUNDS_S[number])
        if not asked:
            self.at_bound(unroll)
        if number or unroll > 1 or asked:
            self.downwards(unroll)

    @property
    def over(self) -> bool:
        """Whether time has ended, or neither the best repetend nor the best one that can be kept needs to improve."""
        return self.control.stopped or (self.settled and self._all_kept)

    @property
    def settled(self) -> bool:
        """Whether the best repetend meets the bound, or no repetend can attain the bound."""
        return self._best.period_per_micro_batch <= self.bound or self._infimum is not None

    @property
    def _all_kept(self) -> bool:
        """Whether no repetend that the schedule can keep has a shorter period than `_kept`.

        This also counts as true if `_kept` approaches a bound that is an infimum.
        """
        if self._micro_batches == 1 or self._kept_approaches:
            return True
        return self._kept.period_per_micro_batch <= kept_period_bound(self.bound, self._micro_batches)

    @property
    def _to_beat(self) -> Fraction:
        """Period per micro-batch that a new repetend must beat.

        It is the period of `_best`. Once the least period is settled, it is the period of `_kept`.
        """
        return (self._kept if self.settled else self._best).period_per_micro_batch

    def offer(self, repetend: Repetend | None, by: str) -> bool:
        """Keep a repetend found by the method `by` if it is better. Return whether its period is below `_to_beat`."""
        if repetend is None:
            return False
        period = repetend.period_per_micro_batch
        beats = period < self._to_beat
        if repetend.unroll < self._micro_batches and period < self._kept.period_per_micro_batch:
            self._kept = repetend
        if period < self._best.period_per_micro_batch:
            self._best = repetend
            self.control.report(PERIOD, period, self.bound, by)
        return beats

    def _of_use(self, unroll: int) -> bool:
        """Return whether a better repetend with this unroll is still needed."""
        return not self.over and (not self.settled or unroll < self._micro_batches)

    def at_bound(self, unroll: int) -> None:
        """Let CP-SAT search for a repetend whose period is the bound, if that is a whole number of ticks.

        Do nothing if it is known that no repetend attains the bound.
        """
        if (self.bound * unroll).denominator == 1 and self._infimum is None and self._of_use(unroll):
            seconds = self.effort.seconds * (_AT_BOUND_SHARE if unroll > 1 else 1)
            self._ask(1, int(self.bound * unroll), unroll, seconds)

    def downwards(self, unroll: int) -> None:
        """Let CP-SAT search for periods below the best period.

        The step to the next period doubles after each success. After a failure, it is half of the remaining range.
        """
        least = self.bound * unroll if self._infimum is None else Fraction(self._infimum.least_period(unroll))
        for quantum in quanta(self.bound):
            low = max(ceil(least / quantum), self._impossible.get((quantum, unroll), 0) + 1)
            failed = low - 1
            stride = 1
            while self._of_use(unroll):
                high = ceil(self._to_beat * unroll / quantum)  # the least period that is no improvement
                if failed + 1 >= high:
                    break
                target = max(failed + 1, min(high - stride, high - 1))
                if self._ask(quantum, target, unroll, self.effort.seconds):
                    stride *= 2
                else:
                    failed, stride = target, max(1, (high - target) // 2)

    def _ask(self, quantum: int, period: int, unroll: int, seconds: float) -> bool:
        """Let CP-SAT search for a repetend of `period` quanta of `quantum` ticks.

        Return whether its exact period is an improvement.
        """
        if period <= self._impossible.get((quantum, unroll), 0):
            return False
        coarse = quantised(self.plan, quantum)
        if period < unroll * coarse.busiest_work:
            return False
        effort = self.effort.within(seconds)
        verdict, repetend = find_repetend(coarse, period, unroll, Goal.ANY, effort, self.control)
        if verdict is Verdict.IMPOSSIBLE:
            self._impossible[quantum, unroll] = period
        if repetend is not None and quantum > 1:
            repetend = retime(self.plan, repetend, ceil(self.bound * unroll))
        return self.offer(repetend, "modulo")
