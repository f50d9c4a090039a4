"""Derived backward graphs: examples by hand, mirrored random graphs, and the expected amount of work."""

from __future__ import annotations

import re
from dataclasses import replace

import networkx as nx
import pytest
from helpers.layered import forward_half, layered_graph
from helpers.seeds import seeds

from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.networks.graphs.backward import with_backward, with_weights_apart
from tessel_core.networks.graphs.table import GRAPHS, build_graph, training_graph

FEWER = {"evoformer": {"blocks": 6}}
"""Number of blocks for families with many equal ones."""
EVERY_WAY = [{}, {"recompute": True}, {"split_weights": True}, {"recompute": True, "split_weights": True}]


def op(name: str, kind: str, flops: float, moved: float, weights: int, output: int) -> Operator:
    return Operator(name, kind, flops=flops, bytes=moved, weight_bytes=weights, output_bytes=output)


def chain() -> OperatorGraph:
    """Return the graph: x of 10 bytes -> product -> 20 -> GELU -> 20 -> product -> 8."""
    operators = (
        op("a/up", "matmul", 100, 10 + 6 + 20, 6, 20),
        op("a/gelu", "gelu", 80, 40, 0, 20),
        op("a/down", "matmul", 50, 20 + 4 + 8, 4, 8),
    )
    return OperatorGraph("chain", operators, (Edge("a/up", "a/gelu", 20), Edge("a/gelu", "a/down", 20)))


def edges(graph: OperatorGraph) -> set[tuple[str, str, int | None]]:
    return {(edge.source, edge.target, edge.bytes) for edge in graph.edges}


def test_a_chain_by_hand():
    graph = with_backward(chain())
    assert [each.name for each in graph.operators[3:]] == ["a/down/backward", "a/gelu/backward", "a/up/backward"]
    down, gelu, up = graph.operators[3:]
    assert (down.kind, down.flops, down.bytes, down.output_bytes) == ("matmul_backward", 100, 64, 20)
    assert (gelu.kind, gelu.flops, gelu.bytes, gelu.output_bytes) == ("gelu_backward", 120, 60, 20)
    assert (up.flops, up.bytes, up.output_bytes) == (100, 36, 0)  # the gradient of the weights alone
    assert all(each.backward and each.forward_of == each.name.removesuffix("/backward") for each in graph.operators[3:])
    assert edges(graph) - edges(chain()) == {
        ("a/up", "a/up/backward", 20),
        ("a/gelu", "a/gelu/backward", 20),
        ("a/down", "a/down/backward", 8),
        ("a/down/backward", "a/gelu/backward", 20),
        ("a/gelu/backward", "a/up/backward", 20),
    }
    kept = [each.activation_bytes for each in graph.operators[:3]]
    assert kept == [10, 20, 20]  # inputs: x, the GELU's, the second product's


def test_weight_gradients_apart_by_hand():
    graph = with_backward(chain(), split_weights=True)
    down, weights = graph.operator("a/down/backward"), graph.operator("a/down/weight_gradient")
    assert (down.flops, down.bytes) == (weights.flops, weights.bytes) == (50, 32)
    assert (weights.kind, weights.forward_of, weights.output_bytes) == ("matmul_weight_gradient", "a/down", 4)
    first = graph.operator("a/up/backward"), graph.operator("a/up/weight_gradient")
    assert [each.flops for each in first] == [0, 100]
    assert ("a/gelu/backward", "a/up/weight_gradient", 20) in edges(graph)
    assert not any(edge.source.endswith("weight_gradient") for edge in graph.edges)
    assert "a/gelu/weight_gradient" not in graph.names


def two_layers() -> OperatorGraph:
    """Return the chain followed by a last layer."""
    last = op("b/head", "matmul", 30, 8 + 2 + 4, 2, 4)
    return OperatorGraph("two", (*chain().operators, last), (*chain().edges, Edge("a/down", "b/head", 8)))


