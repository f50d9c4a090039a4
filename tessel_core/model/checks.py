"""Checks that several nouns make of themselves: names, numbers, and graphs without cycles."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

T = TypeVar("T")

_LONGEST_NAME = 200
_LONGEST_PATH = 12
_LEAST_RATE, _LARGEST_RATE = 1e-6, 1e24


def check_name(where: str, name: str) -> None:
    """Names stand in tables, pictures, terminals and error messages."""
    if not name:
        raise InputError(where, "its name is empty")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise InputError(where, f"its name must be at most {_LONGEST_NAME} printable characters, got {name[:40]!a}")


def check_unique(where: str, names: Iterable[str]) -> None:
    """No name twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(where, f"duplicate name {repeated[0]!r}")


def check_integer(where: str, what: str, value: object, least: int) -> None:
    """An integer between `least` and 2^53."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, f"{what} must be an integer, got {value!r}")
    if value < least:
        raise InputError(where, f"{what} must be at least {least}, got {value}")
    if value > MAGNITUDE:
        raise InputError(where, f"{what} must be at most 2^53, got {value}")


def check_amount(where: str, what: str, value: object) -> None:
    """A finite number between 0 and 2^53."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(where, f"{what} must be a finite number, got {value!r}")
    if value < 0:
        raise InputError(where, f"{what} must not be negative, got {value:g}")
    if value > MAGNITUDE:
        raise InputError(where, f"{what} must be at most 2^53, got {value:g}")


def check_rate(where: str, what: str, value: object) -> None:
    """A number between 1e-6 and 1e24 of something per second, so that times that follow from it stay finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(where, f"{what} must be a finite number, got {value!r}")
    if value <= 0:
        raise InputError(where, f"{what} must be above 0, got {value:g}")
    if not _LEAST_RATE <= value <= _LARGEST_RATE:
        raise InputError(where, f"{what} must be between {_LEAST_RATE:g} and {_LARGEST_RATE:g}, got {value:g}")


def grouped(count: int, pairs: Iterable[tuple[int, T]]) -> tuple[tuple[T, ...], ...]:
    """Per number from 0 to count - 1, what the pairs have for it, in their order."""
    found: list[list[T]] = [[] for _ in range(count)]
    for number, each in pairs:
        found[number].append(each)
    return tuple(map(tuple, found))


def quotient(count: int, arcs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Per group, the other groups that arcs lead from, in increasing order; arcs are (source's group, target's)."""
    before: list[set[int]] = [set() for _ in range(count)]
    for source, target in arcs:
        if source != target:
            before[target].add(source)
    return [sorted(each) for each in before]


def joined(count: int, links: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """The sets that `links` join 0 … count - 1 into, ordered by their least members.

    >>> joined(4, [(3, 1), (1, 2)])
    ((0,), (1, 2, 3))
    """
    leader = list(range(count))

    def find(member: int) -> int:
        while leader[member] != member:
            leader[member] = leader[leader[member]]
            member = leader[member]
        return member

    for one, other in links:
        first, second = sorted((find(one), find(other)))
        leader[second] = first
    return tuple(filter(None, grouped(count, ((find(member), member) for member in range(count)))))


def path_text(names: Iterable[str]) -> str:
    """A path or a cycle for messages, its middle left out where it is long."""
    shown = list(names)
    return " -> ".join(shown if len(shown) <= _LONGEST_PATH else [*shown[:6], "…", *shown[-5:]])


def topological_order(predecessors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Vertices with predecessors first, ties by number (Kahn); shorter than the graph where it has a cycle."""
    successors = grouped(
        len(predecessors), ((each, vertex) for vertex, before in enumerate(predecessors) for each in before)
    )
    waiting = [len(before) for before in predecessors]
    ready = [vertex for vertex, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        vertex = heapq.heappop(ready)
        order.append(vertex)
        for after in successors[vertex]:
            waiting[after] -= 1
            if waiting[after] == 0:
                heapq.heappush(ready, after)
    return tuple(order)


def find_cycle(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """The vertices of one cycle in the direction of its arcs, the first named again at the end; empty without one."""
    ordered = set(topological_order(predecessors))
    left = [vertex for vertex in range(len(predecessors)) if vertex not in ordered]
    if not left:
        return []
    vertex, path = left[0], list[int]()
    while vertex not in path:
        path.append(vertex)
        vertex = next(before for before in predecessors[vertex] if before not in ordered)
    return [vertex, *reversed(path[path.index(vertex) :])]


def circles(predecessors: Sequence[Sequence[int]]) -> list[set[int]]:
    """Sets of vertices, each of which reaches all others of its set."""
    if len(topological_order(predecessors)) == len(predecessors):
        return []
    import networkx  # late: most graphs have no circles, and it takes a tenth of a second to load

    graph = networkx.DiGraph((one, other) for other, before in enumerate(predecessors) for one in before)
    return [circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1]
