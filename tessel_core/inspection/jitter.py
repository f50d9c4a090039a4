"""Schedules with random durations: quantiles of the makespan, and how often each schedule ends first.

Each device keeps the order of its runs.  Each run starts as early as that order, its dependencies and their lags allow.
Lags do not vary.  With a spread of 0, every draw has the makespan `OrderGraph.makespan`, which is less than that of the
schedule if the schedule starts runs later than necessary.

No draw needs more memory than the schedule. Runs of a device never overlap, so it acquires and releases memory in the
same order in every draw. At the same moment, releases come first.
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
_MIN_DRAWS = 100
_MAX_RUNS_DRAWN = 20_000_000
"""Largest number of draws x runs over all schedules; drawing them takes about a second."""
_CACHED_DURATIONS, _MAX_DURATIONS, _MIN_CHUNK_DRAWS = 1_000_000, 16_000_000, 128
"""A chunk has as many durations as fit the cache, or more (up to 128 MB) if it would have fewer than 128 draws."""
_ROUNDING = 1e-9
"""Makespans with a smaller relative difference count as equal, because the order of addition changes a sum of floats.
"""
_SAME_WORK = 1e-3
"""Largest relative difference of amounts of work that count as equal.

They differ because plans round durations to ticks.
"""


@dataclass(frozen=True, slots=True)
class Jitter:
    """How durations vary. They have a lognormal distribution whose mean is the plan's duration.

    So durations stay positive, and slow runs are further from the mean than fast ones, as is usual for times of tasks
    [Law, Simulation Modeling and Analysis, 2015, ch. 6].
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
        """Return a copy with fewer draws, but at least 100, if all draws of these schedules would take too long."""
        most = _MAX_RUNS_DRAWN // max(1, sum(len(each.start) for each in schedules))
        return replace(self, draws=min(self.draws, max(_MIN_DRAWS, most)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Jittered:
    """The makespans of one schedule over all draws, in ticks."""

    nominal: int
    """Makespan of the order without jitter."""
    mean: float
    p50: float
    p95: float
    chance: float | None
    """Fraction of draws in which it ends first.

    A draw with a tie is divided between the schedules. None if it exceeds a capacity or has no competitor.
    """


def under_jitter(schedules: Sequence[Schedule], jitter: Jitter) -> tuple[Jittered, ...]:
    """Evaluate all schedules under the same draws. Schedules that fit and do equal work compete for ending first.

    Raises ValueError if runs of a schedule are missing or repeated.
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
    """Return the makespan of an order in each draw, in ticks.

    Chunks of draws limit memory and do not change results.
    """
    runs = max(1, len(graph.schedule.start))
    width = max(1, _CACHED_DURATIONS // runs, min(_MIN_CHUNK_DRAWS, _MAX_DURATIONS // runs))
    durations = durations_of(graph.schedule, jitter)
    chunks = (min(width, jitter.draws - first) for first in range(0, jitter.draws, width))
    return np.concatenate([graph.makespans(durations(draws)) for draws in chunks])


Durations = Callable[[int], Floats]
"""Function from a number of draws to the durations of all runs in the next draws, shaped (runs, draws), in ticks."""


def durations_of(schedule: Schedule, jitter: Jitter) -> Durations:
    """Return the generator of a schedule's durations, which begins with the first draw.

    Common random numbers [Law 2015, ch. 11]: blocks with equal name, kind and devices have equal factors in every plan
    with the same number of micro-batches.  The same holds for devices with equal names.
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
    """Return a random generator that depends only on the seed and the name, not on the size of chunks."""
    digest = sha256("\0".join(name).encode()).digest()
    return np.random.default_rng([jitter.seed, int.from_bytes(digest)])


def _factors(stream: np.random.Generator, shape: tuple[int, ...], spread: float) -> Floats:
    """Return random factors exp(v^½ · normal - v / 2) with v = ln(1 + spread²), which has mean 1 and standard deviation
    `spread`.
    """
    variance = math.log1p(spread**2)
    return np.exp(math.sqrt(variance) * stream.standard_normal(shape) - variance / 2)


def _chances(schedules: Sequence[Schedule], drawn: Sequence[Floats]) -> dict[int, float]:
    """Return, for the position of each competing schedule, the fraction of draws in which it ends first."""
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
    """Group positions of schedules by their total work, least work first."""
    return alike([each.micro_batches * sum(each.plan.work) for each in schedules])


def alike(works: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Group positions by work that is equal up to rounding, least work first."""
    groups = list[list[int]]()
    for i in sorted(range(len(works)), key=works.__getitem__):
        if groups and works[i] <= works[groups[-1][0]] * (1 + _SAME_WORK):
            groups[-1].append(i)
        else:
            groups.append([i])
    return tuple(map(tuple, groups))
