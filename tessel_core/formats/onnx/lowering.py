"""Nodes with known shapes to operators and edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.costs import Cost, Known, cost_of, unknown_costs
from tessel_core.formats.onnx.inference import Inference
from tessel_core.formats.onnx.kinds import OUTPUT, kind_of
from tessel_core.formats.onnx.names import Names, listed, printable
from tessel_core.formats.onnx.parsing import inputs_of
from tessel_core.formats.onnx.tied import Links, tie
from tessel_core.model import Edge, Operator, OperatorGraph
from tessel_core.model.operator_graph import joined

if TYPE_CHECKING:
    import onnx

_NO_COST = Cost(0.0, 0.0, (), 0, Known.FORMULA)


@dataclass(frozen=True, slots=True)
class _Vertex:
    """An operator to be: a node, or one of several outputs of the node `of`."""

    name: str
    kind: str
    op_type: str
    cost: Cost
    takes: tuple[str, ...]
    gives: str | None
    """The tensor that others get from it."""
    of: int | None = None


def lower(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], inference: Inference
) -> tuple[OperatorGraph, tuple[str, ...]]:
    """The operator graph of nodes in order, without those that are constant; and what is to be said of it.

    Raises
    ------
    InputError
        Where nothing is left, or an operator's numbers are too large.
    """
    left = [node for node in nodes if not inference.is_folded(node)]
    if not left:
        raise InputError("the model", "has no operator that depends on its inputs")
    used = {name for node in left for name in inputs_of(node)} | {each.name for each in graph.output}
    vertices = list(_vertices(left, used, inference))
    edges = _edges(vertices, inference)
    links: Links = [(vertex.of, i) for i, vertex in enumerate(vertices) if vertex.of is not None]
    users = _users(vertices)
    tied = tie(_successors(vertices), links, {root: each for root, each in users.items() if len(each) > 1})
    operators = _operators(vertices, links, {root: users[root][0] for root in tied}, inference)
    apart = {root: len(each) for root, each in users.items() if len(each) > 1 and root not in tied}
    uses = ((vertex.op_type, vertex.name, vertex.cost.known) for vertex in vertices)
    warnings = (*unknown_costs(uses), *_counted_again(apart))
    return OperatorGraph(printable(graph.name) or "onnx", tuple(operators), tuple(edges)), warnings


def _vertices(left: Sequence[onnx.NodeProto], used: set[str], inference: Inference) -> Iterator[_Vertex]:
    names, count = Names(), 0
    for node in left:
        first = next(filter(None, node.output))
        name = names.unique(node.name or first)
        looks_up = inference.constants.get(node.input[0]) if node.input else None
        kind = printable(kind_of(node.op_type, on_weights=looks_up is not None and looks_up.is_weight))
        takes = tuple(each for each in inputs_of(node) if each not in inference.constants)
        gives = [each for each in dict.fromkeys(node.output) if each in used]
        only = gives[0] if len(gives) == 1 else None
        yield _Vertex(name, kind, node.op_type, cost_of(node, inference), takes, only)
        for each in gives if only is None else ():
            yield _Vertex(names.unique(f"{name}.{each}"), OUTPUT, "", _NO_COST, (), each, of=count)
        count += 1 if only else 1 + len(gives)


def _arcs(vertices: Sequence[_Vertex]) -> Iterator[tuple[int, int, str]]:
    """Source, target and the tensor between them; a graph input has no source."""
    maker = {vertex.gives: i for i, vertex in enumerate(vertices) if vertex.gives is not None}
    for i, vertex in enumerate(vertices):
        if vertex.of is not None and vertex.gives is not None:
            yield vertex.of, i, vertex.gives
        yield from ((maker[name], i, name) for name in vertex.takes if name in maker)


def _edges(vertices: Sequence[_Vertex], inference: Inference) -> Iterator[Edge]:
    """Outputs of one node may differ in size, where an operator's output has one: inside, all are as the largest."""
    largest = dict[int, int]()
    for vertex in vertices:
        if vertex.of is not None and vertex.gives is not None:
            largest[vertex.of] = max(largest.get(vertex.of, 0), inference.tensors[vertex.gives].bytes)
    for source, target, name in _arcs(vertices):
        size = largest[source] if vertices[target].of == source else inference.tensors[name].bytes
        yield Edge(vertices[source].name, vertices[target].name, size)


def _successors(vertices: Sequence[_Vertex]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in vertices]
    for source, target, _ in _arcs(vertices):
        found[source].append(target)
    return found


def _users(vertices: Sequence[_Vertex]) -> dict[str, list[int]]:
    """Per weight, the vertices that use it; what is no weight is copied without a word."""
    found = defaultdict[str, list[int]](list)
    for i, vertex in enumerate(vertices):
        for weight in vertex.cost.weights:
            if weight.is_weight:
                found[weight.root].append(i)
    return found


def _operators(
    vertices: Sequence[_Vertex], links: Links, owners: dict[str, int], inference: Inference
) -> Iterator[Operator]:
    """Those that share a device have one colour; a tied weight is held by its owner only."""
    colours = dict[int, str]()
    for group in joined(len(vertices), links):
        if len(group) > 1:
            colours.update(dict.fromkeys(group, vertices[group[0]].name))
    for i, vertex in enumerate(vertices):
        cost = vertex.cost
        yield Operator(
            vertex.name,
            vertex.kind,
            flops=cost.flops,
            bytes=cost.bytes,
            weight_bytes=cost.inner_bytes + sum(each.bytes for each in cost.weights if owners.get(each.root, i) == i),
            output_bytes=0 if vertex.gives is None else inference.tensors[vertex.gives].bytes,
            colour=colours.get(i),
        )


def _counted_again(apart: dict[str, int]) -> Iterator[str]:
    if apart:
        named = [f"{printable(root)} ({count})" for root, count in apart.items()]
        yield f"weights of operators that cannot share a device are counted at each of them: {listed(named)}"
