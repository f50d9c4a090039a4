"""Curves over the number of micro-batches, or over memory. Every point is solved, and none is extrapolated."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from tessel_core.control import Control
from tessel_core.inspection import IdleSplit
from tessel_core.model import MemoryProfile, MicroBatchPlan, Repetend, Status
from tessel_core.scheduling.bounds import period_bound
from tessel_core.scheduling.comparison import Answer
from tessel_core.scheduling.schedulers import BASELINES, Question
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.units import many, memory_scale

_LEAST_CAPACITY_SEARCH_S = 2.0
_MAX_WHOLE_STEPS = 1_000
"""Largest capacity for which the slider of the page moves by whole units."""

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of micro-batches for which a curve has points."""


@dataclass(frozen=True, slots=True)
class CountPoint:
    """The answer for one pair and one number of micro-batches."""

    pair: Question
    micro_batches: int
    """Number of micro-batches of the pair that has the most. All pairs run the same number of samples."""
    answer: Answer

    @property
    def idle(self) -> float | None:
        """Idle share of all devices' time from 0 to the makespan, or None without a schedule."""
        report = self.answer.report
        return None if report is None or report.drawable is None else float(IdleSplit.of(report.drawable).idle)

    def time_each(self, *, per_sample: bool = False) -> Fraction | None:
        """Return the makespan in ticks divided by `micro_batches`, or by the samples with `per_sample`.

        None if there is no schedule.
        """
        report = self.answer.report
        of = self.pair.micro_batches * (self.pair.plan.samples or 1) if per_sample else self.micro_batches
        return None if report is None or report.makespan is None else Fraction(report.makespan, of)

    @property
    def fits(self) -> bool:
        """Whether there is a schedule that fits in memory."""
        return self.answer.report is not None and self.answer.report.solution is not None


@dataclass(frozen=True, slots=True)
class CountSweep:
    """Pairs (plan, scheduler) to solve for several numbers of micro-batches.

    `counts` are the numbers for the pair with the most micro-batches. A pair with half as many micro-batches gets half
    of each count. Such a pair has no point for an odd count.
    """

    pairs: tuple[Question, ...]
    counts: tuple[int, ...] = COUNTS

    @property
    def points(self) -> int:
        """Number of points to solve."""
        return sum(1 for count in self.counts for pair in self.pairs if self._at(pair, count))

    def _at(self, pair: Question, count: int) -> Question | None:
        """Return the pair with as many samples as `count` micro-batches of the pair with the most micro-batches.

        None if these samples are not a whole number of micro-batches.
        """
        most = max(each.micro_batches for each in self.pairs)
        number, rest = divmod(count * pair.micro_batches, most)
        return None if rest else replace(pair, micro_batches=number)

    def solve(self, control: Control) -> tuple[CountPoint, ...]:
        """Solve all points, and deliver each to `control` as soon as it is known.

        Published orders come before searches, because they are fast. Among the published orders, and among the
        searches, small counts come first.
        """
        points: list[CountPoint] = []
        searched = [pair.scheduler not in BASELINES for pair in self.pairs]
        for of_searches, count in product((False, True), sorted(self.counts)):
            for pair, is_searched in zip(self.pairs, searched, strict=True):
                if control.stopped:
                    return tuple(points)
                if is_searched == of_searches and (question := self._at(pair, count)):
                    points.append(CountPoint(question, count, Answer.to(question, control.quiet())))
                    control.deliver(points[-1])
        return tuple(points)


