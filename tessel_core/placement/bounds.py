"""Lower bounds on the objective that hold for every placement.

A group is a set of operators that must share a device. A split gives each group a device. A net is a tensor, with the
groups of its producer and consumers. A class has interchangeable devices. Hosts are the devices whose loads include no
transfers. There are four arguments, and each also holds for the forward loads and for the backward loads alone:

- The devices together do all the work (`priced_work`).
- For each group v, some device has v. The least load of a device with v is a minimum cut (`cut_bound`).
- If there are more groups than devices, some device has several groups. The least load of a device with given groups is
  a minimum cut too (`pigeonhole_bound`).
- The devices together do all the work, and so much work on each device makes it pay for some cuts
  (`work_and_cut_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.pipeline import EQUAL_LOADS, DeviceClass, Floats, Pipeline

_MAX_PRICES = 256
_UNITS = 2.0**48
"""Number of integer units into which the sum of the arc capacities of a minimum cut is divided.

Capacities are rounded down to units, so the bound remains valid.
"""
_MAX_CANDIDATES = 32
"""Largest number of groups from which `pigeonhole_bound` chooses."""
_MAX_CUT_VERTICES, _MIN_CUT_VERTICES = 4_000_000, 1_000
"""Largest total number of vertices in the minimum cuts for one value of r in `pigeonhole_bound`.

