"""One question over a range: micro-batches, or memory.  Every point is solved; nothing is extrapolated."""

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

_LEAST_CAPACITY_S = 2.0
_WHOLE_STEPS = 1_000

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Micro-batches at which a schedule is built or searched."""


@dataclass(frozen=True, slots=True)
class CountPoint:
    """The answer to one pair at one number of micro-batches."""

    pair: Question
    micro_batches: int
    """Of the pair whose micro-batches are smallest; this one has as many samples."""
    answer: Answer

    @property
    def idle(self) -> float | None:
        """Idle share of all devices' time from 0 to the makespan; None where there is no schedule."""
        report = self.answer.report
        return None if report is None or report.drawable is None else float(IdleSplit.of(report.drawable).idle)

    def time_each(self, *, per_sample: bool = False) -> Fraction | None:
        """Makespan / micro-batches, or / samples where the plan says how many its micro-batch has; in ticks."""
        report = self.answer.report
        of = self.pair.micro_batches * (self.pair.plan.samples or 1) if per_sample else self.micro_batches
        return None if report is None or report.makespan is None else Fraction(report.makespan, of)

    @property
    def fits(self) -> bool:
        """Whether there is a schedule that keeps the memory rule too."""
        return self.answer.report is not None and self.answer.report.solution is not None


@dataclass(frozen=True, slots=True)
class CountSweep:
    """Some pairs, each at several numbers of micro-batches, those of the pair that has the most.

    A pair that has half as many has half of each number, and none where that is not whole.
    """

    pairs: tuple[Question, ...]
    counts: tuple[int, ...] = COUNTS

    @property
    def points(self) -> int:
        """How many there are to solve."""
        return sum(1 for count in self.counts for pair in self.pairs if self._asked(pair, count))

    def _asked(self, pair: Question, count: int) -> Question | None:
        """The pair beside `count` micro-batches of the pair that has the most."""
        most = max(each.micro_batches for each in self.pairs)
        number, rest = divmod(count * pair.micro_batches, most)
        return None if rest else replace(pair, micro_batches=number)

    def solve(self, control: Control) -> tuple[CountPoint, ...]:
        """Answer all; every point is delivered as soon as it is there.

        Published orders come first, since they are only timed, then what is searched; both with smallest numbers first.
        """
        points: list[CountPoint] = []
        searched = [pair.scheduler not in BASELINES for pair in self.pairs]
        for of_searches, count in product((False, True), sorted(self.counts)):
            for pair, is_searched in zip(self.pairs, searched, strict=True):
                if control.stopped:
                    return tuple(points)
                if is_searched == of_searches and (asked := self._asked(pair, count)):
                    points.append(CountPoint(asked, count, Answer.to(asked, control.quiet())))
                    control.deliver(points[-1])
        return tuple(points)


def lines_of(pairs: tuple[Question, ...], points: Iterable[CountPoint]) -> tuple[tuple[CountPoint, ...], ...]:
    """The points of each pair, in the order in which they came."""
    found: dict[Question, list[CountPoint]] = {replace(pair, micro_batches=1): [] for pair in pairs}
    for point in points:
        found[replace(point.pair, micro_batches=1)].append(point)
    return tuple(map(tuple, found.values()))


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The least period found with one `memory_capacity` on every device."""

    capacity: int
    status: Status
    period: Fraction | None
    """Per micro-batch."""
    bound: Fraction
    """No schedule with this capacity, at any unroll, has a shorter period."""
    peak: int | None
    """Most that any device holds in the steady state."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CapacityRange:
    """Capacities worth asking about: from the least with any schedule to well beyond where more no longer helps."""

    least: int
    most: int
    divisor: float
    """Memory units per unit in which people choose."""
    unit: str

    @classmethod
    def of(cls, plan: MicroBatchPlan, control: Control) -> CapacityRange:
        """The range of a plan; takes a fraction of a second, for the search of the least capacity."""
        from tessel_core.cpsat import Effort
        from tessel_core.scheduling.search.capacity import least_capacity
        from tessel_core.scheduling.search.quick import quick_repetends

        free = plan.with_capacity(None)
        static = max(device.static_memory for device in plan.devices)
        least = least_capacity(plan, Effort(_LEAST_CAPACITY_S, 1, 0), control) or static
        own = max((device.memory_capacity or 0 for device in plan.devices), default=0)
        fast = [(each.period_per_micro_batch, _peak(each)) for each in quick_repetends(free, 1)]
        most = 2 * max(least, own, min(fast)[1] if fast else 0)
        divisor, unit = memory_scale(most, plan.memory_unit)
        return cls(least, most, divisor, many(unit))

    @property
    def shown(self) -> tuple[float, float]:
        """Both ends as people choose them."""
        return self.least / self.divisor, self.most / self.divisor

    @property
    def step(self) -> float:
        """The step of a slider over the range: a hundredth, or whole units where they are few."""
        return 1.0 if self.divisor == 1 and self.most <= _WHOLE_STEPS else (self.most - self.least) / self.divisor / 100

    def spread(self, chosen: tuple[float, float], points: int) -> tuple[int, ...]:
        """Up to `points` capacities, evenly from the first to the second that was chosen, both included."""
        least, most = (min(self.most, max(self.least, round(end * self.divisor))) for end in chosen)
        steps = max(1, min(points - 1, most - least))
        return tuple(dict.fromkeys(least + (most - least) * i // steps for i in range(steps + 1)))


@dataclass(frozen=True, slots=True)
class MemorySweep:
    """The least period of a plan at several capacities, with `config.time_limit` for each."""

    plan: MicroBatchPlan
    capacities: tuple[int, ...]
    config: TesselConfig

    def solve(self, control: Control) -> tuple[MemoryPoint, ...]:
        """Answer each, most memory first; every point is delivered as soon as it is there.

        A point is delivered again when a smaller capacity turned up something better for it.  Proved repetends are not
        searched again where they still fit: less memory never allows a shorter period.
        """
        points: dict[int, MemoryPoint] = {}
        for capacity in sorted(self.capacities, reverse=True):
            if control.stopped:
                break
            found = _known(capacity, points.values())
            found = found or _search(self.plan.with_capacity(capacity), capacity, self.config, control)
            for point in (found, *_improved(points.values(), found)):
                points[point.capacity] = point
                control.deliver(point)
        return latest_points(points.values())


def latest_points(delivered: Iterable[MemoryPoint]) -> tuple[MemoryPoint, ...]:
    """The last word on each capacity, least first."""
    latest = {point.capacity: point for point in delivered}
    return tuple(latest[capacity] for capacity in sorted(latest))


def _known(capacity: int, points: Collection[MemoryPoint]) -> MemoryPoint | None:
    """The point at a capacity below those of `points` where these are enough to tell it."""
    for point in points:
        fits = point.status is Status.PROVED_OPTIMAL and point.peak is not None and point.peak <= capacity
        if fits or point.status is Status.INFEASIBLE:
            return replace(point, capacity=capacity)
    return None


def _improved(points: Collection[MemoryPoint], found: MemoryPoint) -> list[MemoryPoint]:
    """The points of larger capacities whose periods are above that of `found`, with its period."""
    better = []
    for point in points:
        if found.period is not None and point.period is not None and found.period < point.period:
            status = Status.PROVED_OPTIMAL if found.period == point.bound else Status.FEASIBLE
            better.append(replace(point, period=found.period, peak=found.peak, status=status))
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
    """Most that any device holds while the repetend repeats."""
    in_flight = int(repetend.first_start.max()) // repetend.period + 1
    return max(MemoryProfile.of(repetend.expand(2 * in_flight * repetend.unroll)).peaks)
