"""The best layout of a small graph by trying every one: it knows no chain of groups and no solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from helpers.graphs import loads_of
from tessel_core.model import DevicePool, OperatorGraph


def device_of(shape: str, stage: int, devices: int) -> int:
    """Round the devices, or down and up again."""
    turn, place = divmod(stage, devices)
    return devices - 1 - place if shape == "v" and turn % 2 else place


def least_layout_load(graph: OperatorGraph, pool: DevicePool, shape: str, stages_per_device: int) -> float | None:
    """The least largest load of all layouts on accelerators, whose operators hold their sizes; None without any."""
    devices = pool.accelerators
    chain = [device_of(shape, stage, devices) for stage in range(stages_per_device * devices)]
    found = (
        max(loads_of(graph, pool, tuple(chain[stage] for stage in stages)))
        for stages in all_stages(graph, len(chain))
        if _fits(graph, pool, [chain[stage] for stage in stages])
    )
    return min(found, default=None)


def all_stages(graph: OperatorGraph, count: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut the graph into so many stages along the flow, none of them empty."""
    index = {operator.name: i for i, operator in enumerate(graph.operators)}
    home = [_home(graph, index, i) for i in range(len(graph.operators))]
    order = [(home[i], home[j]) for i, j in _order(graph, index, home)]
    firsts = sorted(set(home))
    for chosen in product(range(count), repeat=len(firsts)):
        if len(set(chosen)) == count:
            stage = dict(zip(firsts, chosen, strict=True))
            if all(stage[one] <= stage[other] for one, other in order):
                yield tuple(stage[each] for each in home)


def _order(graph: OperatorGraph, index: dict[str, int], home: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of operators, the first of which is in no later stage; the backward pass takes the way back."""
    forward = {home[i] for i, each in enumerate(graph.operators) if not each.backward}
    for edge in graph.edges:
        one, other = index[edge.source], index[edge.target]
        if not graph.operators[other].backward:
            yield one, other
        elif graph.operators[one].backward and (home[one] not in forward or home[other] not in forward):
            yield other, one


def _home(graph: OperatorGraph, index: dict[str, int], operator: int) -> int:
    """The first of the operators that share a device with it."""
    near = {operator}
    while True:
        more = {j for i in near for j in range(len(graph.operators)) if _tied(graph, index, i, j)} | near
        if more == near:
            return min(near)
        near = more


def _tied(graph: OperatorGraph, index: dict[str, int], one: int, other: int) -> bool:
    first, second = graph.operators[one], graph.operators[other]
    coloured = first.colour is not None and first.colour == second.colour
    return coloured or first.forward_of == second.name or second.forward_of == first.name


def _fits(graph: OperatorGraph, pool: DevicePool, on: Sequence[int]) -> bool:
    """Supported, and within memory."""
    kinds = [device.kind for device in pool.devices(graph)]
    if any(each.time_on(kinds[device]) is None for each, device in zip(graph.operators, on, strict=True)):
        return False
    if pool.memory is None:
        return True
    held = [0.0] * pool.accelerators
    for each, device in zip(graph.operators, on, strict=True):
        held[device] += each.memory
    return max(held) <= pool.memory
