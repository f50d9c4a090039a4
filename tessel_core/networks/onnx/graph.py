"""Build the operator graph of an ONNX model from the program that the model is converted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tessel_core.errors import InputError
from tessel_core.formats import GraphFile
from tessel_core.formats.onnx import OnnxModel, OnnxNetwork
from tessel_core.formats.onnx.names import listed, printable
from tessel_core.formats.onnx.sizes import open_sizes
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.ir.transforms.checkpoint import Recompute, recomputing
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.model import OperatorGraph
from tessel_core.model.checks import joined, quotient, topological_order
from tessel_core.networks.onnx.program import onnx_program
from tessel_core.networks.program_graph import program_graph

_MAX_TIED_WEIGHTS = 200
"""Consider only this many shared weights, the first in the file, because each needs a search through the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxSpec:
    """Options for the graph of an ONNX model."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Values of the model's open sizes, as in `OnnxModel.network`."""
    training: bool = False
    recompute: Recompute = Recompute.NONE
    split_weights: bool = False


def spec_from(words: Iterable[str], where: str) -> OnnxSpec:
    """Parse words like `batch=8` and `training=true` into a spec. Raises InputError at `where` for any other word.

    >>> spec_from(["batch=8", "training=true"], "--set")
    OnnxSpec(sizes={'batch': 8}, training=True, recompute=<Recompute.NONE: 'none'>, split_weights=False)
    """
    switches: dict[str, tuple[str, Any]] = {
        **{f"{name}={value}": (name, value == "true") for name in _SWITCHES for value in ("true", "false")},
        **{f"recompute={how}": ("recompute", how) for how in Recompute},
        "recompute=true": ("recompute", Recompute.FULL),
    }
    chosen, sizes = dict[str, Any](), list[str]()
    for word in words:
        if word in switches:
            name, chosen[name] = switches[word]
        else:
            sizes.append(word)
    return OnnxSpec(sizes=open_sizes(sizes, where), **chosen)


_SWITCHES = ("training", "split_weights")


def model_graph(model: OnnxModel, spec: OnnxSpec | None = None) -> GraphFile:
    """Build the graph of an ONNX model, as `network_graph` does."""
    spec = spec or OnnxSpec()
    network = model.network(spec.sizes)
    try:
        return network_graph(network, spec)
    except InputError as error:
        raise error.within(model.name) from None


def network_graph(network: OnnxNetwork, spec: OnnxSpec | None = None) -> GraphFile:
    """Build a graph with one operator for each node that does work. Warnings name open sizes and unknown costs.

    Operators that share a weight get the same colour, so that they are placed on one device. If this would force a
    cycle, each of them holds a copy of the weight. Constants that are not weights, such as integer masks, are held by
    every operator that uses them.

    Raises InputError if no operator remains or there are too many, and in the cases of `network_program`.
    """
    spec = spec or OnnxSpec()
    model = network_program(network, spec)
    if not model.program.ops:
        raise InputError("the model", "only returns its inputs")
    name = f"{network.name}{'-training' if spec.training else ''}"
    shown = program_graph(model, name, _batch_size(network))
    users = {
        piece.name: shown.users_of[value]
        for value, piece in model.piece_of.items()
        if value in shown.users_of and piece.name not in network.inputs
    }
    graph, warnings = _with_ties(shown.graph, users, model)
    return replace(GraphFile.of(graph), warnings=(*network.warnings, *warnings))


def network_program(network: OnnxNetwork, spec: OnnxSpec) -> Distributed:
    """Build the program of one micro-batch.

    In training, it also computes the gradients of the weights, and the gradients of the results are further inputs.

    Raises InputError if an operator between a weight and a result has no gradient.
    """
    model = onnx_program(network).model
    along = {name: Role(batch_axis=0) for name in (*network.inputs, *network.outputs) if network.tensors[name].shape}
    weights = {name: role for name, role in model.roles.items() if role.weight}
    model = replace(model, roles={**model.roles, **along, **weights})
    if spec.training:
        model = recomputing(spec.recompute, Gradients(split_weights=spec.split_weights, of_outputs=True)(model))
    elif spec.recompute != Recompute.NONE or spec.split_weights:
        where = "split_weights" if spec.recompute == Recompute.NONE else "recompute"
        raise InputError(where, "needs training, which is off")
    return model


def _batch_size(network: OnnxNetwork) -> int:
    """Return the size of the first axis of the first input that has axes, or 1 if no input has axes."""
    shapes = (network.tensors[name].shape for name in network.inputs)
    return max(1, next((shape[0] for shape in shapes if shape), 1))


def _with_ties(
    graph: OperatorGraph, users: Mapping[str, Sequence[int]], model: Distributed
) -> tuple[OperatorGraph, tuple[str, ...]]:
    """Return the graph with a colour for operators that share weights, and warnings.

    `users` are the forward operators that use each constant. The first user of a weight already holds it.
    """
    size_of = {piece.name: model.program.types[value].bytes for value, piece in model.piece_of.items()}
    weights = {name: each for name, each in users.items() if model.roles[name].weight}
    forward = [[] if each.backward else graph.consumers[i] for i, each in enumerate(graph.operators)]
    tied = _tied(forward, {name: each for name, each in weights.items() if len(each) > 1})
    more = [0] * len(graph.operators)
    for name, each in users.items():
        for index in each[1 if name in weights else 0 :] if name not in tied else ():
            more[index] += size_of[name]
    colours = dict[int, str]()
    for group in joined(len(graph.operators), [pair for name in tied for pair in _links(weights[name])]):
        if len(group) > 1:
            colours.update(dict.fromkeys(group, graph.operators[group[0]].name))
    operators = (
        replace(each, weight_bytes=(each.weight_bytes or 0) + more[i], colour=colours.get(i))
        for i, each in enumerate(graph.operators)
    )
    apart = {name: len(each) for name, each in weights.items() if len(each) > 1 and name not in tied}
    named = listed([f"{printable(name)} ({count})" for name, count in apart.items()])
    warning = f"operators that share these weights cannot all be on one device, so each holds a copy: {named}"
    return replace(graph, operators=tuple(operators)), (warning,) if apart else ()


def _tied(successors: Sequence[Sequence[int]], users: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Return the weights whose users can be placed on one device without a cycle.

    Weights are tried in the order of `users`.
    """
    tied, links = set[str](), list[tuple[int, int]]()
    for name in list(users)[:_MAX_TIED_WEIGHTS]:
        more = _links(users[name])
        if not _returns(successors, users[name]) and _is_acyclic(successors, links + more):
            links += more
            tied.add(name)
    return frozenset(tied)


def _links(members: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of members that join all members into one group."""
    return [(members[0], other) for other in members[1:]]


def _returns(successors: Sequence[Sequence[int]], members: Sequence[int]) -> bool:
    """Return whether a path leaves the members and later returns to one of them."""
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


def _is_acyclic(successors: Sequence[Sequence[int]], links: Sequence[tuple[int, int]]) -> bool:
    """Return whether the graph has no cycle after the operators in each pair of `links` are merged."""
    groups = joined(len(successors), links)
    group_of = {member: group for group, members in enumerate(groups) for member in members}
    arcs = ((group_of[source], group_of[target]) for source, targets in enumerate(successors) for target in targets)
    return len(topological_order(quotient(len(groups), arcs))) == len(groups)
