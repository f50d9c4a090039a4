"""Phase 2: from a repetend to the shortest schedule of N micro-batches that keeps it, never longer than it unrolled.

The unrolled repetend is always valid.  Steps that only shorten it, each stopping at the bound:

1. left-compaction: every run as early as its device's order allows (memory depends on the order only), for several
   repetends of the same period, because it is not known beforehand which one has the best ends;
2. *periodic middle*: CP-SAT over few micro-batches of which a stretch is tied to the period, asked for a makespan that
   meets the bound, then more periods inserted into the stretch;
3. polishing: the same, minimising from the best so far.

What is seen on the way and ends sooner without keeping the repetend goes to the incumbent.

Inserting periods is valid when there is a time t such that, of every block, exactly the tied run of some micro-batch
starts in [t, t + T) and a tied run follows it: what is pending at t and at t + T is then the same, so the window can be
repeated.  All first tied runs within (count/unroll - 2) * T of each other are enough (`RunsModel._insertable`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, inf

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import Repetend, Schedule, SteadyState
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import check_schedule
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.search.ends_bound import ENDS_WINDOWS, ends_bound
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.modulo import Goal, find_repetend
from tessel_core.scheduling.search.quick import greedy_starts, published_starts
from tessel_core.scheduling.search.runs_model import RunsModel
from tessel_core.scheduling.search.timing import FINE, Tie, compacted, compacted_with_tie, quanta, quantised
from tessel_core.scheduling.steady import find_steady_state
from tessel_core.scheduling.structure import find_mirror

_JOINING_SHARE, _LEAST_JOINING_SHARE = 0.0115, 0.2
"""When to stop looking for one schedule that is the shortest and keeps the repetend, as a share of the time to polish.

