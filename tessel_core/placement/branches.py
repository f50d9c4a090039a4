"""Parallel branches of a network, such as the two encoders of CLIP."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from tessel_core.model import OperatorGraph, Placement
from tessel_core.model.checks import circles, joined, quotient, topological_order
from tessel_core.model.layers import layer_of
from tessel_core.rules import Violation


@lru_cache(maxsize=16)
def branches_of(graph: OperatorGraph) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the branches of each stretch of the flow with parallel branches. A branch is a tuple of operator indices.

    Branches consist of layers, which the names of operators give. The trunk consists of the layers that come before or
    after every other layer. A stretch has the layers between two layers of the trunk, and each connected component of
    these layers is a branch. Layers that must share a device, or that are on a cycle, count as one layer.
    """
    names = [layer_of(operator) for operator in graph.operators]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    layers = [number[name] for name in names]
    links = [(layers[group[0]], layers[i]) for group in graph.colocated for i in group]
    arcs = [(layers[graph.colocated[one][0]], layers[graph.colocated[other][0]]) for one, other in graph.flow]
    part_of = _parts(len(number), links)
    circle = circles(quotient(len(number), [(part_of[one], part_of[other]) for one, other in arcs]))
    part_of = _parts(len(number), [*links, *((min(each), member) for each in circle for member in each)])
    before = quotient(len(number), [(part_of[one], part_of[other]) for one, other in arcs])
    return _stretches(before, [part_of[layer] for layer in layers])


def _parts(count: int, links: list[tuple[int, int]]) -> list[int]:
    """Return, for each layer, the least layer of its connected component. `links` has pairs of layers."""
    return [group[0] for _, group in sorted((each, group) for group in joined(count, links) for each in group)]


def _stretches(before: list[list[int]], part_of: list[int]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the branches of each stretch, as `branches_of` describes.

    A part is a set of layers that count as one, and its number is its least layer. `before` has the predecessors of
    each part, and `part_of` has the part of each operator.
    """
    order, parts = topological_order(before), sorted(set(part_of))
    above, below = [0] * len(before), [1 << part for part in range(len(before))]
    for part in order:
        for source in before[part]:
            above[part] |= above[source] | 1 << source
    for part in reversed(order):
        for source in before[part]:
            below[source] |= below[part]
    everything = sum(1 << part for part in parts)
    trunk = {part for part in parts if above[part] | below[part] == everything}
    ahead = sum(1 << part for part in trunk)
    arcs = [(source, part) for part in parts for source in before[part] if trunk.isdisjoint((source, part))]
    stretches: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for branch in joined(len(before), arcs):
        members = tuple(i for i, part in enumerate(part_of) if part in branch)
        if members and branch[0] not in trunk:
            stretches[(above[branch[0]] & ahead).bit_count()].append(members)
    return tuple(tuple(branches) for branches in stretches.values() if len(branches) > 1)


def branches_apart(placement: Placement) -> Iterator[Violation]:
    """Rule: no device has operators of two parallel branches. Yield a violation for the first such device."""
    operators = placement.graph.operators
    for stretch in branches_of(placement.graph):
        on: dict[int, int] = {}
        for branch in stretch:
            for i in branch:
                for device in placement.assignment[i]:
                    other = on.setdefault(device, i)
                    if other not in branch:
                        why = f"has {operators[other].name} and {operators[i].name}, which are on parallel branches"
                        yield Violation("branches", f"device {placement.devices[device].name}", why)
                        return
