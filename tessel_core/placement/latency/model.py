"""The CP-SAT model of placements with least latency.

A unit is a set of operators that must be in the same subgraph. Subgraphs are sorted by start, and each operator is
before, in or after each subgraph. A slot is one subgraph of one accelerator. A split gives each unit a slot or a host,
which is a CPU.

Costs are rounded down to ticks, so no placement takes longer in the model than in reality, and the model's bound is
valid. If the links of a mesh differ, the model uses the fastest link for all transfers, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tessel_core.placement.latency.task import HOST, LatencyTask, Slots

Literal = cp_model.IntVar
TICKS = 10**12
"""Number of ticks (the model's unit of time) in the best known latency.

The rounding error of a sum of a thousand costs is then at most a billionth.
"""
_MAX_SHARE = 4.0
"""Costs are capped at this multiple of the best known latency. No time in a better split is as long."""
_MEMORY_UNITS = 10**9
"""Number of integer units in the memory of the largest unit of operators, if some memory is not in whole bytes."""


@dataclass(frozen=True)
class Ticks:
    """Conversion between times and the ticks of the model."""

    task: LatencyTask
    whole: float
    """Duration of `TICKS` ticks, in the graph's time unit."""

    def of(self, time: float) -> int:
        """Return a time in ticks, rounded down. Large times are capped, so that sums fit CP-SAT's integers."""
        return math.floor(min(time / self.whole, _MAX_SHARE) * TICKS)

    def nearest(self, time: float) -> int:
        """Return a time of a known split in ticks, rounded to the nearest."""
        return round(time / self.whole * TICKS)

    def time(self, ticks: float) -> float:
        """Convert a number of ticks to the graph's time unit."""
        return ticks / TICKS * self.whole

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Ticks to move each operator's output over the fastest link."""
        return tuple(map(self.of, self.task.moved))


class LatencyModel:
    """Variables and constraints of the model. Positions 0, 1 … are subgraphs in the order of their starts.

    `reached[v][p]` means that operator v is in the subgraph at position p or after that subgraph. `inside[u][p]` means
    that unit u is in the subgraph at position p. These positions never decrease along the flow, so subgraphs do not
    wait for each other in a cycle. Conversely, any placement without such a cycle has subgraphs that can be ordered
    like this.
    """

    def __init__(self, task: LatencyTask, ticks: Ticks, limit: int) -> None:
        self.task, self._ticks, self.limit = task, ticks, limit
        self.model = cp_model.CpModel()
        self._graph = task.problem.graph
        self._positions = range(task.slots)
        new, units, operators = self.model.new_bool_var, range(len(task.units)), range(len(self._graph.operators))
        self.inside = [[new(f"u{u} in {p}") for p in self._positions] for u in units]
        self.on_host = [new(f"u{u} on host") for u in units]
        self.reached = [[new(f"v{v} from {p}") for p in self._positions] for v in operators]
        self.enters: dict[tuple[int, int], Literal] = {}
        self.leaves: dict[tuple[int, int], Literal] = {}
        self.used: list[Literal] = []
        self.device = self._devices()
        self.start = [self._moment(f"start {p}") for p in self._positions]
        self.finish = [self._moment(f"finish {p}") for p in self._positions]
        self.done = [self._moment(f"done {v}") for v in operators]
        self.total = self._moment("total")
        self._assigned()
        self._supported()
        self._memory()
        self._mates_together()
        self._acyclic()
        self._ordered()
        self._crossings()
        self.received, self.sent = self._far() if task.stays_for_nothing else (self.enters, self.leaves)
        self._durations()
        self._latencies()
        self.model.minimize(self.total)

    def slots(self, value: Callable[[cp_model.IntVar], int]) -> Slots:
        """Return the slot of each unit in a solution. `value` returns the value of a variable."""
        task, taken, slot_at = self.task, dict.fromkeys(self.task.accelerators, 0), list[int]()
        for p in self._positions:
            device = next(d for d, on in self.device[p].items() if value(on))
            slot_at.append(task.accelerators.index(device) * task.subgraphs + taken[device])
            taken[device] += 1
        return tuple(next((slot_at[p] for p in self._positions if value(places[p])), HOST) for places in self.inside)

    def _moment(self, name: str) -> cp_model.IntVar:
        return self.model.new_int_var(0, self.limit, name)

    def _devices(self) -> list[dict[int, Literal]]:
        """Return, for each position, a map from each device to the literal that the subgraph is on it.

        If devices are alike and have one subgraph each, the literals are constants.
        """
        task = self.task
        if task.is_uniform:
            return [{task.accelerators[p]: self.model.new_constant(1)} for p in self._positions]
        chosen = [{d: self.model.new_bool_var(f"{p} on {d}") for d in task.accelerators} for p in self._positions]
        for each in chosen:
            self.model.add_exactly_one(each.values())
        for d in task.accelerators:
            self.model.add(sum(each[d] for each in chosen) == task.subgraphs)
        for alike in task.alike:
            self._first_uses_in_order(chosen, alike)
        return chosen

    def _first_uses_in_order(self, chosen: list[dict[int, Literal]], alike: Sequence[int]) -> None:
        """Constraint: interchangeable devices are first used in their order."""
        for before, d in pairwise(alike):
            for p in self._positions:
                self.model.add_bool_or([chosen[p][d].negated(), *(chosen[e][before] for e in range(p))])

    def _assigned(self) -> None:
        """Constraint: every unit is in one subgraph or on its host."""
        for unit, places in enumerate(self.inside):
            self.model.add_exactly_one([*places, self.on_host[unit]])
            if self.task.host[unit] is None:
                self.model.add(self.on_host[unit] == 0)

    def _supported(self) -> None:
        """Constraint: a unit is in a subgraph only on devices that support it."""
        for p in self._positions:
            for d, on in self.device[p].items():
                for unit, time in enumerate(self.task.time[d]):
                    if math.isinf(time):
                        self.model.add_bool_or([self.inside[unit][p].negated(), on.negated()])

    def _memory(self) -> None:
        """Constraint: the units on a device together hold at most its capacity. All hosts share their capacity."""
        capacity, scale = self.task.capacity, self._units_in_a_byte
        most_of = math.floor if scale == 1 else math.ceil
        for d in self.task.accelerators:
            if math.isfinite(capacity[d]):
                self._held_at_most(d, most_of(capacity[d] * scale), most_of(capacity[d] * scale))
        if math.isfinite(self.task.host_capacity):
            hosted = sum(held * self.on_host[u] for u, held in enumerate(self._held))
            self.model.add(hosted <= most_of(self.task.host_capacity * scale))

    def _held_at_most(self, device: int, most: int, limit: cp_model.LinearExprT) -> None:
        """Constraint:

        the units in the subgraphs of `device` hold at most `limit`, an expression that is at most `most`.
        """
        amounts = []
        for p in self._positions:
            on = self.device[p].get(device)
            if on is not None:
                inside = sum(held * self.inside[u][p] for u, held in enumerate(self._held))
                amounts.append(self.model.new_int_var(0, most, f"held by {p} on {device}"))
                self.model.add(amounts[-1] >= inside).only_enforce_if(on)
        self.model.add(sum(amounts) <= limit)

    @cached_property
    def _units_in_a_byte(self) -> float:
        """Units of memory per byte. 1 if all operators hold whole bytes, else memory is rounded down."""
        whole = all(float(each).is_integer() for each in self.task.memory)
        return 1.0 if whole else _MEMORY_UNITS / max(self.task.memory)

    @cached_property
    def _held(self) -> list[int]:
        return [math.floor(each * self._units_in_a_byte) for each in self.task.memory]

    def minimize_memory(self) -> cp_model.IntVar:
        """Minimise the largest memory of an accelerator instead of the latency. Return the variable of that memory.

        Operators must hold whole bytes.
        """
        most = sum(self._held)
        largest = self.model.new_int_var(0, most, "largest")
        for d in self.task.accelerators:
            self._held_at_most(d, most, largest)
        self.model.minimize(largest)
        return largest

    def _mates_together(self) -> None:
        """Constraint: units that must share a device are on one device, in any of its subgraphs, or all on the host."""
        for mates in self.task.mates:
            shared = {d: self.model.new_bool_var(f"mates {mates[0]} on {d}") for d in self.task.accelerators}
            self.model.add_exactly_one([*shared.values(), self.on_host[mates[0]]])
            for unit in mates:
                self.model.add(self.on_host[unit] == self.on_host[mates[0]])
                for p in self._positions:
                    for d, on in self.device[p].items():
                        self.model.add_bool_or([self.inside[unit][p].negated(), on.negated(), shared[d]])

    def _acyclic(self) -> None:
        """reached[u][p] => reached[v][p] along an edge from u to v, so positions never decrease along the flow."""
        for v, unit in enumerate(self.task.unit_of):
            for p in self._positions:
                self.model.add_implication(self.inside[unit][p], self.reached[v][p])
                if p + 1 < len(self._positions):
                    behind = self.reached[v][p + 1]
                    self.model.add_implication(behind, self.reached[v][p])
                    self.model.add_implication(behind, self.inside[unit][p].negated())
        for u, v in self._graph.arcs:
            one, other = self.task.unit_of[u], self.task.unit_of[v]
            for p in self._positions:
                self.model.add_implication(self.reached[u][p], self.reached[v][p])
                # An operator is after p if it has reached p and is not in it. If v is in p, u must not be after p.
                if one != other:
                    self.model.add_bool_or(
                        [self.inside[other][p].negated(), self.inside[one][p], self.reached[u][p].negated()]
                    )

    def _ordered(self) -> None:
        """Constraint: positions are in the order of starts, and a device runs its subgraphs one after another."""
        for p in self._positions[1:]:
            self.model.add(self.start[p] >= self.start[p - 1])
            for before in range(p) if self.task.subgraphs > 1 else ():
                for d in self.task.accelerators:
                    both = [self.device[before][d], self.device[p][d]]
                    self.model.add(self.start[p] >= self.finish[before]).only_enforce_if(both)
        if self.task.is_uniform:
            self.used = used = [self.model.new_bool_var(f"used {p}") for p in self._positions]
            for p in self._positions:
                self.model.add_bool_or([used[p].negated(), *(each[p] for each in self.inside)])
                for each in self.inside:
                    self.model.add_implication(each[p], used[p])
                if p:
                    self.model.add_implication(used[p], used[p - 1])

    def _crossings(self) -> None:
        """Define enters[u, p]: position p needs operator u's output from outside. leaves[u, p]: p sends it outside."""
        for u, consumers in enumerate(self._graph.consumers):
            others = {self.task.unit_of[v] for v in consumers} - {self.task.unit_of[u]}
            for p in self._positions if others else ():
                enters = self.enters[u, p] = self.model.new_bool_var(f"v{u} enters {p}")
                leaves = self.leaves[u, p] = self.model.new_bool_var(f"v{u} leaves {p}")
                home = self.inside[self.task.unit_of[u]][p]
                self.model.add_implication(leaves, home)
                self.model.add_implication(enters, home.negated())
                self.model.add_implication(enters, self.reached[u][p].negated())
                for unit in others:
                    there = self.inside[unit][p]
                    self.model.add_bool_or([there.negated(), home, enters])
                    self.model.add_bool_or([home.negated(), there, leaves])

    def _far(self) -> tuple[dict[tuple[int, int], Literal], dict[tuple[int, int], Literal]]:
        """Return maps like `enters` and `leaves`, whose literals only count transfers between different devices."""
        same = {pair: self._on_one_device(*pair) for pair in combinations(self._positions, 2)}
        received = {key: self.model.new_bool_var(f"received {key}") for key in self.enters}
        sent = {key: self.model.new_bool_var(f"sent {key}") for key in self.enters}
        for u, p in self.enters:
            one, enters = self.task.unit_of[u], self.enters[u, p].negated()
            self.model.add_bool_or([enters, self.on_host[one].negated(), received[u, p]])
            home = self.inside[one][p].negated()
            for other in {self.task.unit_of[v] for v in self._graph.consumers[u]} - {one}:
                self.model.add_bool_or([home, self.on_host[other].negated(), sent[u, p]])
            for away in (each for each in self._positions if each != p):
                near = same[min(p, away), max(p, away)]
                self.model.add_bool_or([enters, self.inside[one][away].negated(), near, received[u, p]])
                for other in {self.task.unit_of[v] for v in self._graph.consumers[u]} - {one}:
                    self.model.add_bool_or([home, self.inside[other][away].negated(), near, sent[u, p]])
        return received, sent

    def _on_one_device(self, one: int, other: int) -> Literal:
        same = self.model.new_bool_var(f"{one} and {other} on one device")
        for d in self.task.accelerators:
            first, second = self.device[one][d], self.device[other][d]
            self.model.add_bool_or([first.negated(), second.negated(), same])
            self.model.add_bool_or([same.negated(), first.negated(), second])
        return same

    def _durations(self) -> None:
        """finish >= start + times of the units + transfers that enter and leave.

        Each output counts once per direction.
        """
        moved = self._ticks.moved if self.task.pays_transfers else (0,) * len(self._ticks.moved)
        for p in self._positions:
            paid = sum(
                moved[u] * (self.received[u, p] + self.sent[u, p])
                for u in range(len(moved))
                if moved[u] and (u, p) in self.enters
            )
            for times, literals in self._kinds(p):
                work = sum(time * self.inside[u][p] for u, time in enumerate(times) if time)
                constraint = self.model.add(self.finish[p] >= self.start[p] + work + paid)
                if literals:
                    constraint.only_enforce_if(literals)

    def _kinds(self, position: int) -> list[tuple[list[int], list[Literal]]]:
        """Return the possible times of units at a position in ticks, each with the literals of its device.

        If all devices have the same times, there is one entry without literals.
        """
        of_devices = [
            ([0 if math.isinf(time) else self._ticks.of(time) for time in self.task.time[d]], [on])
            for d, on in self.device[position].items()
        ]
        times = of_devices[0][0]
        return [(times, [])] if all(times == others for others, _ in of_devices) else of_devices

    def _latencies(self) -> None:
        """Constraint: inputs are done before a subgraph starts.

        Operators of a subgraph are done when the subgraph finishes. Operators on a host are done one by one.
        """
        delay = (0,) * len(self._ticks.moved) if self.task.pays_transfers else self._ticks.moved
        for (u, p), enters in self.enters.items():
            self.model.add(self.start[p] >= self.done[u]).only_enforce_if(enters)
            if delay[u]:
                self.model.add(self.start[p] >= self.done[u] + delay[u]).only_enforce_if(self.received[u, p])
        for v, unit in enumerate(self.task.unit_of):
            self.model.add(self.total >= self.done[v])
            host = self.task.host[unit]
            alone = 0 if host is None else self._ticks.of(self._graph.operators[v].time_on(self._kind(host)) or 0.0)
            self.model.add(self.done[v] >= alone * self.on_host[unit])
            for p in self._positions:
                self.model.add(self.done[v] >= self.finish[p]).only_enforce_if(self.inside[unit][p])
            for u in self._graph.predecessors[v]:
                self.model.add(self.done[v] >= self.done[u] + alone * self.on_host[unit])
                if delay[u] and self.task.unit_of[u] != unit:
                    apart = [self.on_host[unit], self.on_host[self.task.unit_of[u]].negated()]
                    self.model.add(self.done[v] >= self.done[u] + delay[u] + alone).only_enforce_if(apart)

    def _kind(self, device: int) -> str:
        return self.task.problem.devices[device].kind