def test_recomputation_by_hand():
    """Layer a keeps only x and runs again. Nothing follows layer b, so it does not run again."""
    graph = with_backward(two_layers(), recompute=True)
    assert [each.activation_bytes for each in graph.operators[:4]] == [10, 0, 0, 8]
    work = {each.name: (each.flops, each.bytes) for each in graph.operators[4:]}
    assert work["a/down/backward"] == (150, 96)
    assert work["a/gelu/backward"] == (200, 100)
    assert work["a/up/backward"] == (200, 72)
    assert work["b/head/backward"] == (60, 28)
    split = with_backward(two_layers(), recompute=True, split_weights=True)
    assert ("a/down/backward", "a/down/weight_gradient", 20) in edges(split)
    assert ("b/head/backward", "b/head/weight_gradient", 8) not in edges(split)


def joined(kind: str, left: int = 6, right: int = 6) -> OperatorGraph:
    """Return two products with outputs of `left` and `right` bytes, joined by one operator with 6 bytes."""
    operators = (
        op("one", "matmul", 10, 10, 2, left),
        op("two", "matmul", 10, 10, 2, right),
        op("both", kind, 3, left + right + 6, 0, 6),
    )
    return OperatorGraph("joined", operators, (Edge("one", "both", left), Edge("two", "both", right)))


def test_a_sum_passes_its_gradient_on():
    graph = with_backward(joined("add"))
    found = graph.operator("both/backward")
    assert (found.flops, found.bytes, found.output_bytes) == (0, 0, 6)
    assert {("both/backward", "one/backward", 6), ("both/backward", "two/backward", 6)} < edges(graph)


def test_different_gradients_leave_as_the_largest():
    graph = with_backward(joined("mul", 6, 4))
    found = graph.operator("both/backward")
    assert (found.flops, found.output_bytes) == (5, 6)
    assert {("both/backward", "one/backward", 6), ("both/backward", "two/backward", 6)} < edges(graph)


def test_gradients_of_several_consumers_are_summed_on_the_way():
    """Three consumers of 20 bytes, the GELU first.

    Each adds its own gradient to the one it receives, so one arrives.
    """
    extra = tuple(op(f"other{i}", "relu", 1, 40, 0, 20) for i in range(2))
    graph = chain()
    wired = (*graph.edges, *(Edge("a/up", each.name, 20) for each in extra))
    found = with_backward(replace(graph, operators=(*graph.operators, *extra), edges=wired))
    sent = {(one, other) for one, other, _ in edges(found) if one.endswith("backward") and other.endswith("backward")}
    assert sent == {
        ("other1/backward", "other0/backward"),
        ("other0/backward", "a/gelu/backward"),
        ("a/down/backward", "a/gelu/backward"),
        ("a/gelu/backward", "a/up/backward"),
    }


def test_nothing_flows_back_to_where_no_weights_are():
    """A transposed input needs no gradient. The product after it does not compute one."""
    first = op("turn", "transpose", 0, 20, 0, 10)
    graph = chain()
    turned = replace(graph, operators=(first, *graph.operators), edges=(Edge("turn", "a/up", 10), *graph.edges))
    found = with_backward(turned)
    assert (found.operator("turn/backward").flops, found.operator("turn/backward").bytes) == (0, 0)
    assert found.operator("a/up/backward").flops == 100
    assert not any(edge.target == "turn/backward" and edge.source != "turn" for edge in found.edges)


@pytest.mark.parametrize(
    ("operator", "factor"),
    [
        (Operator("o", "strange", flops=10, bytes=100, weight_bytes=5, output_bytes=50), 2),
        (Operator("o", "strange", flops=10_000, bytes=100, weight_bytes=0, output_bytes=50), 2),
        (Operator("o", "strange", flops=10, bytes=100, weight_bytes=0, output_bytes=50), 1),
        (Operator("o", "attention", flops=10, bytes=100, weight_bytes=0, output_bytes=50), 2.5),
    ],
    ids=["weights", "bound by FLOPs", "bound by memory", "attention"],
)
def test_work_follows_the_kind(operator, factor):
    source = Operator("s", "matmul", flops=1, bytes=1, weight_bytes=1, output_bytes=50)
    found = with_backward(OperatorGraph("one", (source, operator), (Edge("s", "o", 50),))).operator("o/backward")
    assert found.flops == factor * operator.flops


