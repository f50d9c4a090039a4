"""What the device that takes a given group is loaded with at least: a minimum cut per group."""

from __future__ import annotations

import math

import numpy as np
from ortools.graph.python import max_flow

from tessel_core.control import Control
from tessel_core.placement.stages import DeviceClass, Pipeline

_UNITS = 2.0**40
"""Units in the sum of all capacities; they are rounded down, so the bound holds."""


def cut_bound(pipeline: Pipeline, known: float, control: Control) -> float:
    """The largest over all groups v of the least load of a device with v, at least `known`; whatever else it takes.

    Groups that some host takes in less than `known` need no look; the others are looked at while `control` lets.
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
    count = len(pipeline.members)
    sink, first_net = count, count + 1
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
