"""Random small graphs whose operators belong to layers, in random order."""

from __future__ import annotations

import random
from dataclasses import replace

from helpers.graphs import random_graph
from tessel_core.model import OperatorGraph


def layered_graph(seed: int, most: int = 9) -> OperatorGraph:
    """Return `random_graph` with each operator in one of three layers."""
    graph, choose = random_graph(seed, most), random.Random(seed)
    path = {operator.name: f"L{choose.randrange(3)}/{operator.name}" for operator in graph.operators}
    operators = tuple(
        replace(each, name=path[each.name], forward_of=each.forward_of and path[each.forward_of])
        for each in graph.operators
    )
    edges = tuple(replace(edge, source=path[edge.source], target=path[edge.target]) for edge in graph.edges)
    return replace(graph, operators=operators, edges=edges)


def forward_half(graph: OperatorGraph) -> OperatorGraph | None:
    """Return the graph without backward operators; None if nothing is left."""
    forward = tuple(operator for operator in graph.operators if not operator.backward)
    names = {operator.name for operator in forward}
    edges = tuple(edge for edge in graph.edges if edge.source in names and edge.target in names)
    return replace(graph, operators=forward, edges=edges) if forward else None