These cuts take about a second. A cut with fewer than 1,000 vertices counts as 1,000 vertices.
"""

_RATES = tuple(2.0 ** (-i / 2) for i in range(6, 29))
"""Rates r that `work_and_cut_bound` tries. On the published inputs, the best rates are between 2^-11 and 2^-5."""


@dataclass(frozen=True)
class PricedWork:
    """A value of each group, called its work, and a price of each device class, which give a lower bound on loads.

    For every group v and class c, work[v] <= price[c] * time[c][v]. So a device of class c with a load of at most U has
    groups with at most U * price[c] work. Hence `average`, the total work divided by the sum of the prices of all
    devices, is a lower bound on the largest load. `bound` is the larger of `average` and the time of the longest group
    on its fastest class.
    """

    work: Floats
    price: tuple[float, ...]
    average: float
    bound: float


def priced_work(pipeline: Pipeline) -> PricedWork:
    """Return the work and the prices with the largest `average`.

    The first class has price 1, and all others share a price.

    With two classes, no other prices give a better bound, because the linear program of these prices is the dual of the
    problem that divides every group freely over the classes. The best price is then the ratio of some group's times on
    the two classes.
    """
    first, *others = pipeline.classes
    if not others:
        return _valued(pipeline, 1.0)
    ratios = [_ratios(first.time, each.time) for each in others]
    prices = np.unique(np.concatenate(ratios))
    if len(prices) > _MAX_PRICES:
        prices = np.quantile(prices, np.linspace(0, 1, _MAX_PRICES))
    valued = (_valued(pipeline, float(price)) for price in (0.0, *prices))
    finite = (each for each in valued if math.isfinite(each.average))
    return max(finite, key=lambda each: each.average, default=_valued(pipeline, 0.0))


def _ratios(one: Floats, other: Floats) -> Floats:
    both = np.isfinite(one) & np.isfinite(other) & (other > 0)
    with np.errstate(over="ignore"):
        ratios = one[both] / other[both]
    return ratios[np.isfinite(ratios)]


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
    """Return an upper bound on the load of any device in any split."""
    first = (pipeline.time_at(kind, pipeline.stages) for kind in range(len(pipeline.classes)))
    times = sum(float(time[np.isfinite(time)].sum()) for time in first)
    return times + sum(net.cost for net in pipeline.nets)


def lower_bound(pipeline: Pipeline, objective: str) -> float:
    """Return a lower bound on the objective of any split, contiguous or not.

    The result is the larger of the bound on the whole load, and the sum of the bounds on the parts of the objective.
    """
    parts = sum(priced_work(part).bound for part in pipeline.parts(objective))
    return max(parts, priced_work(pipeline).bound)


def cut_bound(pipeline: Pipeline, known: float, control: Control) -> float:
    """Return the largest value, over groups v, of the least load of a device with v. Return `known` if that is larger.

    A group is skipped if its time on some host is at most the bound so far. The search ends early if `control` stops.
    """
    free = _on_hosts(pipeline)
    cuts = [MinimumCuts(pipeline, each) for each in pipeline.classes if each.pays]
    bound = known
    for group in np.argsort(-free):
        if free[group] <= bound or control.stopped:
            break
        bound = max(bound, min([float(free[group]), *(each.least_load([int(group)]) for each in cuts)]))
    return bound


def pigeonhole_bound(pipeline: Pipeline, known: float, upper: float, control: Control) -> float:
    """Return a lower bound from the pigeonhole principle. The bound is at least `known` and at most `upper`.

    Let k be the number of devices that pay for transfers. If r k + 1 groups are on these devices, some device has r + 1
    of the groups. So the least load of a device with any r + 1 of r k + 1 chosen groups is a lower bound. The function
    tries r = 1, 2, … while the minimum cuts are few enough, and returns the best bound.

    The bound holds for splits with a load below `upper`. Only groups that take at least `upper` on every host are
    chosen, so such a split has them on devices that pay for transfers.

    A linear relaxation is weaker: it may divide every group evenly over the devices. Then no net is cut, and only the
    average work remains.
    """
    devices = sum(len(each.devices) for each in pipeline.classes if each.pays)
    cuts = [MinimumCuts(pipeline, each) for each in pipeline.classes if each.pays]
    if not cuts or not math.isfinite(upper):
        return known
    most = _MAX_CUT_VERTICES // max(cuts[0].size, _MIN_CUT_VERTICES)
    groups, bound, r = _candidates(pipeline, cuts[0], upper, control), known, 1
    while len(groups) > r * devices and len(groups) * math.comb(r * devices, r) <= most:
        bound, r = max(bound, min(upper, _bound_of_sets(groups, r, r * devices + 1, bound, cuts, control))), r + 1
    return bound


def _bound_of_sets(
    groups: Sequence[int], r: int, count: int, known: float, cuts: Sequence[MinimumCuts], control: Control
) -> float:
    """Choose `count` groups, and return the least load of a device with r + 1 of them.

    Return 0 if that load is at most `known`. The groups are chosen greedily: each next group has the largest least load
    together with up to r groups chosen before. `cuts` has one entry for each class that pays for transfers.
    """
    loads = {group: min([each.least_load([group]) for each in cuts]) for group in groups}
    chosen, bound = list[int](), math.inf
    while True:
        group = max(loads, key=loads.__getitem__)
        bound = min(bound, loads.pop(group)) if len(chosen) >= r else bound
        chosen.append(group)
        if len(chosen) == count:
            return bound
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


def work_and_cut_bound(pipeline: Pipeline, known: float, upper: float, control: Control) -> float:
    """Return a lower bound from the work and the cuts of all devices together, or `known` if that is larger.

    The bound needs k devices that pay for transfers, all of one class, and holds for splits with a load of at most
    `upper`. For a set S of groups, let time(S) be the time of S on such a device, and cut(S) the cost of the nets with
    groups inside and outside S. Let T be the time of all groups divided by k. For a rate r > 0 and each group v, a
    minimum cut gives

        h(v) = min over sets S with v of cut(S) + r (time(S) - T).

    A device with the set S pays cut(S) >= h(v) - r (time(S) - T) for each v in S. The sum of time(S) over the k devices
    is at most k T, so the sum of the terms -r (time(S) - T) is at least 0. Hence the cuts of all k devices together
    cost at least the sum, over these devices, of the largest h(v) on each device.

    Let w be the work that remains for a device if all other devices have a load of `upper`. If w > 0, any i devices do
    work of at least i w. So the i-th smallest of the k largest values h is at least the least x for which all groups
    with h(v) <= x together take a time of at least i w.
    """
    work, paying = priced_work(pipeline), [c for c, each in enumerate(pipeline.classes) if each.pays]
    if len(paying) != 1 or not math.isfinite(upper):
        return known
    each, price = pipeline.classes[paying[0]], work.price[paying[0]]
    time = np.where(np.isfinite(each.time), each.time, 0.0)
    others = (len(each.devices) - 1) * upper + _most_on_hosts(pipeline, time, upper)
    least = (float(time.sum()) - others) * (1 - EQUAL_LOADS)
    if not least > 0 or len(time) * MinimumCuts(pipeline, each).size > _MAX_CUT_VERTICES:
        return known
    cuts = -math.inf
    for rate in _RATES:
        cost = _cost_of_cuts(pipeline, each, rate, least, control)
        if cost <= cuts:
            break
        cuts = cost
    prices = sum(each * len(kind.devices) for each, kind in zip(work.price, pipeline.classes, strict=True))
    return max(known, min(upper, work.average + price * cuts / prices))


def _cost_of_cuts(pipeline: Pipeline, each: DeviceClass, rate: float, least: float, control: Control) -> float:
    """Return a lower bound on the cost of all cuts together, by the argument of `work_and_cut_bound` for one `rate`.

    `each` is the class that pays for transfers. Each of its devices has groups that take at least the time `least`.
    """
    cuts, values = MinimumCuts(pipeline, replace(each, time=rate * each.time)), list[float]()
    for group in range(len(each.time)):
        if control.stopped:
            return -math.inf
        values.append(cuts.least_load([group]))
    time, order = np.where(np.isfinite(each.time), each.time, 0.0), np.argsort(values)
    reached = np.searchsorted(np.cumsum(time[order]), least * np.arange(1, len(each.devices) + 1))
    return float(np.array(values)[order[reached]].sum() - rate * time.sum())


def _most_on_hosts(pipeline: Pipeline, time: Floats, upper: float) -> float:
    """Return an upper bound on the sum of `time` over groups on hosts, if the load of each host is at most `upper`."""
    hosts = [each for each in pipeline.classes if not each.pays]
    with np.errstate(divide="ignore"):
        ratios = [float(np.divide(time, each.time, out=np.zeros_like(time), where=time > 0).max()) for each in hosts]
    return sum(len(each.devices) * upper * ratio for each, ratio in zip(hosts, ratios, strict=True))


def _on_hosts(pipeline: Pipeline) -> Floats:
    """Return the least time of each group on a device that pays for no transfers.

    Infinite if no such device supports it.
    """
    times: Floats = np.min([np.where(each.pays, np.inf, each.time) for each in pipeline.classes], axis=0)
    return times


def _candidates(pipeline: Pipeline, cuts: MinimumCuts, upper: float, control: Control) -> list[int]:
    """Return groups, from the longest on, that take at least `upper` on every host.

    A group is left out if it belongs to the `least_set` of a longer group in the result.
    """
    time = np.min([each.time for each in pipeline.classes if each.pays], axis=0)
    hosts, near, candidates = _on_hosts(pipeline), set[int](), list[int]()
    for group in np.argsort(-time, kind="stable").tolist():
        if control.stopped or len(candidates) == _MAX_CANDIDATES:
            break
        if hosts[group] >= upper and group not in near:
            candidates.append(group)
            near |= cuts.least_set([group])
    return candidates


class MinimumCuts:
    """Computes the least load of a device of one class that has given groups, and any others.

    That is the minimum, over sets S with the given groups, of time(S) plus the cost of the nets with groups inside and
    outside S. It is a minimum cut. Arcs of unlimited capacity lead from the source to the given groups. An arc of
    capacity time(v) leads from each group v to the sink, and is cut if v is in S. Each net has two vertices, and an arc
    of the net's cost from the first to the second. Unlimited arcs lead from each group of the net to the first vertex,
    and from the second vertex to each group. So the net's arc is cut if the net has groups inside and outside S.
    """

    def __init__(self, pipeline: Pipeline, each: DeviceClass) -> None:
        from ortools.graph.python import max_flow  # imported here: only searches by CP-SAT need it

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
        """Return the least load of a device with `groups`. Rounding may make it too small by at most `size` units.

        The load is infinite if the class does not support one of `groups`.
        """
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
        """Return all groups of a device with `groups` that has the least load."""
        self.least_load(groups)
        return {v for v in self._flow.get_source_side_min_cut() if v < self._count}
