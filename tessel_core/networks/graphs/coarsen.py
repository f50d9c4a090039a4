"""Merge operators whose names begin alike into layers, and sum their costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.checks import topological_order
from tessel_core.model.layers import layer_of
from tessel_core.networks.graphs.backward import size_of


def by_layer(graph: OperatorGraph, depth: int = 1) -> OperatorGraph:
    """Merge the operators whose names agree in the first `depth` parts.

    Operators of different phases or colours are not merged. (Operators of one colour must be on the same device.) A
    backward operator is grouped like its forward operator. Times, FLOPs, bytes, weights and activations are summed.
    Edges carry the sum of the tensors that leave a layer.

    If merging a whole layer would close a cycle, the layer is divided into several consecutive groups. If the cycle
    passes through operators of one colour, these operators are not merged.
    """
    operators = list(enumerate(graph.operators))
    homes = _acyclic(graph, {i: (layer_of(each, depth), each.colour) for i, each in operators if not each.backward})
    own = {i: _backward_key(graph, i, homes, depth) for i, each in operators if each.backward}
    return _merged(graph, _groups(graph, homes | _acyclic(graph, own), depth))


def _phase_of(operator: Operator) -> str:
    """Return the phase of an operator: forward, backward or weight gradient."""
    if not operator.backward:
        return "forward"
    return "weight_gradient" if operator.kind.endswith("weight_gradient") else "backward"


def _backward_key(graph: OperatorGraph, index: int, homes: dict[int, Hashable], depth: int) -> Hashable:
    """Return the group key of a backward operator. It follows from the group of its forward operator."""
    operator = graph.operators[index]
    mate = operator.forward_of
    home = layer_of(operator, depth) if mate is None else homes[graph.operator_index(mate)]
    return _phase_of(operator), home, operator.colour


def _acyclic(graph: OperatorGraph, keys: dict[int, Hashable]) -> dict[int, Hashable]:
    """Return the group of each operator: its key, or a part of this group if the quotient graph would have a cycle.

    Operators that share their device by a colour are one vertex of the quotient graph, even if their keys differ.
    """
    import networkx as nx

    vertex = {index: _vertex(graph, index, key) for index, key in keys.items()}
    quotient = nx.DiGraph()
    quotient.add_nodes_from(vertex.values())
    arcs = ((vertex[one], vertex[other]) for one, other in graph.arcs if one in vertex and other in vertex)
    quotient.add_edges_from((one, other) for one, other in arcs if one != other)
    components = enumerate(nx.strongly_connected_components(quotient))
    component_of = {each: number for number, members in components for each in members}
    members_of: dict[int, list[int]] = defaultdict(list)
    for index in topological_order(graph.predecessors):
        if index in vertex:
            members_of[component_of[vertex[index]]].append(index)
    groups: dict[int, Hashable] = {index: (vertex[index], key) for index, key in keys.items()}
    for members in members_of.values():
        has_cycle = len({vertex[index] for index in members}) > 1
        bound = [index for index in members if vertex[index] != keys[index]]
        groups.update(_pieces(graph, bound or (members if has_cycle else []), groups))
        if has_cycle and bound:
            groups.update({index: index for index in members if vertex[index] == keys[index]})
    return groups


def _vertex(graph: OperatorGraph, index: int, key: Hashable) -> Hashable:
    if graph.operators[index].backward:
        return key
    together = graph.group_of[index]
    is_bound = any(graph.operators[each].colour is not None for each in graph.colocated[together])
    return ("bound", together) if is_bound else key


def _pieces(graph: OperatorGraph, members: Sequence[int], keys: Mapping[int, Hashable]) -> dict[int, Hashable]:
    """Divide groups into parts that close no cycle, and return the part of each operator.

    Operators are visited in the topological order of `members`. A new part begins when an operator would close a cycle
    in the current part.
    """
    pieces, current = dict[int, Hashable](), dict[Hashable, int]()
    after: dict[Hashable, set[Hashable]] = defaultdict(set)
    for index in members:
        key, sources = keys[index], {pieces[each] for each in graph.predecessors[index] if each in pieces}
        piece = (key, current.setdefault(key, 0))
        if _reaches(after, piece, sources - {piece}):
            current[key] += 1
            piece = (key, current[key])
        pieces[index] = piece
        for source in sources - {piece}:
            after[source].add(piece)
    return pieces


def _reaches(after: dict[Hashable, set[Hashable]], start: Hashable, goals: set[Hashable]) -> bool:
    """Return whether a path leads from `start` to one of `goals`."""
    waiting, seen = [start], {start}
    while waiting and goals:
        for each in after[waiting.pop()] - seen:
            if each in goals:
                return True
            seen.add(each)
            waiting.append(each)
    return False


@dataclass(frozen=True, slots=True)
class _Group:
    """Operators, by index, that are merged into one operator. All have the same phase and colour."""

    name: str
    members: tuple[int, ...]
    home: str | None
    """For a group of backward operators: the key of the group of their forward operators."""


def _groups(graph: OperatorGraph, piece_of: dict[int, Hashable], depth: int) -> list[_Group]:
    """Return the groups with their names.

    A group is named after its layer, with a number if the layer has several groups. A group of backward operators is
    named after the group of its forward operators.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index in range(len(graph.operators)):
        members[piece_of[index]].append(index)
    first = {key: graph.operators[inside[0]] for key, inside in members.items()}
    names = _numbered({key: layer_of(each, depth) for key, each in first.items() if not each.backward})
    mates = {key: each.forward_of for key, each in first.items() if each.backward}
    homes = {key: names[piece_of[graph.operator_index(mate)]] for key, mate in mates.items() if mate is not None}
    stems = {key: f"{homes.get(key) or layer_of(first[key], depth)}/{_phase_of(first[key])}" for key in mates}
    names.update(_numbered(stems))
    return [_Group(names[key], tuple(inside), homes.get(key)) for key, inside in members.items()]


