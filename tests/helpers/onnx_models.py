"""ONNX models built with `onnx.helper`, with zero weights and any sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tessel_core.formats import GraphFile
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.networks.onnx import network_graph

Size = int | str
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def read_here(model: onnx.ModelProto, **sizes: int) -> GraphFile:
    """Return `model_graph(model)`, computed in this process, which saves the start of another process."""
    return network_graph(translate(skeleton_of(model.SerializeToString()), sizes))


class Writer:
    """Collects nodes and weights. Every method returns the name of the tensor that it adds."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def weight(self, name: str, *shape: int) -> str:
        """Add a float32 weight of zeros."""
        self.weights[name] = zeros(name, *shape)
        return name

    def numbers(self, name: str, *numbers: int) -> str:
        """Add a constant of int64 numbers."""
        self.weights[name] = numpy_helper.from_array(np.array(numbers, dtype=np.int64), name)
        return name

    def number(self, name: str, value: float) -> str:
        """Add a float32 scalar."""
        self.weights[name] = numpy_helper.from_array(np.array(value, dtype=np.float32), name)
        return name

    def add(self, op_type: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """Add a node with one output of the same name."""
        name = to or f"{op_type.lower()}{len(self.nodes)}"
        return self.split(op_type, *inputs, to=(name,), **attributes)[0]

    def split(self, op_type: str, *inputs: str, to: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add a node with several outputs, named after the first."""
        name = next(each for each in to if each)
        self.nodes.append(helper.make_node(op_type, list(inputs), list(to), name=name, **attributes))
        return to

    def model(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[str],
        opset: int = 21,
        **parts: Any,
    ) -> onnx.ModelProto:
        """Build the model. Its outputs have no declared shape."""
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        weights = list(self.weights.values())
        graph = helper.make_graph(self.nodes, "test model", list(inputs), ends, weights, **parts)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def zeros(name: str, *shape: int) -> onnx.TensorProto:
    """Return a float32 tensor of zeros."""
    return helper.make_tensor(name, FLOAT, shape, bytes(4 * int(np.prod(shape))), raw=True)


def takes(name: str, *shape: Size | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    """Return a graph input or declared tensor. A size may be a name or None."""
    return helper.make_tensor_value_info(name, element, list(shape))


def mlp(batch: Size = "batch", opset: int = 21) -> onnx.ModelProto:
    """Return an MLP: 64 to 128 with bias, ReLU, 128 to 10 without bias."""
    writer = Writer()
    hidden = writer.add("Gemm", "x", writer.weight("w1", 64, 128), writer.weight("b1", 128), to="fc1")
    hidden = writer.add("Relu", hidden, to="relu")
    writer.add("MatMul", hidden, writer.weight("w2", 128, 10), to="fc2")
    return writer.model([takes("x", batch, 64)], ["fc2"], opset)


def cnn(batch: Size = 2) -> onnx.ModelProto:
    """Return a CNN: convolution, normalisation, Split and Concat of two branches, residual sum, pooling and head."""
    writer = Writer()
    x = writer.add("Conv", "image", writer.weight("k1", 8, 3, 3, 3), writer.weight("c1", 8), to="conv1", pads=[1] * 4)
    statistics = [writer.weight(name, 8) for name in ("scale", "shift", "mean", "var")]
    x = writer.add("BatchNormalization", x, *statistics, to="norm")
    x = writer.add("Relu", x, to="relu")
    left, right = writer.split("Split", x, writer.numbers("halves", 4, 4), to=("left", "right"), axis=1)
    left = writer.add("Conv", left, writer.weight("k2", 4, 4, 1, 1), to="conv2")
    x = writer.add("Add", writer.add("Concat", left, right, to="joined", axis=1), x, to="residual")
    x = writer.add("MaxPool", x, to="pool", kernel_shape=[2, 2], strides=[2, 2])
    x = writer.add("Flatten", writer.add("GlobalAveragePool", x, to="mean_pool"), to="flat")
    writer.add("Gemm", x, writer.weight("w", 10, 8), writer.weight("b", 10), to="head", transB=1)
    return writer.model([takes("image", batch, 3, 8, 8)], ["head"])


def transformer(
    layers: int = 1,
    hidden: int = 16,
    heads: int = 4,
    vocabulary: int = 50,
    length: int = 8,
    batch: Size = 2,
    opset: int = 21,
) -> onnx.ModelProto:
    """Return a GPT with 27 operators per layer, whose shapes are computed in the model, as exporters do.

    Sixty layers have 1,624 operators.
    """
    writer = Writer()
    table = writer.weight("wte", vocabulary, hidden)
    x = writer.add("Gather", table, "tokens", to="embed")
    x = writer.add("Add", x, writer.weight("wpe", length, hidden), to="positions")
    mask = writer.weight("mask", 1, 1, length, length)
    for i in range(layers):
        x = _attention(writer, f"h{i}.", x, hidden, heads, mask)
        x = _feed_forward(writer, f"h{i}.", x, hidden)
    x = _norm(writer, "final.", x, hidden)
    writer.add("MatMul", x, writer.weight("lm", hidden, vocabulary), to="logits")
    return writer.model([takes("tokens", batch, length, element=INT64)], ["logits"], opset)


def _attention(writer: Writer, at: str, x: str, hidden: int, heads: int, mask: str) -> str:
    normed = _norm(writer, f"{at}1.", x, hidden)
    joined = _linear(writer, f"{at}qkv", normed, hidden, 3 * hidden)
    sizes = writer.numbers(f"{at}thirds", hidden, hidden, hidden)
    parts = writer.split("Split", joined, sizes, to=[f"{at}{each}" for each in "qkv"], axis=2)
    shape = writer.add("Shape", x, to=f"{at}shape")
    first = writer.add("Slice", shape, writer.numbers(f"{at}from", 0), writer.numbers(f"{at}to", 2), to=f"{at}lead")
    tail = writer.numbers(f"{at}tail", heads, hidden // heads)
    split = writer.add("Concat", first, tail, to=f"{at}split", axis=0)
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    query, key, value = (
        writer.add("Transpose", writer.add("Reshape", each, split, to=f"{each}.r"), to=f"{each}.t", perm=order)
        for each, order in zip(parts, orders, strict=True)
    )
    scores = writer.add("MatMul", query, key, to=f"{at}scores")
    scores = writer.add("Div", scores, writer.number(f"{at}root", (hidden // heads) ** 0.5), to=f"{at}scaled")
    scores = writer.add("Softmax", writer.add("Add", scores, mask, to=f"{at}masked"), to=f"{at}softmax", axis=-1)
    mixed = writer.add("Transpose", writer.add("MatMul", scores, value, to=f"{at}mixed"), to=f"{at}b", perm=orders[0])
    mixed = writer.add("Reshape", mixed, shape, to=f"{at}merged")
    return writer.add("Add", x, _linear(writer, f"{at}proj", mixed, hidden, hidden), to=f"{at}res1")


def _feed_forward(writer: Writer, at: str, x: str, hidden: int) -> str:
    inner = _linear(writer, f"{at}up", _norm(writer, f"{at}2.", x, hidden), hidden, 4 * hidden)
    bent = writer.add("Erf", writer.add("Div", inner, writer.number(f"{at}two", 2**0.5), to=f"{at}g1"), to=f"{at}g2")
    bent = writer.add("Add", bent, writer.number(f"{at}one", 1), to=f"{at}g3")
    bent = writer.add(
        "Mul", writer.add("Mul", inner, bent, to=f"{at}g4"), writer.number(f"{at}half", 0.5), to=f"{at}g5"
    )
    return writer.add("Add", x, _linear(writer, f"{at}down", bent, 4 * hidden, hidden), to=f"{at}res2")


def _norm(writer: Writer, at: str, x: str, hidden: int) -> str:
    scale, shift = writer.weight(f"{at}scale", hidden), writer.weight(f"{at}shift", hidden)
    return writer.add("LayerNormalization", x, scale, shift, to=f"{at}norm")


def _linear(writer: Writer, name: str, x: str, inputs: int, outputs: int) -> str:
    product = writer.add("MatMul", x, writer.weight(f"{name}.w", inputs, outputs), to=f"{name}.product")
    return writer.add("Add", product, writer.weight(f"{name}.b", outputs), to=name)


def conditional() -> onnx.ModelProto:
    """Return a model with an If: one branch doubles a tensor, and the other multiplies it by a weight."""
    writer = Writer()
    doubled = helper.make_graph([helper.make_node("Add", ["x", "x"], ["t"])], "then", [], [takes("t", 2, 4)])
    product = helper.make_node("MatMul", ["x", "inner"], ["e"])
    other = helper.make_graph([product], "else", [], [takes("e", 2, 4)], [zeros("inner", 4, 4)])
    writer.add("Relu", writer.add("If", "flag", to="choice", then_branch=doubled, else_branch=other), to="after")
    inputs = [takes("flag", element=TensorProto.BOOL), takes("x", 2, 4)]
    return writer.model(inputs, ["after"])


def with_function() -> onnx.ModelProto:
    """Return a model that calls its own function (matrix product and ReLU) twice."""
    writer = Writer()
    body = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    own = helper.make_function("own", "Layer", ["x", "w"], ["y"], body, [helper.make_opsetid("", 21)])
    x = writer.add("Layer", "x", writer.weight("w1", 4, 8), to="one", domain="own")
    writer.add("Layer", x, writer.weight("w2", 8, 3), to="two", domain="own")
    model = writer.model([takes("x", 2, 4)], ["two"])
    model.functions.append(own)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model
