"""Phase 2: search for the shortest schedule of N micro-batches that keeps a repetend.

A schedule keeps a repetend if a part of it repeats with the period and the *unroll* of the repetend, its number of
micro-batches. The repetend, repeated N times, is always a valid schedule. The following steps shorten it, until it
meets the bound:

1. Left-compaction starts every run as early as the order on its devices allows. Memory depends on the order only, so it
   stays the same. Several repetends of the same period are tried, because their warmups and cooldowns differ.
2. *Periodic middle*: CP-SAT searches for a schedule of few micro-batches whose makespan meets the bound. Some of its
   micro-batches are *tied*: they repeat with the period. All others are *free*. More periods are then inserted into the
   tied part.
3. Polishing repeats step 2 for makespans between the bound and the best schedule.

Shorter schedules that do not keep the repetend go to the incumbent.

Inserting periods of T ticks is valid if there is a time t such that, for every block, a tied run starts in [t, t + T)
and another tied run follows. Then the same runs are pending at t and at t + T, so the window [t, t + T) can be
repeated. It is enough that the first tied runs of all blocks start within (tied micro-batches / unroll - 2) * T of each
other (`RunsModel._insertable`).
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

_JOINING_SHARE, _MIN_JOINING_SHARE = 0.0115, 0.2
"""Share of the polish time in which to find one schedule that has both the proved period and the proved makespan.

The share is the first number times the square of the number of devices, but at least the second number. If the proofs
took longer than this limit, a quarter of the limit remains.
"""
_MAX_PERIOD_MULTIPLE = 4
"""A schedule that repeats with this multiple of the period, or a smaller one, also keeps the repetend."""
_MAX_MODEL_RUNS = 6_000
"""Largest number of runs in a model. Larger models are not worth starting."""
_MAX_REPETEND_RUNS = 150
"""Largest number of runs per period for which models are built."""
_SMALL_GAP = 0.002
"""If the gap between makespan and bound is below this fraction of the makespan, polishing is the only step.

Only plans with fine costs (such as nanoseconds) have such gaps.
"""
_OTHER_REPETENDS_S = {Goal.LATENCY: 0.5, Goal.EARLY: 0.15}
"""Seconds to search another repetend of the same period, for each goal.

