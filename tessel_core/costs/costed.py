"""A graph as it costs on a mesh: times on its devices, and the memory that each operator holds there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tessel_core.costs.timing import timed
from tessel_core.costs.training_state import BYTES_OF, DEFAULT_OPTIMIZER, OPTIMIZERS, find_optimizer, width_of
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh, Operator, OperatorGraph
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True)
class CostOptions:
    """What the costs of a graph on a mesh depend on besides the two."""

    dtype: str = option("bf16", Option("Number format", "Of weights and activations", choices=tuple(BYTES_OF)))
    optimizer: str = option(
        DEFAULT_OPTIMIZER, Option("Optimizer", "What training keeps per parameter", choices=tuple(OPTIMIZERS))
    )
    in_flight: int = option(
        1, Option("Micro-batches in flight", "Whose activations a placement has room for on each device", 1, 4096)
    )


@lru_cache(maxsize=8)
def costed(graph: OperatorGraph, mesh: DeviceMesh, options: CostOptions) -> OperatorGraph:
    """The graph with times on the mesh's kinds, and `size` as held with `in_flight` micro-batches.

    Equal arguments get the same graph, so that two placements on it are quickly compared.

    A training graph, one with backward operators, holds gradients and optimizer state for every weight; another one
    weights alone.  A `size` that the graph has already is kept.

    Raises
    ------
    InputError
        Where a time is neither given nor can be derived, or the graph's times are not in seconds.
    """
    if graph.time_unit != "s":
        raise InputError(f"graph {graph.name}", f"its times are in {graph.time_unit}, those of a mesh in s")
    known = timed(graph, mesh.devices, options.dtype)
    return replace(known, operators=tuple(_held(each, graph, options) for each in known.operators))


def static_bytes(operator: Operator, graph: OperatorGraph, options: CostOptions) -> int:
    """Weights, and in training their gradients and optimizer state, of one operator."""
    if not operator.weight_bytes:
        return 0
    optimizer = find_optimizer(options.optimizer if graph.is_training else "none")
    return operator.weight_bytes * optimizer.bytes_per_parameter(options.dtype) // width_of(options.dtype)


def _held(operator: Operator, graph: OperatorGraph, options: CostOptions) -> Operator:
    if operator.size is not None:
        return operator
    held = static_bytes(operator, graph, options) + options.in_flight * (operator.activation_bytes or 0)
    return replace(operator, size=float(held))
