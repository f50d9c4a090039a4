"""Schedules whose durations vary: the makespan's quantiles, and how often which one ends first.

Each device keeps its runs in the schedule's order, and each run starts as early as that order, its dependencies and
their lags allow; lags do not vary.  So with a spread of 0 every draw is `OrderGraph.makespan`, the makespan of the
order's earliest starts, which is below the schedule's own where that starts runs later than it needs to.

No draw holds more than the schedule does.  The runs of a device, also those that it shares with others, never overlap
there, so that its acquires and releases come one after the other as its order says; releases come first on a tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from tessel_core.inspection.moments import numbers_of
from tessel_core.inspection.order import OrderGraph
from tessel_core.model import MemoryProfile, Schedule
from tessel_core.options import Option, check_options, option

Floats = NDArray[np.float64]

RUN, DEVICE = "run", "device"
USUAL_DRAWS = 10_000
_LEAST_DRAWS = 100
_RUNS_DRAWN = 20_000_000
"""Draws x runs of all schedules together that a person waits for: about a second."""
_IN_CACHE, _HELD, _WIDE = 1_000_000, 16_000_000, 128
"""Durations of a chunk: as many as caches hold; more, up to 128 MB, where a chunk would have fewer than 128 draws."""
_ROUNDING = 1e-9
"""The same durations summed in another order differ by less, relatively, and are a tie."""
_SAME_WORK = 1e-3
"""Plans round each duration to ticks: works that differ by less, relatively, are the same."""


@dataclass(frozen=True, slots=True)
class Jitter:
    """How durations vary: lognormally, so that they stay positive and slow is further from the mean than fast, as times
    of tasks are [Law, Simulation Modeling and Analysis, 2015, ch. 6]; the mean is the plan's duration.
    """

    spread: float = option(0.1, Option("Spread", "Standard deviation of a duration, divided by its mean.", 0.0, 1.0))
    of: str = option(
        RUN,
        Option(
            "Jitter of",
            "run: the duration of each run varies by itself. device: all runs of a device vary by the same factor; a "
            "run on "
            "several devices takes as long as on the slowest.",
            choices=(RUN, DEVICE),
        ),
    )
    draws: int = option(
        USUAL_DRAWS,
        Option(
            "Draws",
            "Number of draws of all durations. More draws give more exact quantiles and take longer.",
            1,
            1_000_000,
        ),
    )
    seed: int = option(1, Option("Seed", "Seed of the draws. The same seed draws the same durations.", 0, 2**31 - 1))

    def __post_init__(self) -> None:
        check_options(self)

    def affordable(self, schedules: Sequence[Schedule]) -> Jitter:
        """With fewer draws, but at least 100, where as many of all these schedules would keep a person waiting."""
        most = _RUNS_DRAWN // max(1, sum(len(each.start) for each in schedules))
        return replace(self, draws=min(self.draws, max(_LEAST_DRAWS, most)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Jittered:
    """The makespans of one schedule over all draws, in ticks."""

    nominal: int
    """Of the order's earliest starts, without jitter."""
    mean: float
    p50: float
    p95: float
    chance: float | None
    """Share of the draws in which it ends first, ties split; None where it exceeds a capacity or competes with none."""


def under_jitter(schedules: Sequence[Schedule], jitter: Jitter) -> tuple[Jittered, ...]:
    """All schedules under the same draws; who ends first is asked among those that fit and whose plans do equal work.

    Raises ValueError where runs of a schedule are missing or repeated.
    """
    drawn = [(graph.makespan, makespans(graph, jitter)) for graph in map(OrderGraph.of, schedules)]
    chances = _chances(schedules, [each for _, each in drawn])
    return tuple(
        Jittered(
            nominal=nominal,
            mean=float(each.mean()),
            p50=float(np.quantile(each, 0.5)),
            p95=float(np.quantile(each, 0.95)),
            chance=chances.get(i),
        )
        for i, (nominal, each) in enumerate(drawn)
    )