def _numbered(stems: dict[Hashable, str]) -> dict[Hashable, str]:
    """Return unique names: the stem alone if it is unique, otherwise stem/1, stem/2, …"""
    total, used = Counter(stems.values()), Counter[str]()
    names = dict[Hashable, str]()
    for key, stem in stems.items():
        used[stem] += 1
        names[key] = stem if total[stem] == 1 else f"{stem}/{used[stem]}"
    return names


def _merged(graph: OperatorGraph, groups: Sequence[_Group]) -> OperatorGraph:
    """Return the quotient graph. Each operator is in exactly one of the `groups`, and the groups form no cycle."""
    group_of = {index: group for group in groups for index in group.members}
    leaving: dict[str, set[int]] = defaultdict(set)
    links = dict[tuple[str, str], None]()
    for one, other in graph.arcs:
        source, target = group_of[one], group_of[other]
        if source is target:
            continue
        links[source.name, target.name] = None
        same_device = (source.home or source.name) == (target.home or target.name)
        if not same_device:  # A group and its backward operators stay on one device.
            leaving[source.name].add(one)
    output = {group.name: _output(graph, group, leaving[group.name]) for group in groups}
    operators = tuple(_operator(graph, group, output[group.name][0]) for group in groups)
    edges = tuple(Edge(source, target, *output[source]) for source, target in links)
    return replace(graph, operators=operators, edges=edges)


def _output(graph: OperatorGraph, group: _Group, leaving: Iterable[int]) -> tuple[int | None, float | None]:
    """Return the bytes and the transfer cost of the tensors that leave a group.

    If no tensor leaves, return those of the group's last tensors.
    """
    inside = set(group.members)
    last = [index for index in group.members if inside.isdisjoint(graph.consumers[index])]
    sizes = [size_of(graph, index) for index in (sorted(leaving) or last)]
    has_costs = any(edge.cost is not None for edge in graph.edges)
    cost = fsum(graph.output_cost[index] for index in leaving) if has_costs else None
    return None if None in sizes else sum(size or 0 for size in sizes), cost


def _operator(graph: OperatorGraph, group: _Group, output_bytes: int | None) -> Operator:
    parts = [graph.operators[index] for index in group.members]
    if len(parts) == 1:
        return replace(parts[0], name=group.name, output_bytes=output_bytes, forward_of=group.home)
    phase = _phase_of(parts[0])
    return Operator(
        group.name,
        "layer" if phase == "forward" else f"layer_{phase}",
        _times(parts),
        flops=_whole([part.flops for part in parts]),
        bytes=_whole([part.bytes for part in parts]),
        weight_bytes=_known([part.weight_bytes for part in parts]),
        activation_bytes=_known([part.activation_bytes for part in parts]),
        output_bytes=output_bytes,
        size=sum(part.memory for part in parts) if any(part.size is not None for part in parts) else None,
        backward=parts[0].backward,
        colour=parts[0].colour,
        forward_of=group.home,
    )


def _times(parts: Sequence[Operator]) -> tuple[DeviceTime, ...]:
    """Return the total time on each kind of device for which all parts have a time."""
    sums = ((each.kind, _whole([part.time_on(each.kind) for part in parts])) for each in parts[0].times)
    return tuple(DeviceTime(kind, total) for kind, total in sums if total is not None)


def _whole(amounts: Sequence[float | None]) -> float | None:
    """Return the sum of the amounts, or None if one of them is unknown."""
    return None if None in amounts else fsum(amount or 0.0 for amount in amounts)


def _known(amounts: Sequence[int | None]) -> int | None:
    """Return the sum of the known amounts, or None if all are unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
