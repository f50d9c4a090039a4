"""Redundant constraints that raise the bound: no path through the graph takes longer than the whole sample.

The way of an operator is the length of the longest path to it. The length counts the time of each operator on its
device, and the transfer of each output that changes subgraphs on the path. Subgraphs are convex, so a path visits each
subgraph once, and counts at most the duration of the subgraph. With these constraints, the proof for BERT-24 takes a
twentieth of the time.

A split gives each unit of operators a slot (one subgraph of one accelerator) or a host, which is a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ortools.sat.python import cp_model

from tessel_core.model.checks import topological_order
from tessel_core.placement.latency.model import LatencyModel, Ticks
from tessel_core.placement.latency.task import HOST, Slots


class Paths:
    """Adds a variable for the way of each operator to a model, and constraints on it."""

    def __init__(self, built: LatencyModel, ticks: Ticks) -> None:
        self._built, self._task = built, built.task
        self._graph = built.task.problem.graph
        self._moved = (0,) * len(ticks.moved) if built.task.stays_for_nothing else ticks.moved
        self._ends = 2 if built.task.pays_transfers else 1
        self._times = [self._own_times(v, ticks) for v in range(len(self._graph.operators))]
        self._way = [built.model.new_int_var(0, built.limit, f"way {v}") for v in range(len(self._times))]
        self._crosses: dict[tuple[int, int], list[list[cp_model.IntVar]]] = {}
        for v in range(len(self._way)):
            built.model.add(built.done[v] >= self._way[v])
            built.model.add(self._way[v] >= self._own(v))
            for u in self._graph.predecessors[v]:
                built.model.add(self._way[v] >= self._way[u] + self._own(v) + self._crossing(u, v))

    def _own_times(self, v: int, ticks: Ticks) -> tuple[int, int]:
        """Return the least ticks of operator v on an accelerator, and its ticks on the host.

        0 if it cannot be there.
        """
        task, unit = self._task, self._task.unit_of[v]
        devices, operator = task.problem.devices, self._graph.operators[v]
        there = (devices[d].kind for d in task.accelerators if math.isfinite(task.time[d][unit]))
        host = task.host[unit]
        alone = 0.0 if host is None else operator.time_on(devices[host].kind) or 0.0
        return ticks.of(min((operator.time_on(kind) or 0.0 for kind in there), default=0.0)), ticks.of(alone)

    def _own(self, v: int) -> cp_model.LinearExpr:
        fast, alone = self._times[v]
        return (alone - fast) * self._built.on_host[self._task.unit_of[v]] + fast

    def _crossing(self, u: int, v: int) -> cp_model.LinearExpr | int:
        """Return the ticks to move the output of operator u to operator v.

        They count once for each end in a subgraph if transfers occupy accelerators, otherwise once as a delay.
        """
        one, other = self._task.unit_of[u], self._task.unit_of[v]
        if one == other or not self._moved[u]:
            return 0
        built, crosses = self._built, self._crosses.setdefault((u, v), [])
        for first, second in ((other, one), (one, other))[: self._ends]:
            crosses.append([built.model.new_bool_var(f"{u} to {v} at {p}") for p in range(self._task.slots)])
            for literal, here, there in zip(crosses[-1], built.inside[first], built.inside[second], strict=True):
                built.model.add_bool_or([here.negated(), there, literal])
        return self._moved[u] * cp_model.LinearExpr.sum([literal for literals in crosses for literal in literals])

    def add_hint(self, slots: Slots, used: Sequence[int]) -> None:
        """Give CP-SAT the ways of the operators in a known split as a hint.

        `used` has the slot of each used position.
        """
        model, unit_of, way = self._built.model, self._task.unit_of, [0] * len(self._way)
        for v in topological_order(self._graph.predecessors):
            fast, alone = self._times[v]
            own = alone if slots[unit_of[v]] == HOST else fast
            way[v] = own
            for u in self._graph.predecessors[v]:
                ends = [slots[unit_of[v]], slots[unit_of[u]]]
                cost = 0
                for literals, end in zip(self._crosses.get((u, v), []), ends, strict=False):
                    crosses = end != HOST and ends[0] != ends[1]
                    cost += self._moved[u] * crosses
                    for p, literal in enumerate(literals):
                        model.add_hint(literal, crosses and p < len(used) and used[p] == end)
                way[v] = max(way[v], way[u] + own + cost)
            model.add_hint(self._way[v], way[v])
