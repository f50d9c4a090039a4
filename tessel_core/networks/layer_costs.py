"""What the layers of a network cost on an H200, added up from its operator graph."""

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
    """Layers that run one after the other on a device, or on each device of a group; times in ns."""

    forward: int
    backward: int = 0
    """With `weight_gradient`."""
    weight_gradient: int = 0
    """Part of `backward` that computes gradients of weights, which no other part waits for."""
    static_bytes: int = 0
    """Weights, and in training their gradients and optimizer state."""
    kept_bytes: int = 0
    """Held from the forward to the backward."""
    kept_for_weights: int = 0
    """Held until the gradients of weights are computed: inputs of products, and gradients of their outputs."""
    sent_bytes: int = 0
    """What later layers need from here; its gradient is as large."""
    layers: tuple[str, ...] = ()

    @property
    def work(self) -> int:
        """Forward and backward of one micro-batch."""
        return self.forward + self.backward


def join(*parts: Part) -> Part:
    """Parts that run one after the other on the same device."""
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
    """A part per layer in the order of the forward pass, of layers with one of the prefixes, which are a chain.

    Each layer is rounded to whole nanoseconds, so stages last as long as their layers together.  A part sends what
    layers after it take from it or from those before it.  A tensor that several layers keep counts at the first.

    Raises InputError as `build_graph` does.
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
    """Loads what builds graphs only here, so that tables of networks are quickly there."""
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
    taken = [each for each in (graph.operators[i] for i in needed) if _phase(graph, each) != "weight_gradient"]
    for_weights = (each.output_bytes if each.backward else each.activation_bytes for each in taken)
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
    """When it runs; zero-bubble schedules put off gradients of products, not those of tables [Qi 2024]."""
    if not operator.backward:
        return "forward"
    mate = operator.forward_of
    of_table = mate is not None and graph.operators[graph.operator_index(mate)].kind == "embedding"
    return "weight_gradient" if operator.kind.endswith("weight_gradient") and not of_table else "backward"


def _sent(graph: OperatorGraph, chain: Sequence[Sequence[int]]) -> list[int]:
    """Per layer, bytes of the forward tensors made up to it that operators after it, or outside the chain, take."""
    place = {i: number for number, members in enumerate(chain) for i in members}
    sent = [0] * len(chain)
    for i, made in place.items():
        takers = [each for each in graph.consumers[i] if not graph.operators[each].backward]
        if takers and not graph.operators[i].backward:
            last = max(place.get(each, len(chain)) for each in takers)
            for number in range(made, last):
                sent[number] += graph.operators[i].output_bytes or 0
    return sent
