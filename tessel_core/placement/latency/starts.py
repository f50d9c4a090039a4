"""First splits for the latency search, and the critical path, which is a lower bound on the latency.

A unit is a set of operators that must be in the same subgraph. A split gives each unit a slot: one subgraph of one
accelerator, or a host, which is a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessel_core.control import Control
from tessel_core.model.checks import topological_order
from tessel_core.placement.ideals import depth_first
from tessel_core.placement.latency.sequential import sequential_splits
from tessel_core.placement.latency.task import HOST, LatencyTask, Slots

_FEW_IDEALS = 4_000
"""Number of ideals for which `sequential_splits` takes a second. With more, it takes up to half a minute."""


def best_start(task: LatencyTask, most_ideals: int, seed: int, control: Control) -> Slots | None:
    """Return the split of least latency among simple splits and those of `sequential_splits`. None if none is valid.

    The simple splits are the greedy split, all units on hosts, and all units on one accelerator.
    """
    valid = (slots for slots in _starts(task, most_ideals, seed, control) if task.keeps_rules(slots))
    return min(valid, key=task.latency, default=None)


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
    """Return the greedy split, with one subgraph per accelerator, or None if a unit fits on no device."""
    single = LatencyTask(task.problem, 1)
    slots = _fill(single)
    if slots is None:
        return None
    converted = [HOST] * len(task.units)
    for unit, slot in enumerate(slots):
        for operator in single.units[unit]:
            converted[task.unit_of[operator]] = HOST if slot == HOST else slot * task.subgraphs
    return tuple(converted)


def _fill(task: LatencyTask) -> Slots | None:
    """Return the slot of each unit after filling one accelerator after another along the flow. The rest runs on hosts.

    As published, an accelerator is closed at the first unit that exceeds its remaining memory, and a unit that exceeds
    the whole memory goes to the host [Tarnawski et al., NeurIPS 2020, appendix F]. Unlike in the published program,
    units that accelerators do not support go to the host too. The result is None if a unit needs a host but no host
    supports it.
    """
    slots, accelerator, held, begun = [HOST] * len(task.units), 0, 0.0, False

    def fits(unit: int) -> bool:
        device = task.accelerators[accelerator]
        return math.isfinite(task.time[device][unit]) and held + task.memory[unit] <= task.capacity[device]

    for unit in _order(task):
        if begun and not fits(unit):
            accelerator, held, begun = accelerator + 1, 0.0, False
        if accelerator < len(task.accelerators) and fits(unit):
            slots[unit], begun = accelerator * task.subgraphs, True
            held += task.memory[unit]
    return tuple(slots) if task.keeps_rules(slots) else None


def _order(task: LatencyTask) -> tuple[int, ...]:
    """Return the units depth first along the flow, without units on cycles.

    Of units ready at once, the last comes first.
    """
    arcs = ((task.unit_of[source], task.unit_of[target]) for source, target in task.problem.graph.arcs)
    return depth_first(len(task.units), (arc for arc in arcs if arc[0] != arc[1]), list)


def critical_path(task: LatencyTask) -> float:
    """Return the time of the longest path, with every operator on its fastest device and free transfers."""
    graph, devices = task.problem.graph, task.problem.devices
    done = [0.0] * len(graph.operators)
    for v in topological_order(graph.predecessors):
        allowed = (i for i in range(len(devices)) if task.time[i][task.unit_of[v]] < math.inf)
        times = [graph.operators[v].time_on(devices[i].kind) or 0.0 for i in allowed]
        done[v] = max((done[u] for u in graph.predecessors[v]), default=0.0) + min(times, default=0.0)
    return max(done)