A good repetend is found long before it is proved best.
"""
_ENDS_BOUND_S = 1.2
_SECOND_ROUND_S = 2.0
"""Seconds per geometry (see `_Geometry`) in the second round, for geometries without an answer in the first round."""
_FIRST_ROUND_S, _UNSURE_BOUND_S = 1.0, 0.1
"""Seconds per geometry in the first round, and in a search before the last ends bound is known."""


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Numbers of micro-batches: free ones in the warmup, tied ones after them, and free ones in the cooldown.

    Tied micro-batches repeat with the period (see the module).
    """

    warmup: int
    tied: int
    cooldown: int

    @property
    def micro_batches(self) -> int:
        return self.warmup + self.tied + self.cooldown

    def insert(self, starts: IntColumn, inserted: int, period: int, unroll: int) -> IntColumn:
        """Return starts with `inserted` more micro-batches at the end of the tied part.

        All later micro-batches are delayed by whole periods. `starts` is shaped (micro-batches, blocks), and `period`
        is in ticks.
        """
        if not inserted:
            return starts
        end = self.warmup + self.tied
        turns = 1 + np.arange(inserted) // unroll
        copies = end - unroll + np.arange(inserted) % unroll
        middle = starts[copies] + (turns * period)[:, None]
        return np.concatenate([starts[:end], middle, starts[end:] + inserted // unroll * period])


class Completion:
    """The best schedule that keeps a repetend, and the steps that shorten it.

    All schedules are also offered to the incumbent.
    """

    def __init__(self, repetend: Repetend, incumbent: Incumbent, effort: Effort, control: Control) -> None:
        self.plan, self.repetend, self.micro_batches = repetend.plan, repetend, incumbent.micro_batches
        self.incumbent, self.effort, self.control = incumbent, effort, control
        self.best = repetend.expand(self.micro_batches)
        """Shortest schedule that keeps the repetend.

        If there are too few micro-batches to repeat, the shortest schedule of all.
        """
        self._mirror = find_mirror(self.plan)
        self._least_latency = repetend.latency
        self._joining_s: float | None = None
        self.cut_short = False
        """Whether the clock ended the polishing, which makes its result irreproducible."""
        self._impossible: set[tuple[_Geometry, int, bool]] = set()
        instance = int(repetend.first_start.max() // repetend.period + 1) * repetend.unroll
        self._shortest_stretch = min(instance, max(repetend.unroll + 1, self.micro_batches // 4))
        incumbent.offer(self.best.starts, "repetend")

    @property
    def steady(self) -> Schedule | None:
        """Best schedule that keeps the repetend, or None if there are too few micro-batches to repeat."""
        return self.best if self.best.repetend is not None else None

    def begin(self) -> None:
        """Run the steps that take little time: left-compaction, a list schedule and the published orders."""
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
        """Run the other steps. The last one, polishing, takes at most `polish_s` seconds.

        `proved` says whether the period is proved. If the makespan is proved too, all steps together take at most about
        `polish_s` seconds. They only look for a schedule that has this makespan and keeps the repetend.
        """
        self.control = control
        if self.too_large or self.done:
            return
        joining_s = polish_s * min(1.0, max(_MIN_JOINING_SHARE, _JOINING_SHARE * len(self.plan.devices) ** 2))
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
            if not self._mirror:  # for mirrored plans, `begin_mirrored` has computed the ends bound already
                self.meet_bound(_FIRST_ROUND_S)
                self.raise_bounds()
            if self._mirror or self.repetend.period <= FINE:
                self.meet_bound(_SECOND_ROUND_S)
        if not self.without_room:
            self.control = self.control.part(polish_s)
            self.polish()
            self.cut_short = self.control.stopped

    def _join_soon(self) -> None:
        """Limit the remaining time once period and makespan are proved. Slow proofs lead to a later limit."""
        wanted_s, elapsed_s = self._joining_s, self.control.elapsed_s
        if wanted_s is not None and self.incumbent.proved:
            end_s = max(wanted_s, 3 * elapsed_s) if elapsed_s < wanted_s else 0.0
            self.control, self._joining_s = self.control.part(max(wanted_s / 4, end_s - elapsed_s)), None

    def keep_shortest(self) -> None:
        """Make the incumbent the best schedule if it is shorter and repeats with a small multiple of the period."""
        starts, known = self.incumbent.starts, self.steady
        if known is None or known.makespan <= self.incumbent.makespan:
            return
        for turns in range(1, _MAX_PERIOD_MULTIPLE + 1):
            period, unroll = turns * self.repetend.period, turns * self.repetend.unroll
            steady = find_steady_state(starts, period, unroll)
            if steady is not None and self._is_long(steady):
                self.best = replace(Schedule.from_starts(self.plan, starts), repetend=steady)
                return

    def _is_long(self, steady: SteadyState) -> bool:
        """Return whether a steady state has more micro-batches than one period, and at least `_shortest_stretch`."""
        stretch = steady.last_micro_batch - steady.first_micro_batch + 1
        return stretch > steady.unroll and stretch >= self._shortest_stretch

    @property
    def bound(self) -> int:
        """Lower bound on the makespan in ticks."""
        return self.incumbent.bound

    @property
    def done(self) -> bool:
        """Whether the best schedule meets the bound, or the control has stopped."""
        return self.best.makespan <= self.bound or self.control.stopped

    @property
    def nearly_done(self) -> bool:
        """Whether the gap is so small that only polishing is worth the time."""
        return self.done or self.best.makespan - self.bound <= _SMALL_GAP * self.best.makespan

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Offer a schedule to the incumbent, and keep it as `best` if it is shorter and keeps the repetend.

        `by` names the method that found it. Return whether it is the new `best`.
        """
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
        """Whether the repetend has too many runs to build models of it."""
        return self.repetend.first_start.size > _MAX_REPETEND_RUNS

    @property
    def without_room(self) -> bool:
        """Whether there are fewer micro-batches than the repetend has in flight, so no instance of it is complete."""
        in_flight = ceil(Fraction(self._least_latency, self.repetend.period)) * self.repetend.unroll
        return self.micro_batches < in_flight

    def compact(self, repetend: Repetend) -> None:
        """Offer left-compacted schedules that repeat a repetend.

        In the first schedule, all runs may move. In the others, the micro-batches of a middle part still repeat with
        the period.
        """
        self._least_latency = min(self._least_latency, repetend.latency)
        unrolled = repetend.expand(self.micro_batches)
        self.offer(compacted(unrolled), "repetend")
        flight = ceil(Fraction(repetend.latency, repetend.period)) * repetend.unroll
        for free in (flight, flight // 2):
            tied = self.micro_batches - 2 * free
            if not self.done and tied > repetend.unroll:
                tie = Tie(repetend.period, repetend.unroll, free, tied)
                self.offer(compacted_with_tie(unrolled, tie), "repetend")

    def compact_another(self, goal: Goal, workers: int, most_s: float = inf) -> None:
        """Search for the repetend of the same period that is best for `goal`, and offer it left-compacted.

        The search takes at most `most_s` seconds.
        """
        self._join_soon()
        if self.done:
            return
        # Measured: linear relaxations speed up proofs for split backward passes, and slow down mirrored plans.
        seconds = min(most_s, _OTHER_REPETENDS_S[goal])
        effort = replace(self.effort.within(seconds), relaxation=not self._mirror, workers=workers)
        _, other = find_repetend(self.plan, self.repetend.period, self.repetend.unroll, goal, effort, self.control)
        if other is not None:
            self.compact(other)

    def begin_mirrored(self) -> None:
        """Left-compact the repetend of least latency, and compute the ends bound at the same time.

        This is for plans of two halves that are mirror images (see `find_mirror`).
        """
        workers, bounds, compacted = max(1, self.effort.workers // 2), [self.bound], threading.Event()

        def bound_ends(periods: float, workers: int) -> None:
            if not self.incumbent.proved:
                effort = replace(self.effort.within(_ENDS_BOUND_S), workers=workers)
                bounds.append(ends_bound(self.plan, self.micro_batches, periods, bounds[-1], effort, self.control))

        def bound_meanwhile() -> bool:
            """Compute the ends bound for short ends and, if there is time, for long ends.

            Return whether both bounds were computed.
            """
            bound_ends(ENDS_WINDOWS[0], workers)
            both = not compacted.is_set()
            if both:
                bound_ends(ENDS_WINDOWS[1], workers)
            return both

        with ThreadPoolExecutor(1) as beside:
            both = beside.submit(bound_meanwhile)
            if self.effort.workers == 1:
                both.result()  # one after another, so that the same seed gives the same answer
            self.compact_another(Goal.LATENCY, workers)
            compacted.set()
            finished = both.result()
        self.incumbent.raise_bound(max(bounds), "bound")
        if not finished:
            self.meet_bound(_UNSURE_BOUND_S)
            if not self.done:
                bound_ends(ENDS_WINDOWS[1], self.effort.workers)
                self.incumbent.raise_bound(max(bounds), "bound")

    def raise_bounds(self) -> None:
        """Compute the ends bound. Whenever the bound rises, search for a schedule that meets it."""
        for periods in ENDS_WINDOWS:
            if self.done or self.incumbent.proved:
                return
            effort = self.effort.within(_ENDS_BOUND_S)
            bound = ends_bound(self.plan, self.micro_batches, periods, self.bound, effort, self.control)
            if self.incumbent.raise_bound(bound, "bound"):
                self.meet_bound(_FIRST_ROUND_S)

    def meet_bound(self, seconds: float) -> None:
        """Search for a schedule whose makespan equals the bound, for up to `seconds` with each geometry."""
        # With fine costs, the bound is rarely met exactly. Ask for it once, then polish.
        once = self.repetend.period > FINE
        for geometry in list(self._geometries())[: 1 if once else None]:
            if self.done:
                return
            self._middle(geometry, self.bound, seconds, self._mirror)

    def polish(self) -> None:
        """Until time ends, search for a schedule whose makespan is halfway between the bound and the best.

        If no schedule of that makespan is found, the next makespan lies between that makespan and the best.
        """
        low = self.bound
        while not self.done and low < self.best.makespan:
            target = (low + self.best.makespan - 1) // 2
            third = self.control.remaining_s / 3
            seconds = max(_FIRST_ROUND_S, third) if self.effort.workers > 1 else _FIRST_ROUND_S * 2
            if not any(self._middle(geometry, target, seconds, {}) for geometry in self._geometries(folded=False)):
                low = target + 1

    def _middle(self, geometry: _Geometry, makespan: int, seconds: float, mirror: dict[int, int]) -> bool:
        """Search for a schedule of about `makespan` whose middle part is periodic. Return whether it is the new best.

        Fine costs are rounded for the model, and the order of its solution is timed exactly. With costs in nanoseconds
        CP-SAT propagates towards a contradiction in tiny steps, and ignores limits and cancels meanwhile.
        """
        self._join_soon()
        if geometry.micro_batches * len(self.plan.blocks) > _MAX_MODEL_RUNS or self.done:
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
        # Measured: one worker is fastest and stops at once. Linear relaxations help if a mirror halves the model.
        effort = replace(self.effort.within(seconds), workers=1, relaxation=bool(mirror))
        answer = ask(model.cp, effort, self.control, presolve=bool(mirror))
        if answer.verdict is Verdict.IMPOSSIBLE:
            self._impossible.add(question)
        if not answer.verdict.found:
            return False
        starts = geometry.insert(model.starts(answer), inserted, period, unroll)
        if check_schedule(Schedule.from_starts(plan, starts)):
            raise AssertionError("inserting periods into the tied part broke a rule")
        if quantum == 1:
            return self.offer(starts, "repetend")
        stretch = Tie(self.repetend.period, unroll, geometry.warmup, geometry.tied + inserted)
        return self.offer(compacted_with_tie(Schedule.from_starts(self.plan, starts), stretch), "repetend")

    def _geometries(self, *, folded: bool | None = None) -> Iterator[_Geometry]:
        """Yield geometries with about as many free micro-batches at each end as are in flight in the steady state.

        The differences from this number come from measurements. They allow for a latency that is not quite the least.
        `folded` tells whether a mirror halves the model, which needs smaller differences. By default, that depends on
        the plan.
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
            else:  # too few micro-batches to insert any: tie the least number that repeats
                stretch = unroll + 1 if total > unroll else 0
                free = max(0, min(free, (total - stretch) // 2))
                geometry = _Geometry(free, stretch, total - free - stretch)
            if geometry not in seen:
                seen.add(geometry)
                yield geometry
