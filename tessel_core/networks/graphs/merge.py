"""Several operators as one: sums of what they cost, and the tensors that leave them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.networks.graphs.kept import size_of


class Phase(StrEnum):
    """When an operator runs in a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHT_GRADIENT = "weight_gradient"


def phase_of(operator: Operator) -> Phase:
    """The phase that its kind and direction say."""
    if not operator.backward:
        return Phase.FORWARD
    return Phase.WEIGHT_GRADIENT if operator.kind.endswith(Phase.WEIGHT_GRADIENT) else Phase.BACKWARD


@dataclass(frozen=True, slots=True)
class Group:
    """Operators, by index, that become one; all of one phase and one colour."""

    name: str
    members: tuple[int, ...]
    home: str | None = None
    """For backward operators, the name of the group of their forward ones."""


def merged(graph: OperatorGraph, groups: Sequence[Group]) -> OperatorGraph:
    """The quotient of the graph; `groups` hold every operator once, and no cycle passes through them."""
    group_of = {index: group for group in groups for index in group.members}
    leaving: dict[str, set[int]] = defaultdict(set)
    links = dict[tuple[str, str], None]()
    for one, other in graph.arcs:
        source, target = group_of[one], group_of[other]
        if source is target:
            continue
        links[source.name, target.name] = None
        if (source.home or source.name) != (target.home or target.name):  # else it never leaves the device
            leaving[source.name].add(one)
    output = {group.name: _output(graph, group, leaving[group.name]) for group in groups}
    return replace(
        graph,
        operators=tuple(_operator(graph, group, output[group.name][0]) for group in groups),
        edges=tuple(Edge(source, target, *output[source]) for source, target in links),
    )


def _output(graph: OperatorGraph, group: Group, leaving: Iterable[int]) -> tuple[int | None, float | None]:
    """Bytes and cost of what leaves the group; where nothing does, bytes of its last tensors."""
    inside = set(group.members)
    last = [index for index in group.members if inside.isdisjoint(graph.consumers[index])]
    sizes = [size_of(graph, index) for index in (sorted(leaving) or last)]
    has_costs = any(edge.cost is not None for edge in graph.edges)
    cost = sum(graph.output_cost[index] for index in leaving) if has_costs else None
    return None if None in sizes else sum(size or 0 for size in sizes), cost


def _operator(graph: OperatorGraph, group: Group, output_bytes: int | None) -> Operator:
    parts = [graph.operators[index] for index in group.members]
    if len(parts) == 1:
        return replace(parts[0], name=group.name, output_bytes=output_bytes, forward_of=group.home)
    phase = phase_of(parts[0])
    return Operator(
        group.name,
        "layer" if phase is Phase.FORWARD else f"layer_{phase}",
        _times(parts),
        flops=_whole([part.flops for part in parts]),
        bytes=_whole([part.bytes for part in parts]),
        weight_bytes=_known([part.weight_bytes for part in parts]),
        activation_bytes=_known([part.activation_bytes for part in parts]),
        output_bytes=output_bytes,
        size=sum(part.memory for part in parts) if any(part.size is not None for part in parts) else None,
        backward=parts[0].backward,
        colour=parts[0].colour,
        forward_of=group.home,
    )


def _times(parts: Sequence[Operator]) -> tuple[DeviceTime, ...]:
    """A kind of device supports the whole where it supports every part."""
    kinds = [each.kind for each in parts[0].times]
    times = ((kind, [part.time_on(kind) for part in parts]) for kind in kinds)
    return tuple(
        DeviceTime(kind, sum((each or 0.0 for each in found), 0.0)) for kind, found in times if None not in found
    )


def _whole(amounts: Sequence[float | None]) -> float | None:
    """The sum; not known where one of them is not."""
    return None if None in amounts else sum((amount or 0.0 for amount in amounts), 0.0)


def _known(amounts: Sequence[int | None]) -> int | None:
    """The sum of those that are known, as everywhere where memory is counted; None where none is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
