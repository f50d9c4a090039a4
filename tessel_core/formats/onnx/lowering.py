"""Nodes with known shapes to an operator graph, or node by node to a network, once constants are folded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.onnx.costs import Cost, Known, attributes_of, cost_of, unknown_costs
from tessel_core.formats.onnx.formulas import ARGUMENTS
from tessel_core.formats.onnx.inference import Inference
from tessel_core.formats.onnx.names import OUTPUT, Names, kind_of, listed, printable
from tessel_core.formats.onnx.network import Numbers, OnnxNetwork, OnnxNode, OnnxTensor
from tessel_core.formats.onnx.parsing import DEFAULT_DOMAINS, inputs_of, opset_of
from tessel_core.model import Edge, Operator, OperatorGraph
from tessel_core.model.checks import grouped, joined, quotient, topological_order

if TYPE_CHECKING:
    import onnx

Links = list[tuple[int, int]]

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

    Raises InputError where nothing is left, or an operator's numbers are too large.
    """
    left = [node for node in nodes if not inference.is_folded(node)]
    if not left:
        raise InputError("the model", "has no operator that depends on its inputs")
    used = {name for node in left for name in inputs_of(node)} | {each.name for each in graph.output}
    vertices = list(_vertices(left, used, inference))
    edges = _edges(vertices, inference)
    links: Links = [(vertex.of, i) for i, vertex in enumerate(vertices) if vertex.of is not None]
    users = _users(vertices)
    successors = grouped(len(vertices), ((source, target) for source, target, _ in _arcs(vertices)))
    tied = tie(successors, links, {root: each for root, each in users.items() if len(each) > 1})
    operators = _operators(vertices, links, {root: users[root][0] for root in tied}, inference)
    apart = {root: len(each) for root, each in users.items() if len(each) > 1 and root not in tied}
    uses = ((vertex.op_type, vertex.name, vertex.cost.known) for vertex in vertices)
    warnings = (*unknown_costs(uses), *_counted_again(apart))
    name = printable(graph.name) or "onnx"
    return OperatorGraph(name, tuple(operators), tuple(edges), batch_size=_batch_of(graph, inference)), warnings


def _batch_of(graph: onnx.GraphProto, inference: Inference) -> int:
    """The first axis of the first input that has one; 1 where none has."""
    given = (each.name for each in graph.input if each.name not in inference.constants)
    shapes = (inference.tensors[name].shape for name in given if name in inference.tensors)
    return max(1, next((shape[0] for shape in shapes if shape), 1))


def _vertices(left: Sequence[onnx.NodeProto], used: set[str], inference: Inference) -> Iterator[_Vertex]:
    names, count = Names(), 0
    for node in left:
        first = next(filter(None, node.output))
        name = names.unique(node.name or first)
        takes = tuple(each for each in inputs_of(node) if each not in inference.constants)
        gives = [each for each in dict.fromkeys(node.output) if each in used]
        only = gives[0] if len(gives) == 1 else None
        yield _Vertex(name, _kind(node, inference), node.op_type, cost_of(node, inference), takes, only)
        for each in gives if only is None else ():
            yield _Vertex(names.unique(f"{name}.{each}"), OUTPUT, "", _NO_COST, (), each, of=count)
        count += 1 if only else 1 + len(gives)


def _kind(node: onnx.NodeProto, inference: Inference) -> str:
    looks_up = inference.constants.get(node.input[0]) if node.input else None
    return printable(kind_of(node.op_type, on_weights=looks_up is not None and looks_up.is_weight))


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


_MOST_TRIED = 200
"""Weights that are tried, the first ones of the file; each costs a walk over the graph."""


