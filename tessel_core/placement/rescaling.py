"""Rescaling of costs, because sums and differences of floats are accurate only for numbers of similar magnitude.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and consumers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np

from tessel_core.placement.moves import measured
from tessel_core.placement.pipeline import Best, DeviceClass, Pipeline, Split

_MAX_RATIO = 2.0**12
"""If a time or cost is more than this many times a load, differences of sums have large rounding errors."""
_MIN_LOAD = 2.0**-900
"""Smallest load for which products and quotients keep all digits of floats."""

Search = Callable[[Pipeline, Split | None], Best]
"""Function from a pipeline and a known split (or None) to the best split of groups over devices."""


class Scalable(Protocol):
    """A problem whose unit of time can be changed."""

    @property
    def largest(self) -> float:
        """Largest time or cost of a single group or net."""

    def measured(self, split: Split) -> Split:
        """Return the split with its load, summed anew from times and costs."""

    def near(self, load: float, exponent: int) -> Self:
        """Return the problem in units of 2^exponent, without times that splits with a load up to `load` cannot have."""


Problem = TypeVar("Problem", bound=Scalable)


@dataclass(frozen=True)
class _Whole:
    """A pipeline and the objective of its splits."""

    pipeline: Pipeline
    objective: str

    @property
    def largest(self) -> float:
        return largest(self.pipeline)

    def measured(self, split: Split) -> Split:
        return measured(self.pipeline.parts(self.objective), split.device_of)

    def near(self, load: float, exponent: int) -> _Whole:
        return replace(self, pipeline=near(self.pipeline, load, exponent))


def rescaled_search(pipeline: Pipeline, objective: str, known: Split | None, search: Search) -> Best:
    """Return the result of `rescaled` for the splits of a pipeline."""
    return rescaled(_Whole(pipeline, objective), known, lambda whole, start: search(whole.pipeline, start))


def rescaled(problem: Problem, known: Split | None, search: Callable[[Problem, Split | None], Best]) -> Best:
    """Return the result of `search`, repeated in units near the load if some time or cost is far above the load.

    The second search leaves out only splits that are worse than the first result, so its bound holds for all splits.
    """
    best = search(problem, known)
    if best.split is None:
        return best
    first = problem.measured(best.split)
    if first.load == 0 or (first.load >= _MIN_LOAD and problem.largest <= first.load * _MAX_RATIO):
        return best
    exponent = math.frexp(first.load)[1]
    start = replace(first, load=math.ldexp(first.load, -exponent))
    again = rescaled(problem.near(first.load, exponent), start, search)
    split = first if again.split is None else again.split
    bound = min(math.ldexp(again.bound, exponent), first.load)
    return Best(problem.measured(split), bound, again.complete)


def largest(pipeline: Pipeline) -> float:
    """Return the largest finite time of a group, or cost of a net."""
    times = (float(each.time[np.isfinite(each.time)].max(initial=0.0)) for each in pipeline.classes)
    return max(*times, *(net.cost for net in pipeline.nets), 0.0)


def near(pipeline: Pipeline, load: float, exponent: int) -> Pipeline:
    """Return the pipeline with times in units of 2^exponent. Groups that take longer than `load` become unsupported.

    Costs of nets are capped at twice `load`, because a split with a load of at most `load` cannot cut a net that costs
    more.
    """

    def scaled(cost: float) -> float:
        return math.ldexp(min(cost, 2 * load), -exponent)

    nets = tuple(replace(net, cost=scaled(net.cost), backward=scaled(net.backward)) for net in pipeline.nets)
    classes = tuple(_class_near(each, load, exponent) for each in pipeline.classes)
    if any(each.loads_are_bytes for each in classes):
        pipeline = replace(pipeline, kept=np.ldexp(pipeline.kept, -exponent))
    return replace(pipeline, classes=classes, nets=nets)


def _class_near(each: DeviceClass, load: float, exponent: int) -> DeviceClass:
    within = each.time <= load * (1 + 1e-9)
    time = np.where(within, np.ldexp(np.where(within, each.time, 0.0), -exponent), np.inf)
    return replace(each, time=time, backward=np.ldexp(np.where(within, each.backward, 0.0), -exponent))
