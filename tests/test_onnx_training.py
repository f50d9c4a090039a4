"""Training graphs of ONNX models, derived from the gradients of their programs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from helpers.onnx_models import INT64, Writer, read_here, takes, transformer
from helpers.onnx_nodes import node

from tessel_core.errors import InputError
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import OperatorGraph
from tessel_core.networks.onnx import OnnxSpec, network_graph, spec_from

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"


def trained(model: onnx.ModelProto, **options: bool) -> OperatorGraph:
    network = translate(skeleton_of(model.SerializeToString()), {})
    return network_graph(network, OnnxSpec(training=True, **options)).graph


def total(graph: OperatorGraph, what: str) -> float:
    return sum(getattr(each, what) or 0 for each in graph.operators)


def stacked(at: str = "") -> onnx.ModelProto:
    """Return two layers of two products with a ReLU between them, followed by a product."""
    writer, x = Writer(), "x"
    for layer in "ab":
        up = writer.add("MatMul", x, writer.weight(f"{layer}.up", 8, 32), to=f"{at}{layer}/up")
        up = writer.add("Sigmoid", writer.add("Mul", up, up, to=f"{at}{layer}/square"), to=f"{at}{layer}/sigmoid")
        x = writer.add("MatMul", up, writer.weight(f"{layer}.down", 32, 8), to=f"{at}{layer}/down")
    writer.add("MatMul", x, writer.weight("head", 8, 5), to=f"{at}head/product")
    return writer.model([takes("x", 4, 8)], [f"{at}head/product"])


def test_a_published_network_costs_three_forwards() -> None:
    """ResNet-50 has 4.09 billion multiplications and additions forward. The images need no gradient."""
    network = translate(skeleton_of((SHIPPED / "light" / "light_resnet50.onnx").read_bytes()), {})
    graph = network_graph(network, OnnxSpec(training=True)).graph
    forward = sum(each.flops for each in graph.operators if each.kind in ("conv", "gemm") and not each.backward)
    assert forward == pytest.approx(2 * 4.09e9, rel=0.01)
    back = sum(each.flops for each in graph.operators if each.backward)
    assert back == pytest.approx(2 * forward, rel=0.02)
    assert graph.operator("n0/backward").kind == "conv_weight_gradient"
    assert total(graph, "weight_bytes") == total(network_graph(network).graph, "weight_bytes")
    assert graph.name.endswith("-training")


def test_a_transformer_is_trained_without_its_tokens() -> None:
    graph = trained(transformer(2))
    forward = sum(each.flops for each in graph.operators if each.kind == "matmul")
    assert sum(each.flops for each in graph.operators if each.kind == "matmul_backward") == 2 * forward
    assert graph.operator("embed/backward").kind == "gather_backward"
    mates = {each.forward_of for each in graph.operators if each.backward}
    alone = [each for each in graph.operators if not each.backward and each.name not in mates]
    assert {each.kind for each in alone} == {"add"}  # of two activations, which pass the gradient on


@pytest.mark.parametrize("at", ["", "/"])
def test_recomputed_layers_keep_their_inputs(at: str) -> None:
    """4 x 8 numbers for each layer and the head. The last operator of a layer does not run again."""
    plain, again = trained(stacked(at)), trained(stacked(at), recompute=Recompute.FULL)
    assert total(again, "activation_bytes") == 3 * 4 * 4 * 8 < total(plain, "activation_bytes")
    forward = {each.name: each.flops for each in plain.operators if not each.backward}
    more = sum(flops for name, flops in forward.items() if "head" not in name and "down" not in name)
    assert total(again, "flops") == total(plain, "flops") + more


def test_weight_gradients_apart_cost_the_same_and_nothing_waits_for_them() -> None:
    plain, split = trained(stacked()), trained(stacked(), split_weights=True)
    assert total(plain, "flops") == total(split, "flops")
    apart = {each.name for each in split.operators if each.kind == "matmul_weight_gradient"}
    assert len(apart) == 5
    assert not apart & {edge.source for edge in split.edges}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("op_type", "shapes", "rest", "forwards"),
    [
        ("LSTM", ((1, 64, 8), (1, 64, 16)), {"hidden_size": 16}, 2),
        ("GroupNormalization", ((8,), (8,)), {"num_groups": 2}, 2),
        ("Selu", (), {}, 1),
        ("Det", (), {}, 1),
    ],
)
def test_what_programs_do_not_know_costs_its_work_again(op_type, shapes, rest, forwards, split) -> None:
    """Once for the gradient of the input, once for those of weights. All its inputs are kept."""
    writer = Writer()
    x = writer.add("MatMul", "x", writer.weight("w", 8, 8), to="first")
    writer.add(op_type, x, *(writer.weight(f"w{i}", *shape) for i, shape in enumerate(shapes)), to="o", **rest)
    graph = trained(writer.model([takes("x", 5, 8, 8)], ["o"]), split_weights=split)
    forward = graph.operator("o")
    back = [each for each in graph.operators if each.forward_of == "o"]
    assert sum(each.flops for each in back) == forwards * forward.flops
    assert sum(each.bytes for each in back) == forwards * forward.bytes
    assert len(back) == (2 if split and shapes else 1)
    assert forward.activation_bytes == 4 * 5 * 8 * 8


def test_whole_numbers_have_no_gradient() -> None:
    """Indices of a lookup have none, and neither have values after a rounding to whole numbers."""
    writer = Writer()
    rows = writer.add("Gather", writer.weight("table", 9, 4), "tokens", to="rows")
    best = writer.add("ArgMax", rows, to="best", axis=2, keepdims=0)
    writer.add("Add", best, writer.numbers("one", 1), to="next")
    writer.add("MatMul", rows, writer.weight("w", 4, 2), to="y")
    graph = trained(writer.model([takes("tokens", 2, 3, element=INT64)], ["next", "y"]))
    back = {each.forward_of for each in graph.operators if each.backward}
    assert back == {"rows", "y"}


def test_what_cannot_be_trained_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^program test_model: has no weights on which its results depend$"):
        trained(node("Relu", (2, 3)))
    writer = Writer()
    writer.add("Floor", writer.add("MatMul", "x", writer.weight("w", 4, 4), to="y"), to="floor")
    with pytest.raises(
        InputError, match=r"operation 1 \(floor of floor\) has no gradient rule, so the program cannot be trained$"
    ):
        trained(writer.model([takes("x", 2, 4)], ["floor"]))
    with pytest.raises(InputError, match=r"^recompute: needs training, which is off$"):
        network_graph(translate(skeleton_of(stacked().SerializeToString()), {}), OnnxSpec(recompute=Recompute.FULL))


def test_a_tied_weight_is_trained_once() -> None:
    writer = Writer()
    writer.weight("w", 4, 4)
    left, right = writer.add("MatMul", "x", "w", to="left"), writer.add("MatMul", "z", "w", to="right")
    writer.add("Mul", left, right, to="product")
    model = writer.model([takes("x", 2, 4), takes("z", 2, 4)], ["product"])
    graph = trained(model)
    assert [graph.operator(name).colour for name in ("left", "right")] == ["left", "left"]
    assert total(graph, "weight_bytes") == total(read_here(model).graph, "weight_bytes") == 64
    assert [each.name for each in graph.operators if each.kind == "add"] == ["left/backward/add"]


def test_words_say_sizes_and_switches() -> None:
    assert spec_from(["batch=8", "recompute=true", "training=true"], "w") == OnnxSpec(
        sizes={"batch": 8}, training=True, recompute=Recompute.FULL
    )
    assert spec_from(["training=2"], "w").sizes == {"training": 2}
    with pytest.raises(InputError, match=r"^w: wants NAME=N, with a whole number, got 'training=yes'$"):
        spec_from(["training=yes"], "w")
