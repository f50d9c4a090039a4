"""Splits to begin with, and the critical path, which no split beats."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessel_core.control import Control
from tessel_core.model.checks import topological_order
from tessel_core.placement.ideals import depth_first
from tessel_core.placement.latency.sequential import sequential_splits
from tessel_core.placement.latency.task import HOST, LatencyTask, Slots

_FEW_IDEALS = 4_000
"""A second of the sequential program; with more it takes up to half a minute, which may be more than there is."""


def best_start(task: LatencyTask, most_ideals: int, seed: int, control: Control) -> Slots | None:
    """The best of the greedy, the sequential program, everything on hosts and everything on one device."""
    best, least = None, math.inf
    for slots in _starts(task, most_ideals, seed, control):
        if task.keeps_rules(slots) and (found := task.latency(slots)) < least:
            best, least = slots, found
    return best


def _starts(task: LatencyTask, most_ideals: int, seed: int, control: Control) -> Iterator[Slots]:
    yield (HOST,) * len(task.units)
    for accelerator in range(len(task.accelerators)):
        yield (accelerator * task.subgraphs,) * len(task.units)
    filled = greedy_split(task)
    if filled is not None:
        yield filled
    yield from sequential_splits(task, min(most_ideals, _FEW_IDEALS), seed, control)
    if most_ideals > _FEW_IDEALS:
        yield from sequential_splits(task, most_ideals, seed, control, more_than=_FEW_IDEALS)


def greedy_split(task: LatencyTask) -> Slots | None:
    """The greedy, which makes one subgraph a device, as a split of this task; None where one finds no device."""
    single = LatencyTask(task.problem, 1)
    slots = _fill(single)
    if slots is None:
        return None
    found = [HOST] * len(task.units)
    for unit, slot in enumerate(slots):
        for operator in single.units[unit]:
            found[task.unit_of[operator]] = HOST if slot == HOST else slot * task.subgraphs
    return tuple(found)


def _fill(task: LatencyTask) -> Slots | None:
    """Units in one order of the flow, each accelerator filled until the next does not fit; what is left runs on hosts.

    As published an accelerator is closed at the first unit that is too large for what it has left, and a unit that
    alone is too large goes to the host.  [Tarnawski et al., NeurIPS 2020, appendix F]  Unlike the published program,
    what accelerators do not support goes to the host too, and None says that there is no host for what needs one.
    """
    found, accelerator, held, begun = [HOST] * len(task.units), 0, 0.0, False

    def fits(unit: int) -> bool:
        device = task.accelerators[accelerator]
        return math.isfinite(task.time[device][unit]) and held + task.memory[unit] <= task.capacity[device]

    for unit in _order(task):
        if begun and not fits(unit):
            accelerator, held, begun = accelerator + 1, 0.0, False
        if accelerator < len(task.accelerators) and fits(unit):
            found[unit], begun = accelerator * task.subgraphs, True
            held += task.memory[unit]
    return tuple(found) if task.keeps_rules(found) else None


def _order(task: LatencyTask) -> tuple[int, ...]:
    """Depth first along the flow, the last consumer first; without units that wait for each other in a cycle."""
    arcs = ((task.unit_of[source], task.unit_of[target]) for source, target in task.problem.graph.arcs)
    return depth_first(len(task.units), (arc for arc in arcs if arc[0] != arc[1]), list)


def critical_path(task: LatencyTask) -> float:
    """The longest way through the graph with every operator where it is fastest, and no transfers."""
    graph, devices = task.problem.graph, task.problem.devices
    done = [0.0] * len(graph.operators)
    for v in topological_order(graph.predecessors):
        allowed = (i for i in range(len(devices)) if task.time[i][task.unit_of[v]] < math.inf)
        times = [graph.operators[v].time_on(devices[i].kind) or 0.0 for i in allowed]
        done[v] = max((done[u] for u in graph.predecessors[v]), default=0.0) + min(times, default=0.0)
    return max(done)