def test_views_are_kept_once():
    """A product and a norm read the same tensor, one of them through a view."""
    operators = (
        op("make", "matmul", 10, 10, 2, 40),
        op("view", "reshape", 0, 0, 0, 40),
        op("norm", "layer_norm", 10, 84, 4, 40),
        op("use", "matmul", 10, 60, 4, 16),
    )
    wired = (Edge("make", "view", 40), Edge("make", "norm", 40), Edge("view", "use", 40))
    graph = with_backward(OperatorGraph("views", operators, wired))
    assert sum(graph.operator(name).activation_bytes for name in ("norm", "use")) == 40
    assert graph.operator("view/backward").bytes == 0


def test_a_published_graph_has_times_and_costs():
    """Kinds are unknown and FLOPs missing: a backward takes two forwards, and transfers cost the same as forward."""
    times = (DeviceTime("accelerator", 2.0), DeviceTime("cpu", 5.0))
    operators = tuple(Operator(name, times=times) for name in "abc")
    graph = OperatorGraph("old", operators, (Edge("a", "b", cost=0.5), Edge("b", "c", cost=0.25)), "ms")
    found = with_backward(graph)
    assert found.operator("b/backward").times == (DeviceTime("accelerator", 4.0), DeviceTime("cpu", 10.0))
    costs = {(edge.source, edge.target): edge.cost for edge in found.edges}
    assert (costs["c/backward", "b/backward"], costs["b/backward", "a/backward"]) == (0.25, 0.5)
    assert found.time_unit == "ms"
    again = with_backward(graph, recompute=True)
    assert again.operator("b/backward").time_on("cpu") == 10.0  # each operator is its own layer, and keeps its input


@pytest.mark.parametrize("seed", seeds(60))
def test_every_edge_is_mirrored(seed):
    graph = forward_half(layered_graph(seed))
    if graph is None:
        pytest.skip("nothing forward")
    for options in EVERY_WAY:
        found = with_backward(graph, **options)
        flow = nx.DiGraph((edge.source, edge.target) for edge in found.edges)
        for edge in graph.edges:
            source, target = f"{edge.target}/backward", f"{edge.source}/backward"
            assert nx.has_path(flow, source, target)
            assert max(each.cost for each in found.edges if each.source == source) >= edge.cost
        for operator in graph.operators:
            assert found.operator(f"{operator.name}/backward").forward_of == operator.name
            assert flow.has_edge(operator.name, f"{operator.name}/backward")


@pytest.mark.parametrize("family", ["gpt", "mt5", "flava", "swin"])
def test_products_are_three_forwards_in_training(family):
    """An exception is the product of image patches, whose input needs no gradient."""
    spec = GRAPHS[family].spec(training=True)
    graph = build_graph(family, spec)
    forward = sum(each.flops for each in graph.operators if each.kind == "matmul")
    backward = sum(each.flops for each in graph.operators if each.kind == "matmul_backward")
    assert backward == 2 * forward > 0
    split = build_graph(family, replace(spec, split_weights=True))
    halves = [
        sum(each.flops for each in split.operators if each.kind == f"matmul_{what}")
        for what in ("input_gradient", "weight_gradient")
    ]
    assert halves == [forward, forward]


@pytest.mark.parametrize("family", list(GRAPHS))
def test_a_whole_backward_is_split_afterwards_as_it_would_have_been_from_the_start(family):
    """Both halves together cost as much as the whole. Products cost as much as in a graph that is built split."""
    spec = GRAPHS[family].spec(training=True, **FEWER.get(family, {}))
    whole, built = build_graph(family, spec), build_graph(family, replace(spec, split_weights=True))
    split = with_weights_apart(whole)
    # A bias's gradient stays in the backward half. An operator that only computes weight gradients leaves it without
    # work.
    there = {each.name: each for each in split.operators}
    bias = re.compile("/weight_gradient/(bias|reduce_sum)")  # the latter of a convolution
    wanted = {bias.sub(r"/backward/\1", each.name): each for each in built.operators}
    assert wanted.keys() <= there.keys()
    assert all(not there[name].flops and not there[name].bytes for name in there.keys() - wanted.keys())
    for what in ("flops", "bytes"):
        totals = [sum(getattr(each, what) for each in graph.operators) for graph in (whole, split)]
        assert totals[0] == pytest.approx(totals[1])
    for each in split.operators:
        if each.flops and each.kind in ("matmul_input_gradient", "matmul_weight_gradient"):
            assert each.flops == pytest.approx(wanted[each.name].flops)
    pairs = {(edge.source, edge.target) for edge in split.edges}
    assert pairs >= {(edge.source, edge.target) for edge in whole.edges}
    apart = [each for each in split.operators if each.kind.endswith("_weight_gradient")]
    assert all((each.forward_of, each.name) in pairs for each in apart)
    assert with_weights_apart(split) == split
    assert with_weights_apart(built) == built


