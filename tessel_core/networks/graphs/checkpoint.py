"""Activation checkpointing: a layer keeps its input alone, and its backward runs its forward again [Chen 2016]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessel_core.model import OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.networks.graphs.kept import kept_tensors, size_of
from tessel_core.networks.graphs.paths import layer_of


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Per operator, what it keeps for the backward, and whether it runs twice."""

    kept: tuple[int | None, ...]
    recomputed: tuple[bool, ...]


def checkpoints(graph: OperatorGraph, kept: Sequence[int | None]) -> Checkpoints:
    """Layers, which are first steps of names, that keep less by keeping their inputs alone.

    A tensor counts once, where it is first kept.  What a layer takes from outside of the graph stays with the operators
    that keep it.  A layer whose output nothing takes is left as it is: its backward follows at once.
    """
    choice = _Choice(graph, list(kept))
    layers: dict[str, list[int]] = {}
    for index in topological_order(graph.predecessors):
        layers.setdefault(layer_of(graph.operators[index]), []).append(index)
    for members in layers.values():
        choice.decide(members)
    return Checkpoints(tuple(choice.kept), tuple(choice.recomputed))


@dataclass
class _Choice:
    graph: OperatorGraph
    kept: list[int | None]
    tensors: tuple[set[int], ...] = field(init=False)
    """Per operator, those that it keeps unless it is recomputed."""
    recomputed: list[bool] = field(init=False)
    held: set[int] = field(default_factory=set)
    """Tensors that a layer before keeps."""
    dropped: set[int] = field(default_factory=set)
    """Tensors that counted in a layer that keeps them no more."""

    def __post_init__(self) -> None:
        self.tensors = kept_tensors(self.graph)
        self.recomputed = [False] * len(self.kept)

    def decide(self, members: Sequence[int]) -> None:
        """Whether this layer is recomputed; layers before it have been decided."""
        whole, least = self._as_it_is(members), self._inputs_alone(members)
        inside = set(members)
        outputs = {index for index in members if any(after not in inside for after in self.graph.consumers[index])}
        tensors = set[int]().union(*(self.tensors[index] for index in members))
        shared = sum(size_of(self.graph, each) or 0 for each in tensors & outputs)  # the next layer keeps its input
        again = bool(outputs) and sum(least.values()) + shared < sum(whole.values())
        for index, amount in (least if again else whole).items():
            self.kept[index], self.recomputed[index] = amount, again
        sources = {source for index in members for source in self.graph.predecessors[index]} - inside
        self.dropped |= tensors - self.held - sources if again else set()
        self.held |= sources if again else tensors

    def _as_it_is(self, members: Sequence[int]) -> dict[int, int]:
        """Also what it shares with a layer that keeps it no more."""
        found, added = dict[int, int](), set[int]()
        for index in members:
            missing = (self.tensors[index] & self.dropped) - self.held - added
            found[index] = (self.kept[index] or 0) + sum(size_of(self.graph, each) or 0 for each in missing)
            added |= missing
        return found

    def _inputs_alone(self, members: Sequence[int]) -> dict[int, int]:
        inside, found, added = set(members), dict[int, int](), set[int]()
        for index in members:
            sources = set(self.graph.predecessors[index])
            outside = 0 if sources else self.kept[index] or 0
            new = sources - inside - self.held - added
            found[index] = outside + sum(size_of(self.graph, each) or 0 for each in new)
            added |= new
        return found
