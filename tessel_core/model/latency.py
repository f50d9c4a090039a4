"""Latency of one sample, derived from a placement whose operators are grouped into subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model.checks import find_cycle, grouped, quotient, topological_order
from tessel_core.model.loads import OBJECTIVES, PlacementLoads
from tessel_core.model.placement import Placement


@dataclass(frozen=True, slots=True)
class Step:
    """A unit of execution: a subgraph on an accelerator, or one operator on a host. Times are in the graph's unit."""

    operators: tuple[int, ...]
    device: int
    start: float
    finish: float

    @property
    def duration(self) -> float:
        """Time of the step's operators and of the transfers that load its device."""
        return self.finish - self.start


@dataclass(frozen=True)
class Latency:
    """The steps of one sample, sorted so that each step comes after the steps that it waits for.

    A host runs an operator as soon as its inputs have arrived. It runs any number of operators at the same time, and
    transfers take it no time. A subgraph starts when its inputs have arrived and the previous subgraph of its device
    has finished. The duration of a subgraph is `sum of times + sum of costs of sources outside + sum of costs of
    outputs that leave it`, each source once. All of its operators finish together. [Tarnawski et al., NeurIPS 2020,
    latency]

    On a mesh, receiving a tensor takes the time of its link, and sending it takes the time of the slowest link used. A
    tensor that stays on its device costs nothing. Overlapped transfers occupy no device. They only delay the start of
    the receiver.
    """

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, placement: Placement) -> Latency:
        """Compute the steps of a placement.

        Raises InputError if an operator does not have exactly one device, or if steps wait for each other in a cycle.
        """
        parts = parts_of(placement)
        order = topological_order(waits(placement, parts, in_order=True))
        if len(order) < len(parts):
            raise InputError("subgraphs", "wait for each other in a cycle, so they have no start times")
        costs, done, steps = StepCosts(placement), [0.0] * len(placement.graph.operators), list[Step]()
        free = [0.0] * len(placement.devices)
        for part in order:
            operators = parts[part]
            (device,) = placement.assignment[operators[0]]
            host = placement.devices[device].is_host
            ready = costs.ready(operators, device, done)
            start = ready if host else max(ready, free[device])
            finish = start + costs.duration(operators, device)
            free[device] = finish
            for each in operators:
                done[each] = finish
            steps.append(Step(operators, device, start, finish))
        return cls(tuple(steps))

    @cached_property
    def total(self) -> float:
        """Latency of one sample: the time at which the last step finishes."""
        return max(step.finish for step in self.steps)

    def busy(self, device: int) -> float:
        """Return the total duration of a device's steps.

        On a host, steps may overlap, and the durations of all of them are added.
        """
        return sum(step.duration for step in self.steps if step.device == device)


def parts_of(placement: Placement) -> tuple[tuple[int, ...], ...]:
    """Return the operators of each step: the subgraphs of accelerators, and single operators on hosts.

    Raises InputError if the placement has no subgraphs, or if an operator does not have exactly one device.
    """
    if placement.subgraphs is None:
        raise InputError("placement", "has no subgraphs, which a latency needs")
    parts: dict[tuple[int, int, int], list[int]] = {}
    for operator, (on, subgraph) in enumerate(zip(placement.assignment, placement.subgraphs, strict=True)):
        if len(on) != 1:
            name = placement.graph.operators[operator].name
            raise InputError(f"operator {name}", f"must have one device for a latency, but has {len(on)}")
        alone = operator if placement.devices[on[0]].is_host else -1
        parts.setdefault((on[0], subgraph, alone), []).append(operator)
    return tuple(map(tuple, parts.values()))


def waits(placement: Placement, parts: Sequence[tuple[int, ...]], *, in_order: bool) -> list[list[int]]:
    """Return the predecessors of each part (see `parts_of`): the parts whose outputs it uses.

    With `in_order`, a subgraph also follows the previous subgraph of its device.
    """
    assert placement.subgraphs is not None, "parts come from subgraphs"
    part_of = {operator: part for part, operators in enumerate(parts) for operator in operators}
    arcs = [(part_of[source], part_of[target]) for source, target in placement.graph.arcs]
    if in_order:
        order = sorted(range(len(parts)), key=lambda each: placement.subgraphs[parts[each][0]])  # type: ignore[index]
        lines = grouped(len(placement.devices), ((placement.assignment[parts[each][0]][0], each) for each in order))
        for device, line in zip(placement.devices, lines, strict=True):
            arcs += [] if device.is_host else pairwise(line)
    return quotient(len(parts), arcs)


def circle_of(placement: Placement, *, in_order: bool) -> list[tuple[int, ...]]:
    """Return the parts on a cycle of waits, with the first repeated at the end. Empty if there is no cycle."""
    parts = parts_of(placement)
    return [parts[part] for part in find_cycle(waits(placement, parts, in_order=in_order))]


class StepCosts:
    """Durations of steps and arrival times of their inputs, in the graph's unit."""

    def __init__(self, placement: Placement) -> None:
        self._placement, self._graph = placement, placement.graph
        self._device_of = [device for (device,) in placement.assignment]
        self._loads = placement.transfers.load_devices

    def duration(self, operators: Sequence[int], device: int) -> float:
        """Return the duration of a step.

        It is the time of the operators, plus on an accelerator the time of the tensors that they receive and send. Each
        tensor counts once.
        """
        kind = self._placement.devices[device]
        time = sum(self._graph.operators[each].time_on(kind.kind) or 0.0 for each in operators)
        if kind.is_host or not self._loads:
            return time
        received = sum(self._seconds(source, device) for source in sorted(self._sources(operators)))
        inside = set(operators)
        sent = sum(
            max((self._seconds(each, self._device_of[to]) for to in outside), default=0.0)
            for each in operators
            if (outside := set(self._graph.consumers[each]) - inside)
        )
        return time + received + sent

    def ready(self, operators: Sequence[int], device: int, done: Sequence[float]) -> float:
        """Return the time at which the last input from outside the step arrives.

        `done` gives the finish time of each operator.
        """
        sources = self._sources(operators)
        if self._loads:
            return max((done[each] for each in sources), default=0.0)
        return max((done[each] + self._seconds(each, device) for each in sources), default=0.0)

    def _sources(self, operators: Sequence[int]) -> set[int]:
        """Return the operators outside the step whose outputs it takes."""
        return {source for each in operators for source in self._graph.predecessors[each]}.difference(operators)

    def _seconds(self, source: int, device: int) -> float:
        """Return the time to move the output of `source` to `device`.

        On a mesh it is 0 within one device. Without a mesh, the costs of the graph apply. They include the transfer to
        the host and back, which is needed even between two subgraphs of one device.
        """
        transfers, home = self._placement.transfers, self._device_of[source]
        if transfers.mesh is not None and home == device:
            return 0.0
        return transfers.seconds(self._graph, source, home, device)


LATENCY = "latency"
"""Name of the objective that minimises the time from a sample's start to its end, for placements with subgraphs."""


def measure_placement(placement: Placement, objective: str) -> float | None:
    """Return the value of an objective for a valid placement.

    The result is None if the objective is unknown, or if it is the latency and the placement has no subgraphs.
    """
    if objective == LATENCY:
        return None if placement.subgraphs is None else Latency.of(placement).total
    measure = OBJECTIVES.get(objective)
    return None if measure is None else measure(PlacementLoads.of(placement))
