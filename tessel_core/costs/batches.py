"""The same network fed with more or fewer samples at a time."""

from __future__ import annotations

from dataclasses import replace

from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.model.checks import check_integer


def with_batch_size(graph: OperatorGraph, batch_size: int) -> OperatorGraph:
    """The graph of a micro-batch of `batch_size` samples, in proportion to what the graph's own batch costs.

    FLOPs, activations, outputs, transfers and given times grow with the batch; weights do not, and neither does that
    part of the bytes moved that is weights, nor a `size` that was given as one number.  Derived times are better
    derived anew from the result.

    Raises
    ------
    InputError
        For a batch size below 1.
    """
    check_integer("micro-batch size", "it", batch_size, least=1)
    ratio = batch_size / graph.batch_size
    if ratio == 1:
        return graph
    return replace(
        graph,
        operators=tuple(_operator(each, ratio) for each in graph.operators),
        edges=tuple(_edge(each, ratio) for each in graph.edges),
        batch_size=batch_size,
    )


def _operator(operator: Operator, ratio: float) -> Operator:
    weights = min(operator.weight_bytes or 0, operator.bytes or 0)
    return replace(
        operator,
        times=tuple(DeviceTime(each.kind, each.time * ratio) for each in operator.times),
        flops=None if operator.flops is None else operator.flops * ratio,
        bytes=None if operator.bytes is None else weights + (operator.bytes - weights) * ratio,
        activation_bytes=_whole(operator.activation_bytes, ratio),
        output_bytes=_whole(operator.output_bytes, ratio),
    )


def _edge(edge: Edge, ratio: float) -> Edge:
    return replace(edge, bytes=_whole(edge.bytes, ratio), cost=None if edge.cost is None else edge.cost * ratio)


def _whole(amount: int | None, ratio: float) -> int | None:
    return None if amount is None else round(amount * ratio)
