"""When what runs for one sample, derived from a placement with subgraphs alone."""

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
    """A unit of execution: a subgraph of an accelerator, or one operator of a host; times in the graph's unit."""

    operators: tuple[int, ...]
    device: int
    start: float
    finish: float

    @property
    def duration(self) -> float:
        """Time of its operators and of the transfers that load its device."""
        return self.finish - self.start


@dataclass(frozen=True)
class Latency:
    """The steps of one sample, those that others wait for first, and when the last of them is done.

    A host runs an operator as soon as its inputs are there, any number at once, and pays no transfers.  A subgraph
    starts when all inputs from outside of it are there and the previous subgraph of its device is done; it takes
    `sum of times + sum of costs of sources outside + sum of costs of outputs that leave it`, each source once, and
    all its operators are done with it.  [Tarnawski et al., NeurIPS 2020, latency]  On a mesh a transfer costs what its
    link takes, a sent one the slowest of its links, and nothing where it stays on the device; where transfers
    overlap, they load nobody and each delays the start of its receiver.
    """

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, placement: Placement) -> Latency:
        """The steps of a placement whose every operator has one device and that keeps the rule of its subgraphs.

        Raises InputError where operators have no single device, or steps wait for each other in a circle.
        """
        parts = parts_of(placement)
        order = topological_order(waits(placement, parts, in_order=True))
        if len(order) < len(parts):
            raise InputError("subgraphs", "wait for each other in a circle, so nothing can be said of their times")
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
        """When the last step is done: the latency of one sample."""
        return max(step.finish for step in self.steps)

    def busy(self, device: int) -> float:
        """How long a device is busy; hosts run operators side by side, and all of them count."""
        return sum(step.duration for step in self.steps if step.device == device)


def parts_of(placement: Placement) -> tuple[tuple[int, ...], ...]:
    """The operators that run as one: subgraphs of accelerators, and each operator of a host alone.

    Raises InputError where the placement has no subgraphs, or an operator has no device or several.
    """
    if placement.subgraphs is None:
        raise InputError("placement", "has no subgraphs, which a latency needs")
    found: dict[tuple[int, int, int], list[int]] = {}
    for operator, (on, subgraph) in enumerate(zip(placement.assignment, placement.subgraphs, strict=True)):
        if len(on) != 1:
            name = placement.graph.operators[operator].name
            raise InputError(f"operator {name}", f"must have one device for a latency, it has {len(on)}")
        alone = operator if placement.devices[on[0]].is_host else -1
        found.setdefault((on[0], subgraph, alone), []).append(operator)
    return tuple(map(tuple, found.values()))


def waits(placement: Placement, parts: Sequence[tuple[int, ...]], *, in_order: bool) -> list[list[int]]:
    """Per part, the parts that it waits for: for their outputs, and `in_order` for its device's previous subgraph."""
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
    """Parts that wait for each other in a circle, the first named again at the end; empty where none do."""
    parts = parts_of(placement)
    return [parts[part] for part in find_cycle(waits(placement, parts, in_order=in_order))]


class StepCosts:
    """Times of a placement's steps and of the transfers at their ends, in the graph's unit."""

    def __init__(self, placement: Placement) -> None:
        self._placement, self._graph = placement, placement.graph
        self._device_of = [device for (device,) in placement.assignment]
        self._loads = placement.transfers.load_devices

    def duration(self, operators: Sequence[int], device: int) -> float:
        """Times of the operators, and on an accelerator what is sent and received, each source once."""
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
        """When the last input from outside is there, `done` being when each operator's output is."""
        sources = self._sources(operators)
        if self._loads:
            return max((done[each] for each in sources), default=0.0)
        return max((done[each] + self._seconds(each, device) for each in sources), default=0.0)

    def _sources(self, operators: Sequence[int]) -> set[int]:
        """Those outside whose outputs the operators take."""
        return {source for each in operators for source in self._graph.predecessors[each]}.difference(operators)

    def _seconds(self, source: int, device: int) -> float:
        """A graph's own costs are those of the way through the host, which two subgraphs of a device take as well."""
        transfers, home = self._placement.transfers, self._device_of[source]
        if transfers.mesh is not None and home == device:
            return 0.0
        return transfers.seconds(self._graph, source, home, device)


LATENCY = "latency"
"""The objective: least time from a sample's start to its end, of a placement with subgraphs."""


def measure_placement(placement: Placement, objective: str) -> float | None:
    """The objective's value of a valid placement; None for an unknown objective, or a latency without subgraphs."""
    if objective == LATENCY:
        return None if placement.subgraphs is None else Latency.of(placement).total
    measure = OBJECTIVES.get(objective)
    return None if measure is None else measure(PlacementLoads.of(placement))
