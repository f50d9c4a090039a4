"""What no placement can beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tessel_core.placement.stages import DeviceClass, Floats, Pipeline

_MOST_PRICES = 256


@dataclass(frozen=True)
class PricedWork:
    """A valuation of groups under which a device of class c does at most `price[c]` work per unit of load.

    work(group) <= price[c] * time[c](group) for every class c, so devices whose loads are at most U do at most
    U * sum of their prices: `average` = total work / sum of all prices is a bound on the largest load, and so is
    `bound`, the larger of it and of the time of a group where it is fastest.
    """

    work: Floats
    price: tuple[float, ...]
    average: float
    bound: float


def priced_work(pipeline: Pipeline) -> PricedWork:
    """The best valuation with a price of 1 for the first class and one common price for the others.

    With two classes it is the best of all, the dual of spreading every group freely over the classes; its price is
    then the ratio of some group's two times.
    """
    first, *others = pipeline.classes
    if not others:
        return _valued(pipeline, 1.0)
    ratios = [_ratios(first.time, each.time) for each in others]
    tried = np.unique(np.concatenate(ratios))
    if len(tried) > _MOST_PRICES:
        tried = np.quantile(tried, np.linspace(0, 1, _MOST_PRICES))
    valued = (_valued(pipeline, float(price)) for price in (0.0, *tried))
    finite = (found for found in valued if math.isfinite(found.average))
    return max(finite, key=lambda found: found.average, default=_valued(pipeline, 0.0))


def _ratios(one: Floats, other: Floats) -> Floats:
    both = np.isfinite(one) & np.isfinite(other) & (other > 0)
    with np.errstate(over="ignore"):
        found = one[both] / other[both]
    return found[np.isfinite(found)]


def _valued(pipeline: Pipeline, price: float) -> PricedWork:
    prices = (1.0, *(price for _ in pipeline.classes[1:]))
    work = np.full(len(pipeline.members), np.inf)
    for each, value in zip(pipeline.classes, prices, strict=True):
        with np.errstate(over="ignore"):
            work = np.minimum(work, value * each.time if value else np.where(np.isfinite(each.time), 0.0, np.inf))
    capacity = sum(value * len(each.devices) for each, value in zip(pipeline.classes, prices, strict=True))
    longest = float(np.min([each.time for each in pipeline.classes], axis=0).max())
    average = float(work.sum()) / capacity
    return PricedWork(work, prices, average, max(average, longest))


def highest_load(pipeline: Pipeline) -> float:
    """A load that no device can exceed, whatever it is given."""
    return sum(map(_all_times, pipeline.classes)) + sum(net.cost for net in pipeline.nets)


def _all_times(each: DeviceClass) -> float:
    return float(each.time[np.isfinite(each.time)].sum())


def lower_bound(pipeline: Pipeline, objective: str) -> float:
    """No split, contiguous or not, has a lower objective: the sum of the bounds of its parts, or that of one load."""
    parts = sum(priced_work(part).bound for part in pipeline.parts(objective))
    return max(parts, priced_work(pipeline).bound)