def lines_of(pairs: tuple[Question, ...], points: Iterable[CountPoint]) -> tuple[tuple[CountPoint, ...], ...]:
    """Return one tuple of points for each pair, in the order of `pairs`."""
    lines: dict[Question, list[CountPoint]] = {replace(pair, micro_batches=1): [] for pair in pairs}
    for point in points:
        lines[replace(point.pair, micro_batches=1)].append(point)
    return tuple(map(tuple, lines.values()))


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The shortest period found with the same `memory_capacity` on every device."""

    capacity: int
    status: Status
    period: Fraction | None
    """Period per micro-batch in ticks."""
    bound: Fraction
    """Lower bound on the period per micro-batch with this capacity, at any unroll."""
    peak: int | None
    """Largest memory that any device holds in the steady state."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CapacityRange:
    """Range of capacities worth trying: from the least that allows a schedule to twice what a fast schedule needs."""

    least: int
    most: int
    divisor: float
    """Memory units of the plan per unit shown to the user."""
    unit: str

    @classmethod
    def of(cls, plan: MicroBatchPlan, control: Control) -> CapacityRange:
        """Compute the range for a plan. The search for the least capacity takes a fraction of a second."""
        from tessel_core.cpsat import Effort
        from tessel_core.scheduling.search.capacity import least_capacity
        from tessel_core.scheduling.search.quick import quick_repetends

        free = plan.with_capacity(None)
        static = max(device.static_memory for device in plan.devices)
        least = least_capacity(plan, Effort(_LEAST_CAPACITY_SEARCH_S, 1, 0), control) or static
        own = max((device.memory_capacity or 0 for device in plan.devices), default=0)
        fast = [(each.period_per_micro_batch, _peak(each)) for each in quick_repetends(free, 1)]
        most = 2 * max(least, own, min(fast)[1] if fast else 0)
        divisor, unit = memory_scale(most, plan.memory_unit)
        return cls(least, most, divisor, many(unit))

    @property
    def shown(self) -> tuple[float, float]:
        """Least and largest capacity in the unit shown to the user."""
        return self.least / self.divisor, self.most / self.divisor

    @property
    def step(self) -> float:
        """Step of a slider over the range: one unit if the range has few units, else a hundredth of the range."""
        few = self.divisor == 1 and self.most <= _MAX_WHOLE_STEPS
        return 1.0 if few else (self.most - self.least) / self.divisor / 100

    def spread(self, chosen: tuple[float, float], points: int) -> tuple[int, ...]:
        """Return up to `points` evenly spaced capacities in memory units, from one chosen end to the other.

        `chosen` has both ends in the unit shown to the user.
        """
        least, most = (min(self.most, max(self.least, round(end * self.divisor))) for end in chosen)
        steps = max(1, min(points - 1, most - least))
        return tuple(dict.fromkeys(least + (most - least) * i // steps for i in range(steps + 1)))


@dataclass(frozen=True, slots=True)
class MemorySweep:
    """A plan, and the capacities at which to search its shortest period, for `config.time_limit` seconds each."""

    plan: MicroBatchPlan
    capacities: tuple[int, ...]
    config: TesselConfig

    def solve(self, control: Control) -> tuple[MemoryPoint, ...]:
        """Solve all points from the largest capacity down, and deliver each to `control` as soon as it is known.

        A point is delivered again if the search at a smaller capacity finds a shorter period. If a repetend is proved
        optimal, smaller capacities that it fits need no search, because less memory never allows a shorter period.
        """
        points: dict[int, MemoryPoint] = {}
        for capacity in sorted(self.capacities, reverse=True):
            if control.stopped:
                break
            new = _known(capacity, points.values())
            new = new or _search(self.plan.with_capacity(capacity), capacity, self.config, control)
            for point in (new, *_improved(points.values(), new)):
                points[point.capacity] = point
                control.deliver(point)
        return latest_points(points.values())


def latest_points(delivered: Iterable[MemoryPoint]) -> tuple[MemoryPoint, ...]:
    """Return the last point delivered for each capacity, in ascending order."""
    latest = {point.capacity: point for point in delivered}
    return tuple(latest[capacity] for capacity in sorted(latest))


def _known(capacity: int, points: Collection[MemoryPoint]) -> MemoryPoint | None:
    """Return the point of `capacity` if it follows from `points` of larger capacities. None if it needs a search."""
    for point in points:
        fits = point.status is Status.PROVED_OPTIMAL and point.peak is not None and point.peak <= capacity
        if fits or point.status is Status.INFEASIBLE:
            return replace(point, capacity=capacity)
    return None


def _improved(points: Collection[MemoryPoint], new: MemoryPoint) -> list[MemoryPoint]:
    """Return the points whose periods are longer than that of `new`, with the period of `new`.

    The period of `new` is valid for these points, because their capacities are larger.
    """
    better = []
    for point in points:
        if new.period is not None and point.period is not None and new.period < point.period:
            status = Status.PROVED_OPTIMAL if new.period == point.bound else Status.FEASIBLE
            better.append(replace(point, period=new.period, peak=new.peak, status=status))
    return better


def _search(plan: MicroBatchPlan, capacity: int, config: TesselConfig, control: Control) -> MemoryPoint:
    from tessel_core.cpsat import Effort, Verdict
    from tessel_core.scheduling.search.capacity import find_fitting_order
    from tessel_core.scheduling.search.period_search import search_period

    control = control.part(config.time_limit).quiet()
    effort = Effort(config.time_limit, config.workers, config.seed, repeatable=config.workers == 1)
    verdict, order = find_fitting_order(plan, effort, control)
    if order is None:
        infeasible = verdict is Verdict.IMPOSSIBLE
        reason = "one micro-batch alone does not fit" if infeasible else "no order was found in time"
        status = Status.INFEASIBLE if infeasible else Status.NOTHING_FOUND
        return MemoryPoint(capacity, status, None, period_bound(plan), None, reason)
    search = search_period(plan, order, config.max_unroll, effort, control)
    status = Status.PROVED_OPTIMAL if search.proved else Status.FEASIBLE
    period = search.repetend.period_per_micro_batch
    return MemoryPoint(capacity, status, period, search.bound, _peak(search.repetend))


def _peak(repetend: Repetend) -> int:
    """Return the largest memory that any device holds while the repetend repeats."""
    in_flight = int(repetend.first_start.max()) // repetend.period + 1
    return max(MemoryProfile.of(repetend.expand(2 * in_flight * repetend.unroll)).peaks)
