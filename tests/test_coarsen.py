"""Layers as single operators: examples by hand, and totals on random graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.layered import forward_half, layered_graph
from helpers.seeds import seeds

from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.networks.graphs.backward import with_backward
from tessel_core.networks.graphs.coarsen import by_layer
from tessel_core.networks.graphs.table import GRAPHS, build_graph


def op(name: str, seconds: float, output: int, **more: object) -> Operator:
    return replace(
        Operator(name, "matmul", (DeviceTime("h200", seconds),), flops=10, bytes=5, output_bytes=output), **more
    )


def wired(*operators: Operator, edges: str) -> OperatorGraph:
    """Return edges from text such as "a-b c-d". Each carries its source's output."""
    size = {operator.name: operator.output_bytes for operator in operators}
    pairs = [pair.split("-") for pair in edges.split()]
    return OperatorGraph("wired", operators, tuple(Edge(one, other, size[one]) for one, other in pairs))


def edges(graph: OperatorGraph) -> set[tuple[str, str, int | None]]:
    return {(edge.source, edge.target, edge.bytes) for edge in graph.edges}


def test_two_layers_by_hand():
    """Two tensors leave layer x. One of them goes to both operators of layer y."""
    graph = wired(
        op("x/a", 1, 4, weight_bytes=6),
        op("x/b", 2, 8, activation_bytes=3),
        op("x/c", 4, 16),
        op("y/d", 8, 32, weight_bytes=1, activation_bytes=2),
        op("y/e", 16, 64),
        op("z", 32, 128),
        edges="x/a-x/b x/b-y/d x/c-y/d x/c-y/e y/d-z",
    )
    found = by_layer(graph)
    x, y, z = found.operators
    assert (x.name, x.kind, x.time_on("h200"), x.flops, x.bytes) == ("x", "layer", 7, 30, 15)
    assert (x.weight_bytes, x.activation_bytes, x.output_bytes) == (6, 3, 24)
    assert (y.weight_bytes, y.activation_bytes, y.output_bytes) == (1, 2, 32)
    assert z == graph.operator("z")
    assert edges(found) == {("x", "y", 24), ("y", "z", 32)}
    assert by_layer(graph, depth=2).operators == graph.operators


def test_a_kind_of_device_supports_a_layer_that_it_supports_whole():
    """The FLOPs of a layer are unknown if those of an operator are."""
    both = (DeviceTime("cpu", 3.0), DeviceTime("h200", 1.0))
    graph = wired(op("x/a", 1, 4), op("x/b", 2, 4, times=both, flops=None), edges="x/a-x/b")
    (found,) = by_layer(graph).operators
    assert found.times == (DeviceTime("h200", 2.0),)
    assert (found.flops, found.bytes, found.weight_bytes) == (None, 10, None)


def test_a_layer_on_a_cycle_becomes_consecutive_pieces():
    graph = wired(
        op("x/a", 1, 1),
        op("x/b", 1, 1),
        op("y", 1, 1),
        op("x/c", 1, 1),
        op("x/d", 1, 1),
        edges="x/a-x/b x/b-y y-x/c x/c-x/d",
    )
    found = by_layer(graph)
    assert [each.name for each in found.operators] == ["x/1", "y", "x/2"]
    assert edges(found) == {("x/1", "y", 1), ("y", "x/2", 1)}


def test_colours_stay():
    """Operators of one colour in two layers stay together. The rest of each layer is an operator of its own."""
    graph = wired(
        op("x/a", 1, 1, colour="red"),
        op("x/b", 2, 1, colour="red"),
        op("x/c", 4, 1),
        op("y/d", 8, 1, colour="red"),
        edges="x/a-x/b x/b-y/d x/b-x/c",
    )
    found = by_layer(graph)
    assert {(each.name, each.colour, each.time_on("h200")) for each in found.operators} == {
        ("x/1", "red", 3),
        ("x/2", None, 4),
        ("y", "red", 8),
    }


def test_forward_backward_and_weight_gradients_stay_apart():
    graph = wired(
        op("x/a", 1, 4, weight_bytes=2), op("x/b", 1, 4), op("y/c", 1, 4, weight_bytes=2), edges="x/a-x/b x/b-y/c"
    )
    found = by_layer(with_backward(graph, split_weights=True))
    kinds = {each.name: (each.kind, each.forward_of) for each in found.operators}
    assert kinds == {
        "x": ("layer", None),
        "y": ("matmul", None),
        "y/backward": ("matmul_input_gradient", "y"),
        "y/weight_gradient": ("matmul_weight_gradient", "y"),
        "x/backward": ("layer_backward", "x"),
        "x/weight_gradient": ("matmul_weight_gradient", "x"),
    }
    assert {("x", "x/backward", 4), ("y/backward", "x/backward", 4), ("x/backward", "x/weight_gradient", 0)} <= edges(
        found
    )


@pytest.mark.parametrize("seed", seeds(300))
def test_sums_are_kept_and_nothing_is_torn_apart(seed):
    """Graphs have colours, hosts, orphans, unordered layers and perhaps a derived backward.

    Building a graph proves that it has no cycle.
    """
    graph = layered_graph(seed)
    graphs = [graph]
    forward = forward_half(graph)
    if forward is not None:
        graphs += [with_backward(forward), with_backward(forward, recompute=True, split_weights=True)]
    for each in graphs:
        found = by_layer(each)
        assert sum(operator.memory for operator in found.operators) == sum(
            operator.memory for operator in each.operators
        )
        assert found.is_training == each.is_training
        assert {operator.colour for operator in found.operators} == {operator.colour for operator in each.operators}
        supported = [
            kind for kind in each.kinds if all(operator.time_on(kind) is not None for operator in each.operators)
        ]
        for kind in supported:
            times = [sum(operator.time_on(kind) for operator in graph.operators) for graph in (each, found)]
            assert times[0] == pytest.approx(times[1])


def test_layers_of_a_gpt_pass_one_tensor():
    spec = GRAPHS["gpt"].spec(training=True, granularity="layers", micro_batch=2)
    graph = build_graph("gpt", spec)
    hidden = 2 * 2 * 1024 * 768
    assert len(graph.operators) == 2 * (12 + 2)
    assert {edge.bytes for edge in graph.edges if edge.target.startswith("layer")} == {hidden}
    assert ("layer3", "layer4", hidden) in edges(graph)
    assert ("layer4/backward", "layer3/backward", hidden) in edges(graph)
    assert ("layer3", "layer3/backward", hidden) in edges(graph)


@pytest.mark.more
def test_twenty_thousand_operators_are_merged_in_seconds():
    graph = build_graph("gpt", GRAPHS["gpt"].spec(layers=1900, hidden=64, heads=1))
    assert len(graph.operators) > 19_000
    assert len(by_layer(graph).operators) == 1902
