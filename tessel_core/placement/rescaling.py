"""Loads of any magnitude: sums and differences of floats are exact only among numbers of similar size."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tessel_core.placement.moves import measured
from tessel_core.placement.pipeline import Best, DeviceClass, Pipeline, Split

_UNLIKE = 2.0**12
"""Times and costs that are so much larger than a load leave rounding errors in differences of their sums."""
_TINY = 2.0**-900
"""Below this, products and quotients with loads leave the range of floats, or lose digits."""

Search = Callable[[Pipeline, Split | None], Best]
"""The best split of a pipeline, from one that is known if there is one."""


def rescaled_search(pipeline: Pipeline, objective: str, known: Split | None, search: Search) -> Best:
    """The result of `search`, repeated near the load that it found where the pipeline has far larger times or costs.

    The second search leaves out only splits that are worse, so its bound holds for all.
    """
    best = search(pipeline, known)
    if best.split is None:
        return best
    found = measured(pipeline.parts(objective), best.split.device_of)
    if found.load == 0 or (found.load >= _TINY and _largest(pipeline) <= found.load * _UNLIKE):
        return best
    exponent = math.frexp(found.load)[1]
    near = _near(pipeline, found.load, exponent)
    again = rescaled_search(near, objective, Split(math.ldexp(found.load, -exponent), found.device_of), search)
    split = found if again.split is None else again.split
    bound = min(math.ldexp(again.bound, exponent), found.load)
    return Best(measured(pipeline.parts(objective), split.device_of), bound, again.complete)


def _largest(pipeline: Pipeline) -> float:
    """The largest time or cost."""
    times = (float(each.time[np.isfinite(each.time)].max(initial=0.0)) for each in pipeline.classes)
    return max(*times, *(net.cost for net in pipeline.nets), 0.0)


def _near(pipeline: Pipeline, load: float, exponent: int) -> Pipeline:
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
