"""The best placement with replicated stages by trying every one: it knows no ideal, no solver and no loads of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from helpers.graphs import ROUNDING, is_chain
from tessel_core.model import CPU, Operator, OperatorGraph, PlacementDevice

Move = Callable[[Operator, int, int, int], float]
"""Time to move one of so many parts of an operator's output from one device to another."""
Reduce = Callable[[tuple[int, ...], float], float]
"""Time to reduce so many bytes over devices."""
On = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Costs:
    """What the oracle needs to know besides graph and devices."""

    move: Move | None
    """None where transfers load no device."""
    reduce: Reduce
    overlapped: bool = False
    in_flight: int = 1


def least_replicated_load(graph: OperatorGraph, devices: Sequence[PlacementDevice], costs: Costs) -> float | None:
    """The least largest load; None where nothing keeps the rules."""
    stages = list(_sets(devices))
    found = [
        max(replicated_loads(graph, devices, on, costs))
        for on in product(stages, repeat=len(graph.operators))
        if _is_allowed(graph, devices, on, costs.in_flight) and is_chain(graph, tuple(map(stages.index, on)))
    ]
    return min(found, default=None)


def _sets(devices: Sequence[PlacementDevice]) -> Iterator[tuple[int, ...]]:
    """Single devices, and accelerators of one kind."""
    for size in range(1, len(devices) + 1):
        for each in combinations(range(len(devices)), size):
            kinds = {devices[d].kind for d in each}
            if size == 1 or (len(kinds) == 1 and CPU not in kinds):
                yield each


def _is_allowed(graph: OperatorGraph, devices: Sequence[PlacementDevice], on: On, in_flight: int) -> bool:
    if any(set(one) & set(other) and one != other for one, other in combinations(set(on), 2)):
        return False
    place = dict(zip((each.name for each in graph.operators), on, strict=True))
    colours: dict[str, tuple[int, ...]] = {}
    held = [0.0] * len(devices)
    for operator in graph.operators:
        at = place[operator.name]
        if operator.time_on(devices[at[0]].kind) is None:
            return False
        if operator.colour and colours.setdefault(operator.colour, at) != at:
            return False
        if operator.forward_of and place[operator.forward_of] != at:
            return False
        for device in at:
            held[device] += _bytes(operator, len(at), in_flight)
    return all(
        device.memory_capacity is None or device.kind == CPU or amount <= device.memory_capacity * (1 + ROUNDING)
        for device, amount in zip(devices, held, strict=True)
    )


def _bytes(operator: Operator, replicas: int, in_flight: int) -> float:
    activations = (operator.activation_bytes or 0) * in_flight
    if operator.size is None:
        return (operator.weight_bytes or 0) + activations / replicas
    return operator.size - min(operator.size, activations) * (replicas - 1) / replicas


def replicated_loads(graph: OperatorGraph, devices: Sequence[PlacementDevice], on: On, costs: Costs) -> list[float]:
    """Per device: its part of its operators and of what it sends and receives, and the reduction of its gradients."""
    place = dict(zip((each.name for each in graph.operators), on, strict=True))
    work, moved, reduced = ([0.0] * len(devices) for _ in range(3))
    for operator in graph.operators:
        at = place[operator.name]
        for device in at:
            work[device] += (operator.time_on(devices[device].kind) or 0) / len(at)
        away = {place[edge.target] for edge in graph.edges if edge.source == operator.name} - {at}
        if costs.move is None or not away:
            continue
        takers = [(device, len(there)) for there in away for device in there]
        for device in at:
            moved[device] += max(costs.move(operator, device, other, len(at)) for other, _ in takers)
        for device, parts in takers:
            moved[device] += min(costs.move(operator, one, device, parts) for one in at)
    for stage in {at for at in on if len(at) > 1}:
        amount = sum(_gradients(graph, each) for each, at in zip(graph.operators, on, strict=True) if at == stage)
        for device in stage:
            reduced[device] = costs.reduce(stage, amount) if amount else 0.0
    fold = max if costs.overlapped else sum
    return [fold((work[d], reduced[d])) + (moved[d] if device.kind != CPU else 0.0) for d, device in enumerate(devices)]


def _gradients(graph: OperatorGraph, operator: Operator) -> float:
    if not any(each.backward for each in graph.operators):
        return 0.0
    if operator.weight_bytes is None and operator.activation_bytes is None and not operator.backward:
        return operator.size or 0.0
    return float(operator.weight_bytes or 0)
