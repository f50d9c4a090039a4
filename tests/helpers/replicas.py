"""The best placement with replicated stages by brute force, with independent loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

from helpers.graphs import ROUNDING, is_onwards
from tessel_core.model import CPU, Operator, OperatorGraph, PlacementDevice

Move = Callable[[Operator, int, int, int], float]
"""(operator, parts, source, target) -> time to move one part of the output between two devices."""
Reduce = Callable[[tuple[int, ...], float], float]
"""(devices, bytes) -> time of a reduction."""
On = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Costs:
    """Costs of transfers and reductions."""

    move: Move | None
    """None if transfers load no device."""
    reduce: Reduce
    overlapped: bool = False
    micro_batches: int = 32


def least_replicated_load(graph: OperatorGraph, devices: Sequence[PlacementDevice], costs: Costs) -> float | None:
    """Return the least largest load; None if no placement keeps the rules."""
    found = [
        max(replicated_loads(graph, devices, on, costs))
        for on in product(list(_sets(devices)), repeat=len(graph.operators))
        if _is_allowed(graph, devices, on)
        and any(_fits(graph, devices, on, order, costs.micro_batches) for order in _orders(graph, on))
    ]
    return min(found, default=None)


def _orders(graph: OperatorGraph, on: On) -> Iterator[On]:
    """Yield every order of the stages in which no tensor flows back."""
    stages = sorted(set(on))
    for order in permutations(stages):
        if is_onwards(graph, tuple(map(order.index, on))):
            yield order


def _sets(devices: Sequence[PlacementDevice]) -> Iterator[tuple[int, ...]]:
    """Yield single devices, and sets of accelerators of one kind."""
    for size in range(1, len(devices) + 1):
        for each in combinations(range(len(devices)), size):
            kinds = {devices[d].kind for d in each}
            if size == 1 or (len(kinds) == 1 and CPU not in kinds):
                yield each


def _is_allowed(graph: OperatorGraph, devices: Sequence[PlacementDevice], on: On) -> bool:
    """Whether operators are supported, colocated as required, and on the devices of one stage."""
    if any(set(one) & set(other) and one != other for one, other in combinations(set(on), 2)):
        return False
    place = dict(zip((each.name for each in graph.operators), on, strict=True))
    colours: dict[str, tuple[int, ...]] = {}
    for operator in graph.operators:
        at = place[operator.name]
        if operator.time_on(devices[at[0]].kind) is None:
            return False
        if operator.colour and colours.setdefault(operator.colour, at) != at:
            return False
        if operator.forward_of and place[operator.forward_of] != at:
            return False
    return True


def _fits(graph: OperatorGraph, devices: Sequence[PlacementDevice], on: On, order: On, micro_batches: int) -> bool:
    """Whether memory fits with the stages in this order: the k-th from the end holds min(k, all) micro-batches."""
    trained = {each.forward_of for each in graph.operators}
    for place, stage in enumerate(order):
        count, held = min(len(order) - place, micro_batches), 0.0
        for operator in (each for each, at in zip(graph.operators, on, strict=True) if at == stage):
            held += _bytes(operator, len(stage), count if operator.name in trained else 1)
        for device in (devices[d] for d in stage):
            limit = None if device.kind == CPU else device.memory_capacity
            if limit is not None and held > limit * (1 + ROUNDING):
                return False
    return True


def _bytes(operator: Operator, replicas: int, count: int) -> float:
    """Return the bytes with the activations of `count` micro-batches; `size` includes those of one."""
    activations = operator.activation_bytes or 0
    whole = (operator.weight_bytes or 0) + activations if operator.size is None else operator.size
    return whole - min(whole, activations) + (count * activations if count > 1 else min(whole, activations)) / replicas


def replicated_loads(graph: OperatorGraph, devices: Sequence[PlacementDevice], on: On, costs: Costs) -> list[float]:
    """Return the load of each device: its share of operators and transfers, and the reduction of its gradients."""
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