def tie(successors: Sequence[Sequence[int]], links: Links, users: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """The weights whose users can share a device, in the order of `users`; their links are added to `links`.

    Parameters
    ----------
    successors
        Per operator, those that take its output.
    links
        Pairs that share a device already.
    users
        Per weight, the operators that use it, at least two.
    """
    found = list[str]()
    for name in list(users)[:_MOST_TRIED]:
        members = users[name]
        if _returns(successors, members):
            continue
        more = [(members[0], other) for other in members[1:]]
        if _is_acyclic(successors, links + more):
            links += more
            found.append(name)
    return tuple(found)


def _returns(successors: Sequence[Sequence[int]], members: Sequence[int]) -> bool:
    """Whether a path leaves the members and comes back to them."""
    inside = set(members)
    waiting = [after for member in members for after in successors[member] if after not in inside]
    seen = set(waiting)
    while waiting:
        for after in successors[waiting.pop()]:
            if after in inside:
                return True
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return False


def _is_acyclic(successors: Sequence[Sequence[int]], links: Links) -> bool:
    """Whether no tensor flows in a circle between the sets that `links` join."""
    groups = joined(len(successors), links)
    group_of = {member: group for group, members in enumerate(groups) for member in members}
    arcs = ((group_of[source], group_of[target]) for source, targets in enumerate(successors) for target in targets)
    return len(topological_order(quotient(len(groups), arcs))) == len(groups)


def describe(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], inference: Inference) -> OnnxNetwork:
    """The network of nodes in order.

    Raises InputError where nothing is left.
    """
    ends = tuple(dict.fromkeys(each.name for each in model.graph.output if each.name in inference.tensors))
    costed = _left(nodes, ends, inference)
    left = tuple(node for node, _ in costed)
    if all(node.is_ready for node in left):
        raise InputError("the model", "has no operator that depends on its inputs")
    made = {name for node in left for name in node.outputs}
    taken = dict.fromkeys(name for node in left for name in _operands(node))
    given = [name for name in dict.fromkeys((*taken, *ends)) if name not in made]
    named = dict.fromkeys((*given, *(name for node in left for name in (*node.inputs, *node.outputs) if name)))
    found = {name: inference.tensors[name] for name in named}
    tensors = {name: OnnxTensor(each.dtype, each.shape, each.bytes) for name, each in found.items()}
    return OnnxNetwork(
        printable(model.graph.name) or "onnx",
        opset_of(model) or 0,
        tensors,
        tuple(each.name for each in model.graph.input if each.name in given and each.name not in inference.constants),
        tuple(name for name in given if name in inference.constants),
        left,
        ends,
        tuple(unknown_costs((node.op_type, node.name, known) for node, known in costed)),
    )


def _left(nodes: Sequence[onnx.NodeProto], ends: Sequence[str], inference: Inference) -> list[tuple[OnnxNode, Known]]:
    """Without those that make constants, but for those that only look at one in another way."""
    wanted, found = set(ends), list[tuple[OnnxNode, Known]]()
    for node in reversed(nodes):
        looks = inference.is_folded(node)
        if looks and not _is_a_look(node, wanted, inference):
            continue
        each = _node(node, inference, is_ready=looks)
        wanted.update(_operands(each[0]))
        found.append(each)
    return found[::-1]


def _is_a_look(node: onnx.NodeProto, wanted: set[str], inference: Inference) -> bool:
    """Whether a constant that is wanted is the data of another one."""
    made = [name for name in node.output if name in wanted]
    return bool(made) and all(inference.constants[name].root != name for name in made)


def _operands(node: OnnxNode) -> Iterator[str]:
    """The tensors that it reads on its device."""
    yield from (name for place, name in enumerate(node.inputs) if name and place not in node.arguments)
    yield from node.captured


def _node(node: onnx.NodeProto, inference: Inference, *, is_ready: bool) -> tuple[OnnxNode, Known]:
    cost = cost_of(node, inference)
    is_default = node.domain in DEFAULT_DOMAINS
    own = set(node.input)
    found = OnnxNode(
        printable(node.name or next(filter(None, node.output))),
        node.op_type if is_default else printable(f"{node.domain}.{node.op_type}"),
        _kind(node, inference),
        tuple(node.input),
        tuple(node.output),
        tuple(name for name in inputs_of(node) if name not in own),
        dict(attributes_of(node)),
        dict(_arguments(node, inference)) if is_default else {},
        cost.flops,
        cost.bytes,
        cost.inner_bytes,
        is_ready,
    )
    return found, cost.known


def _arguments(node: onnx.NodeProto, inference: Inference) -> Iterator[tuple[int, Numbers]]:
    for place in ARGUMENTS.get(node.op_type, ()):
        value = inference.value(node.input[place]) if place < len(node.input) else None
        if value is not None:
            yield place, tuple(value.ravel().tolist())