def test_merged_layers_are_not_split():
    spec = GRAPHS["gpt"].presets["gpt2-small"]
    merged = build_graph("gpt", replace(spec, training=True, granularity="layers"))
    assert with_weights_apart(merged) == merged


def test_a_graph_of_no_network_is_not_recomputed_selectively():
    with pytest.raises(InputError, match="selective needs a graph of a known network"):
        training_graph(two_layers(), recompute=Recompute.SELECTIVE)


def test_a_layer_of_one_operator_is_not_recomputed():
    """It keeps its input in any case."""
    graph = chain()
    renamed = {each.name: each.name.replace("/", ".") for each in graph.operators}
    operators = tuple(replace(each, name=renamed[each.name]) for each in graph.operators)
    wired = tuple(replace(each, source=renamed[each.source], target=renamed[each.target]) for each in graph.edges)
    graph = replace(graph, operators=operators, edges=wired)
    assert with_backward(graph, recompute=True) == with_backward(graph)


@pytest.mark.parametrize("family", list(GRAPHS))
def test_splitting_and_recomputing_change_what_they_say(family):
    whole, split, again = (
        build_graph(family, GRAPHS[family].spec(training=True, **each, **FEWER.get(family, {})))
        for each in ({}, {"split_weights": True}, {"recompute": "full"})
    )
    for what in ("flops", "bytes"):
        totals = [sum(getattr(each, what) for each in graph.operators) for graph in (whole, split, again)]
        assert totals[0] == pytest.approx(totals[1])
        assert totals[0] < totals[2]
    kept = [
        sum(each.activation_bytes or 0 for each in graph.operators if not each.name.startswith("head"))
        for graph in (whole, split, again)
    ]
    assert kept[0] == kept[1]
    assert kept[2] < 0.6 * kept[0]


def test_a_recomputed_gpt_keeps_the_input_of_each_layer():
    spec = GRAPHS["gpt"].presets["gpt2-medium"]
    graph = build_graph("gpt", replace(spec, training=True, recompute="full"))
    layers = [each for each in graph.operators if each.name.startswith("layer") and not each.backward]
    assert sum(each.activation_bytes for each in layers) == 24 * 2 * 1024 * 1024
    plain = build_graph("gpt", replace(spec, training=True))
    kept = [
        sum(each.activation_bytes or 0 for each in g.operators if each.name.startswith("head")) for g in (graph, plain)
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("family", ["gpt", "mt5", "swin", "resnet", "evoformer"])
def test_what_is_derived_is_near_what_the_builders_count(family):
    """The graphs do not list what they keep, like ONNX files. The derivation finds all but the statistics."""
    spec = GRAPHS[family].spec(micro_batch=2)
    counted = build_graph(family, replace(spec, training=True))
    derived = with_backward(build_graph(family, spec))
    kept = [
        sum(each.activation_bytes or 0 for each in graph.operators if not each.name.startswith("head"))
        for graph in (counted, derived)
    ]
    assert kept[1] == pytest.approx(kept[0], rel=0.06)


def test_a_training_graph_is_refused():
    graph = with_backward(chain())
    with pytest.raises(InputError, match=r"^graph chain-training: already has backward operators$"):
        with_backward(graph)


def test_a_name_that_is_taken_is_named():
    graph = chain()
    taken = replace(graph, operators=(*graph.operators, op("a/up/backward", "relu", 1, 1, 0, 1)))
    with pytest.raises(InputError, match="a/up/backward"):
        with_backward(taken)
