"""ONNX models as operator graphs: costs by hand, folded constants, tied weights, and notes for the user."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers.onnx_models import INT64, Writer, cnn, conditional, mlp, read_here, takes, transformer, with_function
from onnx import TensorProto, helper, numpy_helper

from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, graph_text
from tessel_core.formats.files import read_any
from tessel_core.formats.onnx import OnnxModel
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.model import Operator
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.networks.onnx import model_graph, network_graph

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
REFUSED = ("is a sequence, but only tensors can be read", "has elements of type STRING, which are not supported")
"""Reasons that concern the model."""


def test_every_model_that_the_package_ships_is_read_or_refused_for_what_it_is() -> None:
    """Opsets from 1 on. 112 of the models are older than opset 7."""
    read, old = 0, 0
    for path in sorted(SHIPPED.rglob("*.onnx")):
        data = path.read_bytes()
        versions = [each.version for each in onnx.ModelProto.FromString(data).opset_import if not each.domain]
        skeleton = skeleton_of(data)
        try:
            network = translate(skeleton, {})
        except InputError as error:
            assert error.why.endswith(REFUSED), f"{path}: {error}"  # noqa: PT017
            continue
        assert network_graph(network).graph.operators
        assert network.nodes
        read += 1
        old += versions[0] < 7 if versions else 0
    assert read >= 130
    assert old >= 110


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [
        ("bvlc_alexnet", 60_965_224, 1.32e9),
        ("vgg19", 143_667_240, 39.3e9),
        ("squeezenet", 1_235_496, 0.71e9),
        ("inception_v1", 6_998_552, 2.89e9),
    ],
)
def test_networks_whose_dropouts_have_masks(name: str, parameters: int, flops: float) -> None:
    """Parameters equal the published numbers. The mask is an output that nothing uses."""
    graph = network_graph(translate(skeleton_of((SHIPPED / "light" / f"light_{name}.onnx").read_bytes()), {})).graph
    assert sum(each.weight_bytes or 0 for each in graph.operators) == 4 * parameters
    assert sum(each.flops or 0 for each in graph.operators) == pytest.approx(flops, rel=0.01)


def test_a_mask_that_is_taken_is_as_large_as_what_is_dropped_from() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["y", "mask"]), helper.make_node("Not", ["mask"], ["dropped"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("y", 1), ("dropped", 9))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 10)]
    )
    assert [each.kind for each in read_here(model).graph.operators]


def test_an_old_operator_that_is_not_converted_is_refused() -> None:
    """Up to opset 6, `Cast` named its format by a word. The onnx package cannot convert it."""
    node = helper.make_node("Cast", ["x"], ["y"], to="INT32")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 2, 2]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", value[:1], value[1:]))
    model.opset_import[0].version = 1
    with pytest.raises(
        InputError, match=r"is written in opset 1, which the onnx package does not convert to 7: No Adapter .* for Cast"
    ):
        translate(skeleton_of(model.SerializeToString()), {})


def figures(operator: Operator) -> tuple[object, ...]:
    return operator.kind, operator.flops, operator.bytes, operator.weight_bytes, operator.output_bytes


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21, 23, onnx.defs.onnx_opset_version()])
def test_a_perceptron(opset: int) -> None:
    """Four samples of 64 floats through 64 x 128 with a bias, and 128 x 10 without."""
    file = read_here(mlp(opset=opset), batch=4)
    x, hidden, y, w1, w2 = 4 * 4 * 64, 4 * 4 * 128, 4 * 4 * 10, 4 * (64 * 128 + 128), 4 * 128 * 10
    assert [figures(each) for each in file.graph.operators] == [
        ("gemm", 4 * 128 * (2 * 64 + 1), x + w1 + hidden, w1, hidden),
        ("relu", 4 * 128, 2 * hidden, 0, hidden),
        ("matmul", 4 * 10 * 2 * 128, hidden + w2 + y, w2, y),
    ]
    assert [(e.source, e.target, e.bytes) for e in file.graph.edges] == [
        ("fc1", "relu", hidden),
        ("relu", "fc2", hidden),
    ]
    assert [each.activation_bytes for each in file.graph.operators] == [None] * 3
    assert (file.warnings, file.graph.kinds, file.pool) == ((), (), None)


def test_a_convolutional_network_with_branches() -> None:
    """Images of 8 x 8 in a batch of 2. Both parts of the split stay together, and the flattened tensor is a view."""
    graph = read_here(cnn()).graph
    eight, half = 4 * 2 * 8 * 64, 4 * 2 * 4 * 64
    expected = {
        "conv1": ("conv", 2 * 8 * 64 * (2 * 3 * 9 + 1), 4 * 2 * 3 * 64 + 896 + eight, 4 * 8 * 3 * 9 + 32, eight),
        "norm": ("batch_norm", 2 * 2 * 8 * 64, 2 * eight + 128, 4 * 4 * 8, eight),
        "relu": ("relu", 2 * 8 * 64, 2 * eight, 0, eight),
        "left": ("split", 0, 2 * eight, 0, eight),
        "conv2": ("conv", 2 * 4 * 64 * 2 * 4, 2 * half + 64, 64, half),
        "joined": ("concat", 0, 2 * eight, 0, eight),
        "residual": ("add", 2 * 8 * 64, 3 * eight, 0, eight),
        "pool": ("max_pool", 2 * 8 * 16 * 4, eight + eight // 4, 0, eight // 4),
        "mean_pool": ("global_average_pool", 2 * 8 * 16, eight // 4 + 64, 0, 64),
        "head": ("gemm", 2 * 10 * (2 * 8 + 1), 64 + 360 + 80, 4 * 90, 80),
    }
    assert {each.name: figures(each) for each in graph.operators} == expected
    assert max(map(len, graph.colocated)) == 1
    edges = {(edge.source, edge.target): edge.bytes for edge in graph.edges}
    assert edges["left", "joined"] == edges["left", "conv2"] == edges["relu", "residual"] == eight
    assert edges["mean_pool", "head"] == 64
    assert len(edges) == 11


@pytest.mark.parametrize("opset", [17, 21])
def test_a_transformer(opset: int) -> None:
    """The model computes its shapes, which are folded. The rest has the FLOPs and weights of a GPT."""
    layers, hidden, heads, vocabulary, length, batch = 2, 16, 4, 50, 8, 3
    file = read_here(transformer(layers, hidden, heads, vocabulary, length, "batch", opset), batch=batch)
    kinds = Counter(each.kind for each in file.graph.operators)
    assert len(file.graph.operators) == 4 + 27 * layers
    assert (kinds["gather"], kinds["softmax"], kinds["matmul"], kinds["split"]) == (1, layers, 1 + 6 * layers, layers)
    assert not {"shape", "slice", "reshape", "constant"} & kinds.keys()
    rows = batch * length
    products = layers * (2 * rows * 12 * hidden**2 + 4 * rows * length * hidden) + 2 * rows * hidden * vocabulary
    assert sum(each.flops or 0 for each in file.graph.operators if each.kind == "matmul") == products
    norms, biases = (2 * layers + 1) * 2 * hidden, layers * 9 * hidden
    parameters = layers * 12 * hidden**2 + norms + biases + (2 * vocabulary + length) * hidden
    beside = layers * (length**2 + 4)  # each layer has its mask and four scalars
    assert sum(each.weight_bytes or 0 for each in file.graph.operators) == 4 * (parameters + beside)
    embed = file.graph.operator("embed")
    assert figures(embed) == (
        "gather",
        0,
        8 * rows + 2 * 4 * rows * hidden,
        4 * vocabulary * hidden,
        4 * rows * hidden,
    )
    assert file.warnings == (
        "operators that share these weights cannot all be on one device, so each holds a copy: mask (2)",
    )


def test_outputs_of_one_node_leave_it_together() -> None:
    """An operator of a graph has one output: everything that other operators use of it."""
    writer = Writer()
    left, right = writer.split("Split", "x", writer.numbers("sizes", 1, 3), to=("left", "right"), axis=1)
    writer.add("Relu", left, to="a")
    writer.add("Relu", right, to="b")
    graph = read_here(writer.model([takes("x", 2, 4)], ["a", "b"])).graph
    assert {(edge.source, edge.target): edge.bytes for edge in graph.edges} == {("left", "a"): 32, ("left", "b"): 32}


def test_views_alone_are_shown_and_nothing_at_all_is_refused() -> None:
    writer = Writer()
    writer.add("Flatten", "x", to="flat")
    (view,) = read_here(writer.model([takes("x", 2, 3, 4)], ["flat"])).graph.operators
    assert figures(view) == ("reshape", 0, 0, 0, 96)
    writer = Writer()
    writer.add("Identity", "x", to="same")
    with pytest.raises(InputError, match=r"^the model: only returns its inputs$"):
        read_here(writer.model([takes("x", 2)], ["same"]))


def test_an_lstm() -> None:
    """Five steps, two samples, 8 inputs, 16 units, in both directions. Only the sequence of states is used."""
    writer = Writer()
    weights = writer.weight("w", 2, 64, 8), writer.weight("r", 2, 64, 16), writer.weight("b", 2, 128)
    writer.split("LSTM", "x", *weights, to=("y", "h", "c"), hidden_size=16, direction="bidirectional")
    (lstm,) = read_here(writer.model([takes("x", 5, 2, 8)], ["y"])).graph.operators
    products = 5 * 2 * 2 * 2 * 4 * 16 * (8 + 16)
    beside = 5 * 2 * 2 * 16 * (2 * 4 + 18)  # two biases for four gates, and 18 steps per unit
    held, made = 4 * 2 * (64 * 8 + 64 * 16 + 128), 4 * 5 * 2 * 2 * 16
    moved = 4 * 5 * 2 * 8 + held + made + 2 * 4 * 2 * 2 * 16
    assert figures(lstm) == ("lstm", products + beside, moved, held, made)


def test_open_sizes_are_taken_as_one_and_said() -> None:
    writer = Writer()
    writer.add("MatMul", "x", writer.weight("w", 4, 4), to="y")
    file = read_here(writer.model([takes("x", "batch", None, 4)], ["y"]))
    assert file.warnings == ("the file leaves batch, x[1] open; they are taken as 1",)
    assert file.graph.operators[0].output_bytes == 16
    assert read_here(writer.model([takes("x", "batch", None, 4)], ["y"]), **{"batch": 2, "x[1]": 3}).warnings == ()
    with pytest.raises(InputError, match=r"sizes: no tensor has an open size 'time', choose from batch, x\[1\]"):
        read_here(writer.model([takes("x", "batch", None, 4)], ["y"]), time=2)
    with pytest.raises(InputError, match="sizes: batch must be at least 1"):
        read_here(mlp(), batch=0)


def test_siblings_with_one_weight_share_a_device() -> None:
    """Two towers share one weight under two names. It is held once."""
    writer = Writer()
    same = writer.add("Identity", writer.weight("w", 4, 4), to="same")
    left, right = writer.add("MatMul", "x", "w", to="left"), writer.add("MatMul", "z", same, to="right")
    writer.add("Add", left, right, to="sum")
    file = read_here(writer.model([takes("x", 2, 4), takes("z", 2, 4)], ["sum"]))
    assert [(o.name, o.colour, o.weight_bytes) for o in file.graph.operators] == [
        ("left", "left", 64),
        ("right", "left", 0),
        ("sum", None, 0),
    ]
    assert file.warnings == ()


def test_a_tied_head_cannot_share_the_embedding_s_device() -> None:
    """All layers are between them, so both hold the table. A note says so."""
    writer = Writer()
    x = writer.add("Relu", writer.add("Gather", writer.weight("wte", 9, 4), "tokens", to="embed"), to="layer")
    turned = writer.add("Transpose", "wte", to="turned", perm=[1, 0])
    writer.add("MatMul", x, turned, to="logits")
    file = read_here(writer.model([takes("tokens", 2, 3, element=INT64)], ["logits"]))
    assert [(o.name, o.colour, o.weight_bytes) for o in file.graph.operators] == [
        ("embed", None, 144),
        ("layer", None, 0),
        ("logits", None, 144),
    ]
    assert file.warnings == (
        "operators that share these weights cannot all be on one device, so each holds a copy: wte (2)",
    )


def test_weights_of_two_pairs_that_cross_tie_only_one() -> None:
    """a1 -> b1 and b2 -> a2: either pair can share a device. With both, tensors would flow in a cycle."""
    writer = Writer()
    for weight in "ab":
        writer.weight(weight, 4, 4)
    first = writer.add("MatMul", "x", "a", to="a1"), writer.add("MatMul", "x", "b", to="b2")
    second = writer.add("MatMul", first[0], "b", to="b1"), writer.add("MatMul", first[1], "a", to="a2")
    file = read_here(writer.model([takes("x", 4, 4)], list(second)))
    assert {o.name: (o.colour, o.weight_bytes) for o in file.graph.operators} == {
        "a1": ("a1", 64),
        "a2": ("a1", 0),
        "b1": (None, 64),
        "b2": (None, 64),
    }
    assert file.warnings[0].endswith("so each holds a copy: b (2)")


def test_what_depends_on_no_input_is_folded() -> None:
    """A mask made of shapes, a product of weights, a constant: the operators that use them hold the results."""
    writer = Writer()
    shape = writer.add("Shape", "x", to="shape")
    ones = writer.add("ConstantOfShape", shape, to="ones", value=numpy_helper.from_array(np.ones(1, np.float32)))
    mask = writer.add("Trilu", ones, to="mask", upper=0)
    shift = writer.add("Constant", to="shift", value_floats=[0.5] * 6)
    product = writer.add("MatMul", writer.weight("u", 6, 2), writer.weight("v", 2, 6), to="product")
    x = writer.add("Add", writer.add("Mul", "x", mask, to="masked"), shift, to="shifted")
    writer.add("MatMul", x, product, to="y")
    graph = read_here(writer.model([takes("x", 5, 6)], ["y"])).graph
    assert [(each.name, each.weight_bytes) for each in graph.operators] == [
        ("masked", 120),
        ("shifted", 24),
        ("y", 144),
    ]


def test_functions_of_the_model_s_own_are_written_out() -> None:
    file = read_here(with_function())
    assert [(each.kind, each.flops) for each in file.graph.operators] == [
        *(("matmul", 2 * 2 * 4 * 8), ("relu", 16), ("matmul", 2 * 2 * 8 * 3), ("relu", 6)),
    ]
    assert file.warnings == ()


def test_subgraphs_are_bound_by_bytes() -> None:
    """A tensor that the branches take from outside is an input. Weights in them are held."""
    file = read_here(conditional())
    choice = file.graph.operator("choice")
    assert figures(choice) == ("if", 0, 1 + 32 + 64 + 32, 64, 32)
    assert file.warnings == (
        "the subgraphs of If (1, first choice) run an unknown number of times: "
        "their time is estimated from the bytes moved",
    )


def test_an_operator_without_a_formula_is_named() -> None:
    """The shape of a custom operator must be declared. That of a standard operator is inferred."""
    writer = Writer()
    x = writer.add("Fancy", "x", to="fancy", domain="com.example")
    writer.add("Det", x, to="det")
    declared = [takes("fancy", "batch", 4, 4)]
    model = writer.model([takes("x", "batch", 4)], ["det"], value_info=declared)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    file = read_here(model, batch=2)
    assert [figures(each) for each in file.graph.operators] == [
        ("fancy", 0, 32 + 128, 0, 128),
        ("det", 0, 128 + 8, 0, 8),
    ]
    assert file.warnings == (
        "there is no formula for the FLOPs of com.example.Fancy (1, first fancy), Det (1, first det): "
        "their time is estimated from the bytes moved",
    )


def test_names_are_made_unique_and_printable() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="n"), helper.make_node("Relu", ["a"], ["b"], name="n")]
    nodes += [helper.make_node("Relu", ["b"], ["c\n"]), helper.make_node("Relu", ["c\n"], ["d"], name="n_2" * 100)]
    graph = helper.make_graph(nodes, "", [takes("x", 2)], [onnx.ValueInfoProto(name="d")])
    read_back = read_here(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).graph
    assert [each.name for each in read_back.operators] == ["n", "n_2", "c?", ("n_2" * 100)[:160]]
    assert read_back.name == "onnx"


def test_quantized_weights_are_held_as_they_are() -> None:
    """Nine numbers of four bits take five bytes. An operator converts them to real numbers, as in the program."""
    writer = Writer()
    writer.weights["w"] = helper.make_tensor("w", TensorProto.INT4, [3, 3], bytes(5), raw=True)
    real = writer.add("DequantizeLinear", "w", writer.number("scale", 0.5), to="real")
    writer.add("MatMul", "x", real, to="y")
    real, product = read_here(writer.model([takes("x", 2, 3)], ["y"])).graph.operators
    assert figures(real) == ("dequantize_linear", 2 * 9, 5 + 4 + 36, 5 + 4, 36)
    assert figures(product) == ("matmul", 2 * 2 * 3 * 3, 24 + 36 + 24, 0, 24)


def test_weights_are_not_parsed() -> None:
    """However large the weights are, only a small part of the file is parsed."""
    writer = Writer()
    writer.add("MatMul", "x", writer.weight("w", 4096, 4096), to="y")
    data = writer.model([takes("x", 1, 4096)], ["y"]).SerializeToString()
    assert len(data) > 2**26
    assert len(skeleton_of(data)) < 300
    assert model_graph(OnnxModel.of(data)).graph.operators[0].weight_bytes == 2**26


def test_what_is_read_is_a_graph_like_any_other(tmp_path: Path) -> None:
    """Its content is its identity. It keeps its fingerprint in our file format, and has the model's name."""
    data = transformer().SerializeToString()
    file = model_graph(OnnxModel.of(data))
    for name in ("model.onnx", "model.bin"):
        (tmp_path / name).write_bytes(data)
        assert read_graph_file(tmp_path / name) == file
    (tmp_path / "graph.json").write_text(graph_text(file.graph))
    again = read_any(tmp_path / "graph.json")
    assert isinstance(again, GraphFile)
    assert (again.graph, again.fingerprint) == (file.graph, file.fingerprint)
    assert file.graph.name == "test model"
