"""Loads of any magnitude: sums and differences of floats are exact only among numbers of similar size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np

from tessel_core.placement.moves import measured
from tessel_core.placement.pipeline import Best, DeviceClass, Pipeline, Split

_UNLIKE = 2.0**12
"""Times and costs that are so much larger than a load leave rounding errors in differences of their sums."""
_TINY = 2.0**-900
"""Below this, products and quotients with loads leave the range of floats, or lose digits."""

Search = Callable[[Pipeline, Split | None], Best]
"""The best split of a pipeline, from one that is known if there is one."""


class Scalable(Protocol):
    """What splits are sought of, in units that can be changed."""

    @property
    def largest(self) -> float:
        """The largest time or cost."""

    def measured(self, split: Split) -> Split:
        """The split with its load, computed without differences."""

    def near(self, load: float, exponent: int) -> Self:
        """In units of 2^exponent, without what no split of that load or less has."""


Asked = TypeVar("Asked", bound=Scalable)


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
    """As `rescaled`, for the splits of a pipeline."""
    return rescaled(_Whole(pipeline, objective), known, lambda asked, beaten: search(asked.pipeline, beaten))


def rescaled(asked: Asked, known: Split | None, search: Callable[[Asked, Split | None], Best]) -> Best:
    """The result of `search`, repeated near the load that it found where there are far larger times or costs.

    The second search leaves out only splits that are worse, so its bound holds for all.
    """
    best = search(asked, known)
    if best.split is None:
        return best
    found = asked.measured(best.split)
    if found.load == 0 or (found.load >= _TINY and asked.largest <= found.load * _UNLIKE):
        return best
    exponent = math.frexp(found.load)[1]
    start = replace(found, load=math.ldexp(found.load, -exponent))
    again = rescaled(asked.near(found.load, exponent), start, search)
    split = found if again.split is None else again.split
    bound = min(math.ldexp(again.bound, exponent), found.load)
    return Best(asked.measured(split), bound, again.complete)


def largest(pipeline: Pipeline) -> float:
    """The largest time or cost."""
    times = (float(each.time[np.isfinite(each.time)].max(initial=0.0)) for each in pipeline.classes)
    return max(*times, *(net.cost for net in pipeline.nets), 0.0)


def near(pipeline: Pipeline, load: float, exponent: int) -> Pipeline:
    """In units of 2^exponent, without times above `load`, which no split of that load or less has.

    A net that costs more than that cannot be cut where it costs, so what it costs beyond does not matter.
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