The first times the square of the devices, as the question grows; at least the second.  Looking takes at least a quarter
of that, however late both were proved.
"""
_MOST_TURNS = 4
"""Periods of the repetend after which the shortest schedule may repeat."""
_MOST_RUNS = 6_000
"""Larger models than this are not worth starting."""
_LARGEST_REPETEND = 150
"""Runs of one period."""
_SMALL_GAP = 0.002
"""A share of the makespan; only plans with fine costs come so close without meeting the bound."""
_OTHER_REPETENDS_S = {Goal.LATENCY: 0.5, Goal.EARLY: 0.15}
"""Seconds for another repetend of the period, which is good long before it is proved the best by its goal."""
_ENDS_BOUND_S = 1.2
_PATIENT_S = 2.0
"""The same the second time, for those that are still open."""
_QUICK_S, _GLANCE_S = 1.0, 0.1
"""Seconds for each geometry of the periodic middle, the first time round, and where the bound may not be the last."""


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Free micro-batches, then tied ones, then free ones again."""

    warmup: int
    tied: int
    cooldown: int

    @property
    def micro_batches(self) -> int:
        return self.warmup + self.tied + self.cooldown

    def insert(self, starts: IntColumn, inserted: int, period: int, unroll: int) -> IntColumn:
        """`inserted` more micro-batches in the tied stretch, what comes after moved back by as many periods."""
        if not inserted:
            return starts
        end = self.warmup + self.tied
        turns = 1 + np.arange(inserted) // unroll
        copies = end - unroll + np.arange(inserted) % unroll
        middle = starts[copies] + (turns * period)[:, None]
        return np.concatenate([starts[:end], middle, starts[end:] + inserted // unroll * period])


class Completion:
    """The best schedule that keeps the repetend, and the steps that shorten it; the incumbent hears of all of them."""

    def __init__(self, repetend: Repetend, incumbent: Incumbent, effort: Effort, control: Control) -> None:
        self.plan, self.repetend, self.micro_batches = repetend.plan, repetend, incumbent.micro_batches
        self.incumbent, self.effort, self.control = incumbent, effort, control
        self.best = repetend.expand(self.micro_batches)
        """The shortest that keeps the repetend, or the shortest of all where nothing can repeat."""
        self._mirror = find_mirror(self.plan)
        self._least_latency = repetend.latency
        self._joining_s: float | None = None
        self.cut_short = False
        """Whether polishing ended by the clock, so that it need not find the same again."""
        self._impossible: set[tuple[_Geometry, int, bool]] = set()
        instance = int(repetend.first_start.max() // repetend.period + 1) * repetend.unroll
        self._shortest_stretch = min(instance, max(repetend.unroll + 1, self.micro_batches // 4))
        incumbent.offer(self.best.starts, "repeated stretch")

    @property
    def steady(self) -> Schedule | None:
        """The best that keeps the repetend; None with too few micro-batches to repeat anything."""
        return self.best if self.best.repetend is not None else None

    def begin(self) -> None:
        """Try the cheap ways: compaction, lists and published orders."""
        if self.control.cancelled:
            return
        self.compact(self.repetend)
        if not self.done:
            self.offer(greedy_starts(self.plan, self.micro_batches), "list")
            for starts in published_starts(self.plan, self.micro_batches):
                self.offer(starts, "published order")
                if self.done:
                    return

    def go_on(self, polish_s: float, control: Control, *, proved: bool) -> None:
        """The other steps; polishing, the last one, takes at most `polish_s` seconds.

        So do all of them where the period is `proved`, from when the makespan is too: what is left then is to find a
        schedule that is the shortest and keeps the repetend as well.
        """
        self.control = control
        if self.too_large or self.done:
            return
        joining_s = polish_s * min(1.0, max(_LEAST_JOINING_SHARE, _JOINING_SHARE * len(self.plan.devices) ** 2))
        if proved:
            self._joining_s = polish_s if self.effort.repeatable else joining_s
        if self._mirror:
            self.begin_mirrored()
        elif proved and self.incumbent.proved:
            self.compact_another(Goal.LATENCY, self.effort.workers, joining_s / 2)
            self.compact_another(Goal.EARLY, self.effort.workers, joining_s / 8)
            self._least_latency = makespan_bound(self.plan, 1)
        else:
            self.compact_another(Goal.LATENCY, self.effort.workers)
            self.compact_another(Goal.EARLY, self.effort.workers)
        if not self.nearly_done and not self.without_room:
            if not self._mirror:  # of mirrored plans, the idle bound says little, and the ends are looked at already
                self.meet_bound(_QUICK_S)
                self.raise_bounds()
            if self._mirror or self.repetend.period <= FINE:
                self.meet_bound(_PATIENT_S)
        if not self.without_room:
            self.control = self.control.part(polish_s)
            self.polish()
            self.cut_short = self.control.stopped

    def _join_soon(self) -> None:
        """Once both are proved, soon end what is left: later where the proofs say that the machine is busy."""
        wanted_s, elapsed_s = self._joining_s, self.control.elapsed_s
        if wanted_s is not None and self.incumbent.proved:
            end_s = max(wanted_s, 3 * elapsed_s) if elapsed_s < wanted_s else 0.0
            self.control, self._joining_s = self.control.part(max(wanted_s / 4, end_s - elapsed_s)), None

    def keep_shortest(self) -> None:
        """Take the shortest schedule of all where it repeats as fast, with more micro-batches in its period perhaps."""
        starts, known = self.incumbent.starts, self.steady
        if known is None or known.makespan <= self.incumbent.makespan:
            return
        for turns in range(1, _MOST_TURNS + 1):
            period, unroll = turns * self.repetend.period, turns * self.repetend.unroll
            found = find_steady_state(starts, period, unroll)
            if found is not None and self._is_long(found):
                self.best = replace(Schedule.from_starts(self.plan, starts), repetend=found)
                return

    def _is_long(self, steady: SteadyState) -> bool:
        """Whether so long a stretch counts as keeping a repetend, and holds more than one period."""
        stretch = steady.last_micro_batch - steady.first_micro_batch + 1
        return stretch > steady.unroll and stretch >= self._shortest_stretch

    @property
    def bound(self) -> int:
        """The makespan that no schedule can beat."""
        return self.incumbent.bound

    @property
    def done(self) -> bool:
        return self.best.makespan <= self.bound or self.control.stopped

    @property
    def nearly_done(self) -> bool:
        """True where only polishing is worth it."""
        return self.done or self.best.makespan - self.bound <= _SMALL_GAP * self.best.makespan

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a shorter schedule, found by what `by` names; says whether it is the best that still repeats."""
        if starts is None:
            return False
        self.incumbent.offer(starts, by)
        found = Schedule.from_starts(self.plan, starts)
        if found.makespan >= self.best.makespan:
            return False
        steady = find_steady_state(found.starts, self.repetend.period, self.repetend.unroll)
        stretch = 0 if steady is None else steady.last_micro_batch - steady.first_micro_batch + 1
        if stretch < self._shortest_stretch and self.micro_batches > self.repetend.unroll:
            return False
        self.best = replace(found, repetend=steady)
        return True

    @property
    def too_large(self) -> bool:
        """True for a repetend of so many runs that a model of it is not worth building."""
        return self.repetend.first_start.size > _LARGEST_REPETEND

    @property
    def without_room(self) -> bool:
        """True with fewer micro-batches than are in flight: not one instance of the repetend is ever complete."""
        in_flight = ceil(Fraction(self._least_latency, self.repetend.period)) * self.repetend.unroll
        return self.micro_batches < in_flight

    def compact(self, repetend: Repetend) -> None:
        """Left-compaction of the unrolled repetend, freely or, where that loses the steady state, keeping a stretch."""
        self._least_latency = min(self._least_latency, repetend.latency)
        unrolled = repetend.expand(self.micro_batches)
        self.offer(compacted(unrolled), "repeated stretch")
        flight = ceil(Fraction(repetend.latency, repetend.period)) * repetend.unroll
        for free in (flight, flight // 2):
            tied = self.micro_batches - 2 * free
            if not self.done and tied > repetend.unroll:
                tie = Tie(repetend.period, repetend.unroll, free, tied)
                self.offer(compacted_with_tie(unrolled, tie), "repeated stretch")

    def compact_another(self, goal: Goal, workers: int, most_s: float = inf) -> None:
        """The same for another repetend of the period: of least latency, or the earliest."""
        self._join_soon()
        if self.done:
            return
        # Measured: relaxations prove split backwards soon, and slow mirrored plans down.
        seconds = min(most_s, _OTHER_REPETENDS_S[goal])
        effort = replace(self.effort.within(seconds), relaxation=not self._mirror, workers=workers)
        _, other = find_repetend(self.plan, self.repetend.period, self.repetend.unroll, goal, effort, self.control)
        if other is not None:
            self.compact(other)

    def begin_mirrored(self) -> None:
        """For mirrored plans: the repetend of least latency, beside the bounds that the ends of any schedule give."""
        workers, bounds, compacted = max(1, self.effort.workers // 2), [self.bound], threading.Event()

        def look_at_ends(periods: float, workers: int) -> None:
            if not self.incumbent.proved:
                effort = replace(self.effort.within(_ENDS_BOUND_S), workers=workers)
                bounds.append(ends_bound(self.plan, self.micro_batches, periods, bounds[-1], effort, self.control))

        def look_meanwhile() -> bool:
            """Whether both ends were looked at; the second time costs more, and may not be needed."""
            look_at_ends(ENDS_WINDOWS[0], workers)
            both = not compacted.is_set()
            if both:
                look_at_ends(ENDS_WINDOWS[1], workers)
            return both

        with ThreadPoolExecutor(1) as beside:
            both = beside.submit(look_meanwhile)
            if self.effort.workers == 1:
                both.result()  # one after the other, so that the same seed gives the same answer
            self.compact_another(Goal.LATENCY, workers)
            compacted.set()
            looked = both.result()
        self.incumbent.raise_bound(max(bounds), "bound")
        if not looked:
            self.meet_bound(_GLANCE_S)
            if not self.done:
                look_at_ends(ENDS_WINDOWS[1], self.effort.workers)
                self.incumbent.raise_bound(max(bounds), "bound")

    def raise_bounds(self) -> None:
        """Look at the ends of any schedule, and ask for the bound where they raise it."""
        for periods in ENDS_WINDOWS:
            if self.done or self.incumbent.proved:
                return
            effort = self.effort.within(_ENDS_BOUND_S)
            found = ends_bound(self.plan, self.micro_batches, periods, self.bound, effort, self.control)
            if self.incumbent.raise_bound(found, "bound"):
                self.meet_bound(_QUICK_S)

    def meet_bound(self, seconds: float) -> None:
        """Ask for a makespan at the bound, a few geometries, most promising first."""
        # Fine costs hardly ever meet the bound exactly: ask once, then polish.
        once = self.repetend.period > FINE
        for geometry in list(self._geometries())[: 1 if once else None]:
            if self.done:
                return
            self._middle(geometry, self.bound, seconds, self._mirror)

    def polish(self) -> None:
        """With what time is left, shorten by halving the distance to the bound."""
        low = self.bound
        while not self.done and low < self.best.makespan:
            target = (low + self.best.makespan - 1) // 2
            seconds = max(_QUICK_S, self.control.remaining_s / 3) if self.effort.workers > 1 else _QUICK_S * 2
            if not any(self._middle(geometry, target, seconds, {}) for geometry in self._geometries(folded=False)):
                low = target + 1

    def _middle(self, geometry: _Geometry, makespan: int, seconds: float, mirror: dict[int, int]) -> bool:
        """A schedule of about `makespan` by periodic middle; says whether it was found and better.

        Fine costs are asked about coarsely, and the order that comes back is timed exactly: in nanoseconds CP-SAT
        creeps towards a contradiction, and hears neither a limit nor a cancel on the way.
        """
        self._join_soon()
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
        # Measured: one worker is soonest, and stops at once; relaxations help where a mirror halves the model.
        effort = replace(self.effort.within(seconds), workers=1, relaxation=bool(mirror))
        answer = ask(model.cp, effort, self.control, presolve=bool(mirror))
        if answer.verdict is Verdict.IMPOSSIBLE:
            self._impossible.add(question)
        if not answer.verdict.found:
            return False
        starts = geometry.insert(model.starts(answer), inserted, period, unroll)
        if check_schedule(Schedule.from_starts(plan, starts)):
            raise AssertionError("inserting periods into a tied stretch broke a rule")
        if quantum == 1:
            return self.offer(starts, "repeated stretch")
        stretch = Tie(self.repetend.period, unroll, geometry.warmup, geometry.tied + inserted)
        return self.offer(compacted_with_tie(Schedule.from_starts(self.plan, starts), stretch), "repeated stretch")

    def _geometries(self, *, folded: bool | None = None) -> Iterator[_Geometry]:
        """Geometries with about as many free micro-batches at each end as are in flight in the steady state.

        What is likely is measured, and allows for a latency that is not quite the least; folded plans need less.
        """
        unroll, total = self.repetend.unroll, self.micro_batches
        flight = ceil(Fraction(self._least_latency, self.repetend.period))
        folded = bool(self._mirror) if folded is None else folded
        seen = set()
        offsets = ((-1, 3), (-2, 2), (0, 2)) if folded else ((2, 4), (1, 3), (-1, 3), (0, 2))
        for ends, tied in offsets:
            free, stretch = max(1, flight + ends) * unroll, max(2, flight + tied) * unroll
            spare = total - 2 * free - stretch
            if spare >= 0:
                geometry = _Geometry(free, stretch, free + spare % unroll)
            else:  # too few micro-batches to insert any: tie the least that repeats
                stretch = unroll + 1 if total > unroll else 0
                free = max(0, min(free, (total - stretch) // 2))
                geometry = _Geometry(free, stretch, total - free - stretch)
            if geometry not in seen:
                seen.add(geometry)
                yield geometry
