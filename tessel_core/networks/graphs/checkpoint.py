"""Activation checkpointing: a layer keeps its input alone, and its backward runs its forward again [Chen 2016]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.kept import size_of
from tessel_core.networks.graphs.paths import by_layer_name


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Per operator, what it keeps for the backward, and whether it runs twice."""

    kept: tuple[int | None, ...]
    recomputed: tuple[bool, ...]


def checkpoints(graph: OperatorGraph, kept: Sequence[int | None]) -> Checkpoints:
    """Layers, which are first steps of names, that keep less by keeping their inputs alone.

    An input counts at its first consumer in the first layer that keeps it.  What a layer takes from outside of the
    graph stays with the operators that keep it.  A layer whose output nothing takes is left as it is: its backward
    follows at once.
    """
    found, twice, held = list(kept), [False] * len(kept), set[int]()
    for members in by_layer_name(graph.operators).values():
        inside = set(members)
        if not any(after not in inside for index in members for after in graph.consumers[index]):
            continue
        first = _first_consumers(graph, members)
        least = {index: 0 if graph.predecessors[index] else found[index] or 0 for index in members}
        for source, index in first.items():
            least[index] += 0 if source in held else size_of(graph, source) or 0
        if sum(least.values()) >= sum(found[index] or 0 for index in members):
            continue
        held.update(first)
        for index in members:
            found[index], twice[index] = least[index], True
    return Checkpoints(tuple(found), tuple(twice))


def _first_consumers(graph: OperatorGraph, members: list[int]) -> dict[int, int]:
    """Per operator outside whose output the layer takes, the first that takes it."""
    inside, found = set(members), dict[int, int]()
    for index in members:
        for source in graph.predecessors[index]:
            if source not in inside:
                found.setdefault(source, index)
    return found
