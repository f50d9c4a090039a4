"""Phase 2: from a repetend to schedules of N micro-batches, the shortest and the one that keeps the repetend.

The unrolled repetend is always valid.  Steps that only shorten it, each stopping at the bound:

1. left-compaction: every run as early as its device's order allows (memory depends on the order only), for several
   repetends of the same period, because it is not known beforehand which one has the best ends;
2. *periodic middle*: CP-SAT over few micro-batches of which a stretch is tied to the period, asked for a makespan that
   meets the bound, then more periods inserted into the stretch;
3. polishing: the same, minimising from the best so far;
4. of the shortest that was seen, whether it keeps the repetend or not, the orders on the devices are searched.

Inserting periods is valid when there is a time t such that, of every block, exactly the tied run of some micro-batch
starts in [t, t + T) and a tied run follows it: what is pending at t and at t + T is then the same, so the window can be
repeated.  All first tied runs within (count/unroll - 2) * T of each other are enough (`RunsModel._insertable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import MAKESPAN, Repetend, Schedule
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.search.compaction import Tie, compacted, compacted_with_tie
from tessel_core.scheduling.search.ends_bound import ENDS_WINDOWS, ends_bound
from tessel_core.scheduling.search.geometry import Geometry
from tessel_core.scheduling.search.mirror import find_mirror
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.scheduling.search.order_search import shorten
from tessel_core.scheduling.search.quantise import FINE, quanta, quantised
from tessel_core.scheduling.search.quick import greedy_starts, published_starts
from tessel_core.scheduling.search.runs_model import RunsModel
from tessel_core.scheduling.steady import find_steady_state

_MOST_RUNS = 6_000
"""Larger models than this are not worth starting."""
_SMALL_GAP = 0.002
"""Of the makespan; only plans with fine costs come so close without meeting the bound."""
_OTHER_REPETENDS_S = 1.0
_ENDS_BOUND_S = 0.6
_GLANCE_S = 0.15
"""Seconds for a question that is easy or not worth asking."""
_PATIENT_S = 2.0
"""The same the second time, for those that are still open."""
_QUICK_S = 0.8
"""Seconds for each geometry of the periodic middle, the first time round."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The finished schedules and what no schedule of their micro-batches can beat."""

    shortest: Schedule
    """It keeps the repetend where such a schedule is as short."""
    steady: Schedule | None
    """The shortest that keeps the repetend; None with too few micro-batches to repeat anything."""
    bound: int


def complete(
    repetend: Repetend, micro_batches: int, bound: int, polish_s: float, effort: Effort, control: Control
) -> Completion:
    """The shortest schedule found, and the shortest that keeps `repetend`.

    `bound` is a makespan that no schedule can beat; a better one may come back.  Polishing, the last step, takes at
    most `polish_s` seconds.
    """
    work = _Work(repetend, micro_batches, bound, effort, control)
    work.compact(repetend)
    if not work.done:
        work.offer(greedy_starts(repetend.plan, micro_batches), "list")
        for starts in published_starts(repetend.plan, micro_batches):
            work.offer(starts, "published order")
    mirror = find_mirror(repetend.plan)
    work.compact_others([Goal.LATENCY] if mirror else [Goal.LATENCY, Goal.EARLY])
    if not work.nearly_done and not work.without_room:
        work.meet_bound(mirror, _GLANCE_S if mirror else _QUICK_S)
        for periods in ENDS_WINDOWS:
            if work.raise_bound(periods):
                work.meet_bound(mirror, _QUICK_S)
        if mirror or repetend.period <= FINE:
            work.meet_bound(mirror, _PATIENT_S)
    if not work.without_room:
        work.control = control.part(polish_s / 2 if work.behind else polish_s)
        work.polish()
    left_s = polish_s if work.without_room else polish_s / 2
    work.control = control.part(left_s)
    if work.behind:
        work.reorder(left_s)
    steady = work.best if work.best.repetend is not None else None
    return Completion(work.shortest, steady, work.bound)


