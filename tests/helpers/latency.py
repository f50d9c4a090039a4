"""The least latency of one sample by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from helpers.graphs import is_allowed
from tessel_core.model import CPU, DevicePool, OperatorGraph

Place = tuple[int, int]
"""(device, subgraph on it)."""


def least_latency(graph: OperatorGraph, pool: DevicePool, subgraphs: int) -> float | None:
    """Return the least latency; None if no split keeps the rules. Hosts are equal, so only the first is tried."""
    found = (latency_of(graph, pool, places) for places in every_split(graph, pool, subgraphs))
    return min((each for each in found if each is not None), default=None)


def every_split(graph: OperatorGraph, pool: DevicePool, subgraphs: int) -> Iterator[tuple[Place, ...]]:
    places = [(device, index) for device in range(pool.accelerators) for index in range(subgraphs)]
    places += [(pool.accelerators, 0)] if pool.cpus else []
    for split in product(places, repeat=len(graph.operators)):
        if is_allowed(graph, pool, tuple(device for device, _ in split)):
            yield split


def latency_of(graph: OperatorGraph, pool: DevicePool, places: Sequence[Place]) -> float | None:
    """Return the end of the last operator; None if subgraphs wait for each other in a circle."""
    devices = pool.devices(graph)
    index = {operator.name: i for i, operator in enumerate(graph.operators)}
    edges = [(index[edge.source], index[edge.target], edge.cost or 0.0) for edge in graph.edges]
    part = [(i,) if devices[at[0]].kind == CPU else at for i, at in enumerate(places)]
    done: dict[tuple[int, ...], float] = {}
    waiting = set(part)
    while waiting:
        ready = [each for each in waiting if _needed(each, part, edges, waiting) <= done.keys()]
        if not ready:
            return None
        for each in ready:
            inputs = _needed(each, part, edges, waiting | done.keys())
            done[each] = max((done[other] for other in inputs), default=0.0) + _takes(graph, places, part, each, edges)
        waiting -= set(ready)
    return max(done.values())


def _needed(
    each: tuple[int, ...], part: Sequence[tuple[int, ...]], edges: Sequence[tuple[int, int, float]], all_parts: set
) -> set[tuple[int, ...]]:
    """Return the parts that a subgraph waits for: those with its inputs, and the preceding subgraph on its device."""
    found = {part[u] for u, v, _ in edges if part[v] == each and part[u] != each}
    if len(each) > 1:
        earlier = [other for other in set(part) if len(other) > 1 and other[0] == each[0] and other[1] < each[1]]
        found |= {max(earlier)} if earlier else set()
    return found


def _takes(
    graph: OperatorGraph,
    places: Sequence[Place],
    part: Sequence[tuple[int, ...]],
    each: tuple[int, ...],
    edges: Sequence[tuple[int, int, float]],
) -> float:
    kind = CPU if len(each) == 1 else "accelerator"
    work = sum(graph.operators[i].time_on(kind) or 0.0 for i, at in enumerate(part) if at == each)
    if kind == CPU:
        return work
    crossing = {u: cost for u, v, cost in edges if (part[u] == each) != (part[v] == each)}
    return work + sum(crossing.values())