def makespans(graph: OrderGraph, jitter: Jitter) -> Floats:
    """The makespan of an order in each draw, in ticks; draws are made in chunks, which change nothing."""
    runs = max(1, len(graph.schedule.start))
    width = max(1, _IN_CACHE // runs, min(_WIDE, _HELD // runs))
    durations = durations_of(graph.schedule, jitter)
    chunks = (min(width, jitter.draws - first) for first in range(0, jitter.draws, width))
    return np.concatenate([graph.makespans(durations(draws)) for draws in chunks])


Durations = Callable[[int], Floats]
"""The ticks that each run lasts in so many further draws, shaped (runs, draws)."""


def durations_of(schedule: Schedule, jitter: Jitter) -> Durations:
    """All draws of a schedule's durations, from the first on.

    Common random numbers [Law 2015, ch. 11]: blocks of equal name, kind and devices have equal factors in every plan,
    micro-batch by micro-batch, where the numbers of micro-batches are equal; so have devices of equal name.
    """
    return _DURATIONS[jitter.of](schedule, jitter)


def _per_run(schedule: Schedule, jitter: Jitter) -> Durations:
    plan, rows = schedule.plan, numbers_of(schedule)
    names = [[plan.devices[d].name for d in each.devices] for each in plan.blocks]
    streams = [_stream(jitter, each.name, each.kind, *on) for each, on in zip(plan.blocks, names, strict=True)]

    def durations(draws: int) -> Floats:
        ticks = np.empty((rows.size, draws))
        for b, stream in enumerate(streams):
            ticks[rows[:, b]] = plan.blocks[b].duration * _factors(stream, (draws, len(rows)), jitter.spread).T
        return ticks

    return durations


def _per_device(schedule: Schedule, jitter: Jitter) -> Durations:
    plan = schedule.plan
    streams = [_stream(jitter, device.name) for device in plan.devices]

    def durations(draws: int) -> Floats:
        factors = np.array([_factors(stream, (draws,), jitter.spread) for stream in streams])
        ticks = np.array([each.duration * factors[list(each.devices)].max(axis=0) for each in plan.blocks])
        return ticks[schedule.block]

    return durations


_DURATIONS: dict[str, Callable[[Schedule, Jitter], Durations]] = {RUN: _per_run, DEVICE: _per_device}


def _stream(jitter: Jitter, *name: str) -> np.random.Generator:
    """Random numbers that only the seed and the name decide; however they are cut into chunks, they are the same."""
    digest = sha256("\0".join(name).encode()).digest()
    return np.random.default_rng([jitter.seed, int.from_bytes(digest)])


def _factors(stream: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """exp(v^½ · normal - v / 2) with v = ln(1 + spread²): the mean is 1 and the standard deviation is `spread`."""
    variance = math.log1p(spread**2)
    return np.exp(math.sqrt(variance) * stream.standard_normal(shape) - variance / 2)


def _chances(schedules: Sequence[Schedule], drawn: Sequence[Floats]) -> dict[int, float]:
    """By position, the share of draws that a schedule wins, of those that compete."""
    fit = [i for i, each in enumerate(schedules) if not any(MemoryProfile.of(each).excess)]
    chances = dict[int, float]()
    for group in equal_work([schedules[i] for i in fit]):
        if len(group) > 1:
            of = [fit[i] for i in group]
            table = np.array([drawn[i] for i in of])
            first = table <= table.min(axis=0) * (1 + _ROUNDING)
            chances |= zip(of, (first / first.sum(axis=0)).mean(axis=1).tolist(), strict=True)
    return chances


def equal_work(schedules: Sequence[Schedule]) -> tuple[tuple[int, ...], ...]:
    """Positions of the schedules, least work first, in groups of equal device time in all."""
    return alike([each.micro_batches * sum(each.plan.work) for each in schedules])


def alike(works: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Positions, least work first, in groups of equal work, to rounding."""
    groups = list[list[int]]()
    for i in sorted(range(len(works)), key=works.__getitem__):
        if groups and works[i] <= works[groups[-1][0]] * (1 + _SAME_WORK):
            groups[-1].append(i)
        else:
            groups.append([i])
    return tuple(map(tuple, groups))
