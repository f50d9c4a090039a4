"""Lower bounds on the objective, which hold for every placement.

Three arguments, each of which also holds for the forward and the backward part of a load alone:
- The devices together do all the work (`priced_work`).
- Some device has group v, and the least load of a device with v is a minimum cut (`cut_bound`).
- Some device has several of many groups; the least load with those is a minimum cut, too (`pigeonhole_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.pipeline import DeviceClass, Floats, Pipeline

_MOST_PRICES = 256
_UNITS = 2.0**48
"""Units in the sum of all capacities of a minimum cut; they are rounded down, so the bound holds."""
_MOST_CANDIDATES = 32
"""Groups among which those of the pigeonhole argument are chosen."""
_MOST_CUT_VERTICES, _LEAST_CUT_VERTICES = 4_000_000, 1_000
"""Vertices of all minimum cuts for one r, which take a second, and those that a small one counts for."""


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
    free = _on_hosts(pipeline)
    cuts = [MinimumCuts(pipeline, each) for each in pipeline.classes if each.pays]
    found = known
    for group in np.argsort(-free):
        if free[group] <= found or control.stopped:
            break
        found = max(found, min([float(free[group]), *(each.least_load([int(group)]) for each in cuts)]))
    return found


def pigeonhole_bound(pipeline: Pipeline, known: float, upper: float, control: Control) -> float:
    """The least over all sets of r + 1 of r k + 1 groups of the least load of a device with them, for the best r.

    On k devices some device has r + 1 of the groups.  It holds for splits of less load than `upper`: only groups that
    no host takes in less are chosen, and k counts the devices that pay.  At least `known`, at most `upper`.

    A linear relaxation does not give as much: it spreads each group evenly, so it cuts nothing and bounds by the
    average work alone, also with the cut costs of every pair of devices counted.
    """
    devices = sum(len(each.devices) for each in pipeline.classes if each.pays)
    cuts = [MinimumCuts(pipeline, each) for each in pipeline.classes if each.pays]
    if not cuts or not math.isfinite(upper):
        return known
    most = _MOST_CUT_VERTICES // max(cuts[0].size, _LEAST_CUT_VERTICES)
    groups, found, r = _candidates(pipeline, cuts[0], upper, control), known, 1
    while len(groups) > r * devices and len(groups) * math.comb(r * devices, r) <= most:
        found, r = max(found, min(upper, _of_groups_apart(groups, r, r * devices + 1, found, cuts, control))), r + 1
    return found


def _of_groups_apart(
    groups: Sequence[int], r: int, count: int, known: float, cuts: Sequence[MinimumCuts], control: Control
) -> float:
    """The least load of a device with r + 1 of `count` groups, which are chosen to make it large.

    Each is the one whose least load with up to r of those before is the largest; 0 where it is not above `known`.
    """
    loads = {group: min([each.least_load([group]) for each in cuts]) for group in groups}
    chosen, found = list[int](), math.inf
    while True:
        group = max(loads, key=loads.__getitem__)
        found = min(found, loads.pop(group)) if len(chosen) >= r else found
        chosen.append(group)
        if len(chosen) == count:
            return found
        for other in list(loads):
            if control.stopped:
                return 0.0
            if len(chosen) <= r:
                loads[other] = math.inf
            for beside in combinations(chosen[:-1], min(r, len(chosen)) - 1):
                loads[other] = min([loads[other], *(each.least_load([*beside, group, other]) for each in cuts)])
                if len(chosen) >= r and loads[other] <= known:
                    del loads[other]
                    break
        if not loads:
            return 0.0


def _on_hosts(pipeline: Pipeline) -> Floats:
    """Per group the least time on a device that pays for no transfers."""
    found: Floats = np.min([np.where(each.pays, np.inf, each.time) for each in pipeline.classes], axis=0)
    return found


def _candidates(pipeline: Pipeline, cuts: MinimumCuts, upper: float, control: Control) -> list[int]:
    """Long groups that no host takes in less than `upper`, and that a device with a longer one leaves out."""
    time = np.min([each.time for each in pipeline.classes if each.pays], axis=0)
    hosts, near, found = _on_hosts(pipeline), set[int](), list[int]()
    for group in np.argsort(-time, kind="stable").tolist():
        if control.stopped or len(found) == _MOST_CANDIDATES:
            break
        if hosts[group] >= upper and group not in near:
            found.append(group)
            near |= cuts.least_set([group])
    return found


class MinimumCuts:
    """The least load of a device of one class with some groups, whatever else it takes.

    min over sets S with the groups of time(S) + cost of the nets that meet S and its complement.  A cut of: the source
    -> the groups, endless; v -> sink, capacity time(v), paid where v is in S; and per net two vertices, from the first
    to the second its cost, paid where one of its groups is in S (which reaches the first) and one is not (which the
    second reaches).
    """

    def __init__(self, pipeline: Pipeline, each: DeviceClass) -> None:
        from ortools.graph.python import max_flow  # late: only CP-SAT's searches ask

        count = len(pipeline.members)
        self._source, self._sink, self._count = count, count + 1, count
        finite = np.isfinite(each.time)
        total = float(each.time[finite].sum()) + sum(net.cost for net in pipeline.nets)
        self._unit, endless = max(total, 1e-300) / _UNITS, 2 * int(_UNITS)
        arcs = [(self._source, v, 0) for v in range(count)]
        arcs += [(v, self._sink, self._units(t) if np.isfinite(t) else endless) for v, t in enumerate(each.time)]
        for e, net in enumerate(pipeline.nets):
            first, second = count + 2 + 2 * e, count + 3 + 2 * e
            arcs.append((first, second, self._units(net.cost)))
            arcs += [arc for v in net.groups for arc in ((v, first, endless), (second, v, endless))]
        self.size, self._endless = count + 2 + 2 * len(pipeline.nets), endless
        self._flow, self._time = max_flow.SimpleMaxFlow(), each.time
        for arc in arcs:
            self._flow.add_arc_with_capacity(*arc)

    def _units(self, value: float) -> int:
        return math.floor(float(value) / self._unit)

    def least_load(self, groups: Sequence[int]) -> float:
        """Rounded down by `size` units at most; infinite where a group is not supported."""
        if not np.isfinite(self._time[list(groups)]).all():
            return np.inf
        for group in groups:
            self._flow.set_arc_capacity(group, self._endless)
        status = self._flow.solve(self._source, self._sink)  # type: ignore[no-untyped-call]
        assert status == self._flow.OPTIMAL, status
        for group in groups:
            self._flow.set_arc_capacity(group, 0)
        return float(self._flow.optimal_flow() * self._unit)

    def least_set(self, groups: Sequence[int]) -> set[int]:
        """Groups of a device that has this least load."""
        self.least_load(groups)
        return {v for v in self._flow.get_source_side_min_cut() if v < self._count}
