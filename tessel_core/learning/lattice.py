"""Ideals of a small operator graph, and the dynamic-programming table over them.

The placement search (`placement/chain.py`) uses the same recurrence. Here it works on plain sets, for graphs that fit a
screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from tessel_core.errors import InputError
from tessel_core.model import THROUGHPUT, Placement
from tessel_core.model.checks import circles, quotient
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.ideals import all_ideals, members_of
from tessel_core.placement.pipeline import Pipeline
from tessel_core.placement.problem import PlacementProblem

Ideal = frozenset[str]
MAX_IDEALS = 200


@dataclass(frozen=True)
class Lattice:
    """Ideals of the operator groups of a problem, and the best chains of ideals on equal devices.

    `best[k][ideal]` is the least possible largest load if at most k devices run the ideal. It is infinite if the ideal
    does not fit on k devices.
    """

    pipeline: Pipeline
    names: tuple[str, ...]
    """Names of the groups."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Lattice:
        """Build the lattice of the contiguous placements of a problem.

        Raises InputError if the objective is not throughput, devices differ, or there are more than `MAX_IDEALS`.
        """
        if problem.objective != THROUGHPUT:
            raise InputError("the table", "needs the objective throughput")
        pipeline = pipeline_of(replace(problem, contiguous=True))
        if len(pipeline.classes) > 1:
            raise InputError("the table", "needs equal devices: the same kind, memory and allowed operators")
        if all_ideals(pipeline, MAX_IDEALS) is None:
            raise InputError("this graph", f"has more than {MAX_IDEALS} ideals, which do not fit a screen")
        operators = problem.graph.operators
        return cls(pipeline, tuple(_called([operators[i].name for i in group]) for group in pipeline.members))

    @cached_property
    def times(self) -> Mapping[str, float]:
        """Time of each group."""
        return dict(zip(self.names, self.pipeline.classes[0].time.tolist(), strict=True))

    @cached_property
    def arcs(self) -> tuple[tuple[str, str], ...]:
        """Arcs between groups along the flow of tensors."""
        return tuple((self.names[source], self.names[target]) for source, target in self.pipeline.arcs)

    @cached_property
    def ideals(self) -> tuple[Ideal, ...]:
        """All ideals, ordered by size and then by names."""
        bits = all_ideals(self.pipeline, MAX_IDEALS)
        assert bits is not None, "a lattice is small"
        held = members_of(bits, len(self.names)).astype(bool).tolist()
        found = (frozenset(name for name, on in zip(self.names, row, strict=True) if on) for row in held)
        return tuple(sorted(found, key=lambda each: (len(each), sorted(each))))

    def load(self, stage: Ideal) -> float:
        """Return the load of a device with these groups.

        The load is the sum of their times and of the transfers to and from other devices.
        """
        kind = self.pipeline.classes[0]
        if sum(self._memory[name] for name in stage) > kind.capacity:
            return inf
        moved = sum(cost for groups, cost in self._nets if not (groups <= stage or groups.isdisjoint(stage)))
        return sum(self.times[name] for name in stage) + (moved if kind.pays else 0.0)

    @cached_property
    def _memory(self) -> Mapping[str, float]:
        return dict(zip(self.names, self.pipeline.memory.tolist(), strict=True))

    @cached_property
    def _nets(self) -> tuple[tuple[Ideal, float], ...]:
        return tuple(
            (frozenset(self.names[group] for group in net.groups), net.cost) for net in self.pipeline.nets if net.cost
        )

    @cached_property
    def cuts(self) -> Mapping[Ideal, tuple[tuple[Ideal, float], ...]]:
        """For each ideal, the smaller ideals inside it.

        With each of these comes the load of a device that runs the rest.
        """
        return {
            ideal: tuple((cut, self.load(ideal - cut)) for cut in self.ideals if cut <= ideal) for ideal in self.ideals
        }

    @cached_property
    def best(self) -> tuple[Mapping[Ideal, float], ...]:
        """The dynamic-programming table, with one row per number of devices, from 0."""
        rows: list[dict[Ideal, float]] = [{ideal: inf if ideal else 0.0 for ideal in self.ideals}]
        for _ in range(min(len(self.pipeline.classes[0].devices), len(self.names))):
            before = rows[-1]
            rows.append({ideal: min(max(before[cut], load) for cut, load in self.cuts[ideal]) for ideal in self.ideals})
        return tuple(rows)

    @property
    def chain(self) -> tuple[Ideal, ...]:
        """Chain of ideals from the empty set to the whole graph.

        The differences of neighbours are the stages of a best placement. Empty if no placement fits.
        """
        found = [self.ideals[-1]]
        if self.best[-1][found[0]] == inf:
            return ()
        for before in reversed(self.best[:-1]):
            loads = {cut: max(before[cut], load) for cut, load in self.cuts[found[-1]]}
            found.append(min(loads, key=loads.__getitem__))
        return tuple(reversed(found))

    def placed(self, placement: Placement) -> tuple[Ideal, ...]:
        """Return the groups on each device of a placement.

        A group whose operators are on several devices is left out.
        """
        on: list[set[str]] = [set() for _ in placement.devices]
        for name, group in zip(self.names, self.pipeline.members, strict=True):
            places = {placement.assignment[i] for i in group}
            if len(places) == 1:
                for device in places.pop():
                    on[device].add(name)
        return tuple(map(frozenset, on))

    def in_circles(self, stages: Sequence[Ideal]) -> tuple[tuple[str, str], ...]:
        """Return the arcs on which tensors flow in a circle between stages. A contiguous placement has no such arc."""
        on = {name: at for at, stage in enumerate(stages) for name in stage}
        between = {arc: (on[arc[0]], on[arc[1]]) for arc in self.arcs if arc[0] in on and arc[1] in on}
        rings = circles(quotient(len(stages), between.values()))
        return tuple(
            arc
            for arc, (source, target) in between.items()
            if source != target and any({source, target} <= ring for ring in rings)
        )


def _called(operators: list[str]) -> str:
    return operators[0] if len(operators) == 1 else f"{operators[0]} + {len(operators) - 1}"
