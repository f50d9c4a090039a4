"""Lower bounds on the objective, which hold for every placement."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.pipeline import DeviceClass, Floats, Pipeline

_MOST_PRICES = 256
_UNITS = 2.0**40
"""Units in the sum of all capacities of a minimum cut; they are rounded down, so the bound holds."""


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
    first = (pipeline.time_at(kind, pipeline.stages) for kind in range(len(pipeline.classes)))
    times = sum(float(time[np.isfinite(time)].sum()) for time in first)
    return times + sum(net.cost for net in pipeline.nets)


def lower_bound(pipeline: Pipeline, objective: str) -> float:
    """No split, contiguous or not, has a lower objective: the sum of the bounds of its parts, or that of one load."""
    parts = sum(priced_work(part).bound for part in pipeline.parts(objective))
    return max(parts, priced_work(pipeline).bound)


def cut_bound(pipeline: Pipeline, known: float, control: Control) -> float:
    """The largest over all groups v of the least load of a device with v, whatever else it takes; at least `known`.

    Groups that some host takes in less than `known` are left out; the others are examined until `control` stops.
    """
    free = np.min([np.where(each.pays, np.inf, each.time) for each in pipeline.classes], axis=0)
    paying = [each for each in pipeline.classes if each.pays]
    found = known
    for group in np.argsort(-free):
        if free[group] <= found or control.stopped:
            break
        found = max(found, min([float(free[group]), *(_least_load(pipeline, each, int(group)) for each in paying)]))
    return found


def _least_load(pipeline: Pipeline, each: DeviceClass, group: int) -> float:
    """min over sets S with the group of time(S) + cost of the nets that meet S and its complement.

    A cut of: v -> sink, capacity time(v), paid where v is in S; and per net two vertices, from the first to the second
    its cost, paid where one of its groups is in S (which reaches the first) and one is not (which the second reaches).
    """
    from ortools.graph.python import max_flow  # late: only CP-SAT's searches ask

    sink = len(pipeline.members)
    first_net = sink + 1
    if not np.isfinite(each.time[group]):
        return np.inf
    total = float(each.time[np.isfinite(each.time)].sum()) + sum(net.cost for net in pipeline.nets)
    unit, endless = max(total, 1e-300) / _UNITS, 2 * int(_UNITS)
    arcs = [(v, sink, math.floor(t / unit) if np.isfinite(t) else endless) for v, t in enumerate(each.time)]
    for e, net in enumerate(pipeline.nets):
        first, second = first_net + 2 * e, first_net + 2 * e + 1
        arcs.append((first, second, math.floor(net.cost / unit)))
        arcs += [arc for v in net.groups for arc in ((v, first, endless), (second, v, endless))]
    flow = max_flow.SimpleMaxFlow()
    for arc in arcs:
        flow.add_arc_with_capacity(*arc)
    status = flow.solve(group, sink)  # type: ignore[no-untyped-call]
    assert status == flow.OPTIMAL, status
    return float(flow.optimal_flow() * unit)
