"""The best layout of a small graph by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from helpers.graphs import loads_of
from tessel_core.model import DevicePool, OperatorGraph


def device_of(shape: str, stage: int, devices: int) -> int:
    """Return the device of a stage in a loop or a V."""
    turn, place = divmod(stage, devices)
    return devices - 1 - place if shape == "v" and turn % 2 else place


def least_layout_load(graph: OperatorGraph, pool: DevicePool, shape: str, stages_per_device: int) -> float | None:
    """Return the least largest load over all layouts on accelerators; None if none fits.

    Operators hold their `size`.
    """
    devices = pool.accelerators
    chain = [device_of(shape, stage, devices) for stage in range(stages_per_device * devices)]
    found = (
        max(loads_of(graph, pool, tuple(chain[stage] for stage in stages)))
        for stages in all_stages(graph, len(chain))
        if _fits(graph, pool, [chain[stage] for stage in stages])
    )
    return min(found, default=None)


def all_stages(graph: OperatorGraph, count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut the graph into `count` nonempty stages along the flow."""
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
    """Yield pairs of operators in the order of stages; backward edges are reversed."""
    forward = {home[i] for i, each in enumerate(graph.operators) if not each.backward}
    for edge in graph.edges:
        one, other = index[edge.source], index[edge.target]
        if not graph.operators[other].backward:
            yield one, other
        elif graph.operators[one].backward and (home[one] not in forward or home[other] not in forward):
            yield other, one


def _home(graph: OperatorGraph, index: dict[str, int], operator: int) -> int:
    """Return the first operator that must share a device with `operator`."""
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
    """Whether operators are supported on their devices and fit the memory."""
    kinds = [device.kind for device in pool.devices(graph)]
    if any(each.time_on(kinds[device]) is None for each, device in zip(graph.operators, on, strict=True)):
        return False
    if pool.memory is None:
        return True
    held = [0.0] * pool.accelerators
    for each, device in zip(graph.operators, on, strict=True):
        held[device] += each.memory
    return max(held) <= pool.memory
