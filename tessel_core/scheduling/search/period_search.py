"""Phase 1: the least period per micro-batch, over periods and unrolls, anytime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from sys import maxsize
from typing import TYPE_CHECKING

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.model import PERIOD, MicroBatchPlan, Repetend
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.bounds import kept_period_bound, period_bound
from tessel_core.scheduling.order import one_after_the_other
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.scheduling.search.quick import quick_repetends, steady_part
from tessel_core.scheduling.search.states_bound import states_bound
from tessel_core.scheduling.search.timing import quanta, quantised, retime

if TYPE_CHECKING:
    from tessel_core.scheduling.search.circle_search import CircleSearch
    from tessel_core.scheduling.search.list_search import ListSearch

_ROUNDS_S = (0.7, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 8.0)
"""Seconds per question, in rounds with a seed each: whether a question is easy depends on the seed."""
_REPEATABLE_ROUNDS = 2
"""As many as usually end before the clock does."""
_STATES_S = 2.5
_CIRCLES_S = 0.2
"""Seconds for circles per block and second for each question to CP-SAT, which has less of a hold on larger plans."""
_LARGEST_MODEL = 150
"""Blocks times unroll of the largest modulo models worth asking about."""
_MOST_RETIMED = 1_500
"""Runs of a schedule that is retimed when it is repeated: a tenth of a second."""
_MOST_LISTED, _LARGEST_UNROLL = 10_000, 16
"""Runs of a list schedule whose steady state is looked for, and micro-batches in a period of it."""
_AT_BOUND = 0.4
"""Share of these seconds for asking an unrolled repetend to meet the bound: it does so soon or not at all."""


@dataclass(frozen=True, slots=True)
class FoundPeriod:
    """The result of phase 1: the best repetend and the bound that holds for every unroll."""

    repetend: Repetend
    kept: Repetend
    """The best whose period has fewer micro-batches than the schedule, which can so keep it."""
    bound: Fraction

    @property
    def proved(self) -> bool:
        """True when no schedule at any unroll has a shorter period per micro-batch."""
        return self.repetend.period_per_micro_batch == self.bound


def search_period(
    plan: MicroBatchPlan, order: Sequence[int], max_unroll: int, effort: Effort, control: Control
) -> FoundPeriod:
    """Find a repetend of least period per micro-batch until it meets the bound or time ends.

    CP-SAT is asked about unrolls 1 … `max_unroll`, in turn with the search for circles of any number of micro-batches.
    In `order`, one micro-batch alone fits the plan's memory: the first, slowest answer.
    """
    periods = PeriodSearch(plan, maxsize, order, max_unroll, effort, control)
    periods.begin()
    periods.go_on(control)
    return periods.result


def _round_effort(effort: Effort, number: int, unroll: int) -> Effort:
    """Unrolled questions alternate between one worker without linear relaxations, mostly the fastest, and the team."""
    alone = unroll > 1 and number % 2 == 0
    return replace(effort, seed=effort.seed + number, workers=1 if alone else effort.workers, relaxation=not alone)


class PeriodSearch:
    """The best repetend so far, the best that `micro_batches` can keep, and the questions that are settled."""

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
        self._circle_search: CircleSearch | None = None
        self._impossible: dict[tuple[int, int], int] = {}
        """Per (quantum, unroll), the largest period proved infeasible."""
        control.report(PERIOD, self._best.period_per_micro_batch, self.bound, "sequential")

    @property
    def result(self) -> FoundPeriod:
        """The best so far."""
        return FoundPeriod(self._best, self._kept, self.bound)

    def begin(self) -> None:
        """Try the cheap ways: the bound with one micro-batch, and the steady states of published and greedy orders."""
        self._at_unroll(0, 1)
        if self.over:
            return
        for quick in quick_repetends(self.plan, self._max_unroll):
            self.offer(quick, "list")
            if self.over:
                return
        if not self.proved:
            self._bound_by_states()

    def _bound_by_states(self) -> None:
        known = self._best.period_per_micro_batch
        effort = self._all_effort.within(_STATES_S)
        bound = states_bound(self.plan, self.bound, effort, self.control, known=known)
        if bound > self.bound:
            self.bound = bound
            self.control.report(PERIOD, known, bound, "bound")

    def go_on(self, control: Control, *, ready: bool = True) -> None:
        """Circles and questions to CP-SAT in turn, until the bound is met or time ends.

        Circles only where the kernels are `ready`.  Where the bound is met by more micro-batches than there are, the
        round's questions about fewer are still asked.
        """
        self.control = control
        if self.over:
            return
        if ready:
            # Late: its compiled kernels take a moment to load.
            from tessel_core.scheduling.search.circle_search import CircleSearch

            micro_batches = self._micro_batches
            self._circle_search = CircleSearch(self.plan, self._order, self.bound, self._all_effort, micro_batches)
        circles = self._circle_search
        share = min(4.0, _CIRCLES_S * len(self.plan.blocks))
        rounds = _ROUNDS_S[:_REPEATABLE_ROUNDS] if self._all_effort.repeatable else _ROUNDS_S
        for number, seconds in enumerate(rounds):
            if circles is not None:
                self._advance(circles, share * seconds)
            for unroll in range(1, self._max_unroll + 1):
                if unroll * len(self.plan.blocks) <= _LARGEST_MODEL or unroll == 1:
                    self._at_unroll(number, unroll, asked=number == 0 and unroll == 1)
            if self.over or self.proved:
                return
        while circles is not None and not self.control.stopped and not self.proved and not self._all_effort.repeatable:
            self._advance(circles, share)

    def _advance(self, circles: CircleSearch, seconds: float) -> None:
        self.offer(circles.advance(seconds, self.control), "circles")
        self.offer(circles.kept, "circles")

    def close_long(self, lists: Sequence[ListSearch], control: Control) -> None:
        """Ask what schedules by these rules repeat when they are very long, where circles are searched at all."""
        self.control = control
        if self._circle_search is not None and not self.over and not self.proved:
            self.offer(self._circle_search.close_long(lists, control), "circles")

    def offer_steady(self, starts: IntColumn) -> None:
        """Offer what a list schedule repeats, where it is small."""
        if not self.over and starts.size <= _MOST_LISTED:
            for found in steady_part(self.plan, starts, _LARGEST_UNROLL):
                self.offer(found, "list")

    def repeat(self, starts: IntColumn) -> None:
        """Offer all of a schedule, over and over: no period need be above a makespan divided by its micro-batches."""
        found = Repetend(self.plan, int((starts + self._durations).max() - starts.min()), starts - starts.min())
        if starts.size <= _MOST_RETIMED:
            found = retime(self.plan, found, ceil(self.bound * found.unroll))
        self.offer(found, "repeated")

    def _at_unroll(self, number: int, unroll: int, *, asked: bool = False) -> None:
        """A round's questions about one unroll; `asked` where the bound itself was asked before."""
        self.effort = _round_effort(self._all_effort, number, unroll).within(_ROUNDS_S[number])
        if not asked:
            self.at_bound(unroll)
        if number or unroll > 1 or asked:
            self.downwards(unroll)

    @property
    def over(self) -> bool:
        """Whether time has ended, or nothing better is left to be found, nor anything better to be kept."""
        return self.control.stopped or (self.proved and self._all_kept)

    @property
    def proved(self) -> bool:
        """Whether the best meets the bound."""
        return self._best.period_per_micro_batch <= self.bound

    @property
    def _all_kept(self) -> bool:
        """Whether so many micro-batches can keep the best period that so many can."""
        least = kept_period_bound(self.bound, self._micro_batches)
        return self._micro_batches == 1 or self._kept.period_per_micro_batch <= least

    @property
    def _to_beat(self) -> Fraction:
        """The best period, or where none is shorter, the best that so many micro-batches can keep."""
        return (self._kept if self.proved else self._best).period_per_micro_batch

    def offer(self, repetend: Repetend | None, by: str) -> bool:
        """Keep a repetend, found by what `by` names, where it is better; says whether it beats what was to beat."""
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
        """Whether a better repetend of so many micro-batches is still looked for."""
        return not self.over and (not self.proved or unroll < self._micro_batches)

    def at_bound(self, unroll: int) -> None:
        """Ask for the bound itself, where it is a whole number of ticks, in full resolution."""
        if (self.bound * unroll).denominator == 1 and self._of_use(unroll):
            seconds = self.effort.seconds * (_AT_BOUND if unroll > 1 else 1)
            self._ask(1, int(self.bound * unroll), unroll, seconds)

    def downwards(self, unroll: int) -> None:
        """Improve with `unroll`: ever larger strides down while they succeed, then halving what is left."""
        for quantum in quanta(self.bound):
            low = max(ceil(self.bound * unroll / quantum), self._impossible.get((quantum, unroll), 0) + 1)
            failed = low - 1
            stride = 1
            while self._of_use(unroll):
                high = ceil(self._to_beat * unroll / quantum)  # the least period that would be no better
                if failed + 1 >= high:
                    break
                target = max(failed + 1, min(high - stride, high - 1))
                if self._ask(quantum, target, unroll, self.effort.seconds):
                    stride *= 2
                else:
                    failed, stride = target, max(1, (high - target) // 2)

    def _ask(self, quantum: int, period: int, unroll: int, seconds: float) -> bool:
        """Whether a repetend of `period` quanta exists that, timed exactly, beats what is to be beaten."""
        if period <= self._impossible.get((quantum, unroll), 0):
            return False
        coarse = quantised(self.plan, quantum)
        if period < unroll * coarse.busiest_work:
            return False
        effort = self.effort.within(seconds)
        verdict, found = find_repetend(coarse, period, unroll, Goal.ANY, effort, self.control)
        if verdict is Verdict.IMPOSSIBLE:
            self._impossible[quantum, unroll] = period
        if found is None:
            return False
        return self.offer(found if quantum == 1 else retime(self.plan, found, ceil(self.bound * unroll)), "modulo")
