"""Costs of a network's layers on an H200: the sums over the operators of the graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tessel_core.costs.meshes import find_mesh
from tessel_core.model import Operator, OperatorGraph
from tessel_core.model.layers import layer_of
from tessel_core.units import to_ticks

_MESH, _KIND = "h200-8", "h200"


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive layers on one device, or on each device of a tensor-parallel group. Times are in nanoseconds."""

    forward: int
    backward: int = 0
    """Duration of the backward pass, including `weight_gradient`."""
    weight_gradient: int = 0
    """Time within `backward` that computes gradients of weights, for which no other part waits."""
    static_bytes: int = 0
    """Bytes of the weights and, in training, of their gradients and optimizer state."""
    kept_bytes: int = 0
    """Bytes of activations that a micro-batch occupies from its forward to its backward pass."""
    kept_for_weights: int = 0
    """Bytes that stay occupied until the weight gradients are computed.

    These are the inputs of products and the gradients of their outputs.
    """
    sent_bytes: int = 0
    """Bytes of the tensors that later layers use. The gradients of these tensors have the same size."""
    layers: tuple[str, ...] = ()
    """Names of the layers."""

    @property
    def work(self) -> int:
        """Duration of the forward and backward pass of one micro-batch, in ns."""
        return self.forward + self.backward


def join(*parts: Part) -> Part:
    """Return one part for consecutive parts that run one after the other on the same device."""
    return Part(
        sum(part.forward for part in parts),
        sum(part.backward for part in parts),
        sum(part.weight_gradient for part in parts),
        sum(part.static_bytes for part in parts),
        sum(part.kept_bytes for part in parts),
        sum(part.kept_for_weights for part in parts),
        parts[-1].sent_bytes,
        tuple(layer for part in parts for layer in part.layers),
    )


def layer_parts(
    family: str, spec: Any, layer: Callable[[Operator], str] = layer_of, prefixes: tuple[str, ...] = ("",)
) -> tuple[Part, ...]:
    """Return one part per layer, in the order of the forward pass.

    The times of a layer are rounded to whole nanoseconds, so the duration of a stage is the sum of its layers. A part
    sends all tensors, of its layer and of earlier ones, that later layers use. If several layers keep a tensor, it
    counts only for the first.

    Parameters
    ----------
    family : str
        Name of the family of networks.
    spec : GraphSpec
        Sizes of the network.
    layer : Callable
        Returns the layer of a forward operator.
    prefixes : tuple of str
        Return only layers whose name starts with one of these texts. These layers must form a chain.

    Raises
    ------
    InputError
        In the cases of `build_graph`.
    """
    graph = _costed(family, spec)
    layers: dict[str, list[int]] = defaultdict(list)
    for i, operator in enumerate(graph.operators):
        mate = operator.forward_of
        layers[layer(operator if mate is None else graph.operators[graph.operator_index(mate)])].append(i)
    chain = {name: members for name, members in layers.items() if name.startswith(prefixes)}
    sent = _sent(graph, list(chain.values()))
    return tuple(_part(graph, *each, amount) for each, amount in zip(chain.items(), sent, strict=True))


@lru_cache(maxsize=32)
def _costed(family: str, spec: Any) -> OperatorGraph:
    """Return the graph of a network with its costs. Imports are local, so that this module loads quickly."""
    from tessel_core.costs.costed import CostOptions, costed
    from tessel_core.networks.graphs.table import build_graph

    return costed(build_graph(family, spec), find_mesh(_MESH), CostOptions(spec.dtype))


def _part(graph: OperatorGraph, name: str, members: Sequence[int], sent: int) -> Part:
    seconds = dict.fromkeys(("forward", "backward", "weight_gradient"), 0.0)
    static, kept, needed = 0.0, 0, set[int]()
    for i in members:
        operator = graph.operators[i]
        phase = _phase(graph, operator)
        seconds[phase] += operator.time_on(_KIND) or 0.0
        if phase == "forward":
            kept += operator.activation_bytes or 0
            static += operator.memory - (operator.activation_bytes or 0)
        elif phase == "weight_gradient":
            needed.update(graph.predecessors[i])
    used = [each for each in (graph.operators[i] for i in needed) if _phase(graph, each) != "weight_gradient"]
    for_weights = (each.output_bytes if each.backward else each.activation_bytes for each in used)
    ticks = {phase: to_ticks(each) if each else 0 for phase, each in seconds.items()}
    return Part(
        ticks["forward"],
        ticks["backward"] + ticks["weight_gradient"],
        ticks["weight_gradient"],
        round(static),
        kept,
        sum(each or 0 for each in for_weights),
        sent,
        (name,),
    )


def _phase(graph: OperatorGraph, operator: Operator) -> str:
    """Return the phase of an operator. Gradients of embedding tables belong to the backward pass.

    Zero-bubble schedules delay only the weight gradients of products [Qi 2024].
    """
    if not operator.backward:
        return "forward"
    mate = operator.forward_of
    of_table = mate is not None and graph.operators[graph.operator_index(mate)].kind == "embedding"
    return "weight_gradient" if operator.kind.endswith("weight_gradient") and not of_table else "backward"


def _sent(graph: OperatorGraph, chain: Sequence[Sequence[int]]) -> list[int]:
    """Return, for each layer, the bytes of tensors from this layer or earlier ones that later operators use.

    Only tensors of the forward pass count. Operators outside of the chain count as later ones.
    """
    place = {i: number for number, members in enumerate(chain) for i in members}
    sent = [0] * len(chain)
    for i, made in place.items():
        takers = [each for each in graph.consumers[i] if not graph.operators[each].backward]
        if takers and not graph.operators[i].backward:
            last = max(place.get(each, len(chain)) for each in takers)
            for number in range(made, last):
                sent[number] += graph.operators[i].output_bytes or 0
    return sent