class _Work:
    """The best schedule so far, and the steps that shorten it."""

    def __init__(self, repetend: Repetend, micro_batches: int, bound: int, effort: Effort, control: Control) -> None:
        self.plan, self.repetend, self.micro_batches = repetend.plan, repetend, micro_batches
        self.bound, self.effort, self.control = bound, effort, control
        self.best = repetend.expand(micro_batches)
        """Of those that keep the repetend; of all that were seen where nothing can repeat."""
        self.shortest = self.best
        """Of all that were seen; the best where that is as short."""
        self._least_latency = repetend.latency
        self._impossible: set[tuple[Geometry, int, bool]] = set()
        instance = int(repetend.first_start.max() // repetend.period + 1) * repetend.unroll
        self._shortest_stretch = min(instance, max(repetend.unroll + 1, micro_batches // 4))
        self.news("repetend")

    @property
    def done(self) -> bool:
        return self.best.makespan <= self.bound or self.control.stopped

    @property
    def nearly_done(self) -> bool:
        """True where only polishing is worth it."""
        return self.done or self.best.makespan - self.bound <= _SMALL_GAP * self.best.makespan

    def news(self, by: str) -> None:
        """Tell how far the makespan is from its bound."""
        self.control.report(MAKESPAN, Fraction(self.shortest.makespan), Fraction(self.bound), by)

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a shorter schedule, found by what `by` names; says whether it is the best that still repeats."""
        if starts is None:
            return False
        found = Schedule.from_starts(self.plan, starts)
        if found.makespan < self.shortest.makespan:
            self.shortest = found
            self.news(by)
        if found.makespan >= self.best.makespan:
            return False
        steady = find_steady_state(found.starts, self.repetend.period, self.repetend.unroll)
        stretch = 0 if steady is None else steady.last_micro_batch - steady.first_micro_batch + 1
        if stretch < self._shortest_stretch and self.micro_batches > self.repetend.unroll:
            return False
        self.best = replace(found, repetend=steady)
        if found.makespan == self.shortest.makespan:
            self.shortest = self.best
        return True

    @property
    def without_room(self) -> bool:
        """True with fewer micro-batches than are in flight: not one instance of the repetend is ever complete."""
        in_flight = ceil(Fraction(self._least_latency, self.repetend.period)) * self.repetend.unroll
        return self.micro_batches < in_flight

    @property
    def behind(self) -> bool:
        """True where keeping the repetend is known not to be shortest: another ends sooner, or it has no room."""
        beaten = self.shortest.makespan < self.best.makespan
        return self.shortest.makespan > self.bound and (beaten or self.without_room)

    def reorder(self, seconds: float) -> None:
        """Search the orders of the shortest, whether that keeps the repetend or not."""
        effort = self.effort.within(seconds)
        self.offer(shorten(self.plan, self.shortest.starts, self.bound, effort, self.control), "order")

    def compact(self, repetend: Repetend) -> None:
        """Left-compaction of the unrolled repetend, freely or, where that loses the steady state, keeping a stretch."""
        self._least_latency = min(self._least_latency, repetend.latency)
        unrolled = repetend.expand(self.micro_batches)
        self.offer(compacted(unrolled), "compaction")
        flight = ceil(Fraction(repetend.latency, repetend.period)) * repetend.unroll
        for free in (flight, flight // 2):
            tied = self.micro_batches - 2 * free
            if not self.done and tied > repetend.unroll:
                tie = Tie(repetend.period, repetend.unroll, free, tied)
                self.offer(compacted_with_tie(unrolled, tie), "compaction")

    def compact_others(self, goals: list[Goal]) -> None:
        """The same for other repetends of the period: of least latency, the earliest."""
        for goal in goals:
            if self.done:
                return
            effort = self.effort.within(_OTHER_REPETENDS_S)
            _, other = find_repetend(self.plan, self.repetend.period, self.repetend.unroll, goal, effort, self.control)
            if other is not None:
                self.compact(other)

    def raise_bound(self, periods: float) -> bool:
        """Look at the ends of any schedule, so many periods of them; says whether the bound is better for it."""
        if self.done:
            return False
        before, effort = self.bound, self.effort.within(_ENDS_BOUND_S)
        self.bound = ends_bound(self.plan, self.micro_batches, periods, before, effort, self.control)
        self.news("ends bound")
        return self.bound > before

    def meet_bound(self, mirror: dict[int, int], seconds: float) -> None:
        """Ask for a makespan at the bound, a few geometries, most promising first."""
        # Fine costs hardly ever meet the bound exactly: ask once, then polish.  A glance is one question too.
        once = self.repetend.period > FINE or seconds <= _GLANCE_S
        for geometry in list(self._geometries(folded=bool(mirror)))[: 1 if once else None]:
            if self.done:
                return
            self._middle(geometry, self.bound, seconds, mirror)

    def polish(self) -> None:
        """With what time is left, shorten by halving the distance to the bound."""
        low = self.bound
        while not self.done and low < self.best.makespan:
            target = (low + self.best.makespan - 1) // 2
            seconds = max(_QUICK_S, self.control.remaining_s / 3) if self.effort.workers > 1 else _QUICK_S * 2
            if not any(self._middle(geometry, target, seconds, {}) for geometry in self._geometries()):
                low = target + 1

    def _middle(self, geometry: Geometry, makespan: int, seconds: float, mirror: dict[int, int]) -> bool:
        """A schedule of about `makespan` by periodic middle; says whether it was found and better.

        Fine costs are asked about coarsely, and the order that comes back is timed exactly: in nanoseconds CP-SAT
        creeps towards a contradiction, and hears neither a limit nor a cancel on the way.
        """
        if geometry.micro_batches * len(self.plan.blocks) > _MOST_RUNS or self.done:
            return False
        unroll, quantum = self.repetend.unroll, quanta(self.repetend.period)[0]
        plan = quantised(self.plan, quantum)
        period = max(round(self.repetend.period / quantum), unroll * plan.busiest_work)
        inserted = self.micro_batches - geometry.micro_batches
        horizon = makespan // quantum - inserted // unroll * period
        if quantum > 1:
            horizon += len(plan.blocks)
        question = (geometry, makespan, bool(mirror))
        if question in self._impossible or horizon < makespan_bound(plan, 1):
            return False
        model = RunsModel(
            plan,
            geometry.micro_batches,
            horizon,
            tie=Tie(period, unroll, geometry.warmup, geometry.tied) if geometry.tied else None,
            mirror=mirror,
            insertable=inserted > 0,
        )
        # Measured: one worker without relaxations is soonest, and stops at once.
        effort = replace(self.effort.within(seconds), workers=1, relaxation=False)
        answer = ask(model.cp, effort, self.control, presolve=bool(mirror))
        if answer.verdict is Verdict.IMPOSSIBLE:
            self._impossible.add(question)
        if not answer.verdict.found:
            return False
        starts = geometry.insert(model.starts(answer), inserted, period, unroll)
        if check_schedule(Schedule.from_starts(plan, starts)):
            raise AssertionError("inserting periods into a tied stretch broke a rule")
        if quantum == 1:
            return self.offer(starts, "periodic middle")
        stretch = Tie(self.repetend.period, unroll, geometry.warmup, geometry.tied + inserted)
        return self.offer(compacted_with_tie(Schedule.from_starts(self.plan, starts), stretch), "periodic middle")

    def _geometries(self, folded: bool = False) -> Iterator[Geometry]:
        """Around as many free micro-batches at each end as are in flight in the steady state.

        What is likely is measured, and allows for a latency that is not quite the least; folded plans need less.
        """
        unroll, total = self.repetend.unroll, self.micro_batches
        flight = ceil(Fraction(self._least_latency, self.repetend.period))
        seen = set()
        offsets = ((-1, 3), (-2, 2), (0, 2)) if folded else ((2, 4), (1, 3), (-1, 3), (0, 2))
        for ends, tied in offsets:
            free, stretch = max(1, flight + ends) * unroll, max(2, flight + tied) * unroll
            spare = total - 2 * free - stretch
            if spare >= 0:
                geometry = Geometry(free, stretch, free + spare % unroll)
            else:  # too few micro-batches to insert any: tie the least that repeats
                stretch = unroll + 1 if total > unroll else 0
                free = max(0, min(free, (total - stretch) // 2))
                geometry = Geometry(free, stretch, total - free - stretch)
            if geometry not in seen:
                seen.add(geometry)
                yield geometry
