"""Checks of names and numbers, and algorithms on small graphs, which several modules of this package use."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

T = TypeVar("T")

_MAX_NAME_CHARACTERS = 200
_MAX_NAMES_IN_PATH = 12
_MIN_RATE, _MAX_RATE = 1e-6, 1e24


def check_name(where: str, name: str) -> None:
    """Raise InputError unless `name` is short and printable, so that tables, charts and terminals can show it."""
    if not name:
        raise InputError(where, "its name is empty")
    if len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
        why = f"its name must be at most {_MAX_NAME_CHARACTERS} printable characters, got {name[:40]!a}"
        raise InputError(where, why)


def check_unique(where: str, names: Iterable[str]) -> None:
    """Raise InputError if a name occurs twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(where, f"duplicate name {repeated[0]!r}")


def check_integer(where: str, what: str, value: object, least: int) -> None:
    """Raise InputError unless `value` is an integer from `least` to 2^53."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, f"{what} must be an integer, got {value!r}")
    if value < least:
        raise InputError(where, f"{what} must be at least {least}, got {value}")
    if value > MAGNITUDE:
        raise InputError(where, f"{what} must be at most 2^53, got {value}")


def check_amount(where: str, what: str, value: object) -> None:
    """Raise InputError unless `value` is a finite number from 0 to 2^53."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(where, f"{what} must be a finite number, got {value!r}")
    if value < 0:
        raise InputError(where, f"{what} must not be negative, got {value:g}")
    if value > MAGNITUDE:
        raise InputError(where, f"{what} must be at most 2^53, got {value:g}")


def check_rate(where: str, what: str, value: object) -> None:
    """Raise InputError unless `value` is from 1e-6 to 1e24 per second.

    These limits keep every time that is computed from a rate finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(where, f"{what} must be a finite number, got {value!r}")
    if value <= 0:
        raise InputError(where, f"{what} must be above 0, got {value:g}")
    if not _MIN_RATE <= value <= _MAX_RATE:
        raise InputError(where, f"{what} must be between {_MIN_RATE:g} and {_MAX_RATE:g}, got {value:g}")


def grouped(count: int, pairs: Iterable[tuple[int, T]]) -> tuple[tuple[T, ...], ...]:
    """Group pairs (index, value) by index.

    Entry i of the result lists the values that came with index i, in their order.
    """
    values: list[list[T]] = [[] for _ in range(count)]
    for index, value in pairs:
        values[index].append(value)
    return tuple(map(tuple, values))


def quotient(count: int, arcs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the predecessors of each group of vertices, in ascending order.

    An arc is a pair (group of its source, group of its target). Arcs inside a group are ignored.
    """
    before: list[set[int]] = [set() for _ in range(count)]
    for source, target in arcs:
        if source != target:
            before[target].add(source)
    return [sorted(each) for each in before]


def joined(count: int, links: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the connected components of the vertices 0 … count - 1, ordered by their least members.

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
    """Write a path or a cycle for a message. The middle of a long path is left out."""
    shown = list(names)
    return " -> ".join(shown if len(shown) <= _MAX_NAMES_IN_PATH else [*shown[:6], "…", *shown[-5:]])


def topological_order(predecessors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the vertices with predecessors first (Kahn's algorithm).

    The lowest vertex without open predecessors comes next.

    Vertices on a cycle, or after one, are left out.
    """
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
    """Return the vertices of one cycle, in the direction of its arcs. The first vertex is repeated at the end.

    The list is empty if the graph has no cycle.
    """
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
    """Return the strongly connected components of more than one vertex."""
    if len(topological_order(predecessors)) == len(predecessors):
        return []
    import networkx  # imported here: most graphs have no cycle, and the import takes a tenth of a second

    graph = networkx.DiGraph((one, other) for other, before in enumerate(predecessors) for one in before)
    return [circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1]
