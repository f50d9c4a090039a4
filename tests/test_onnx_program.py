"""ONNX models as programs: every rule against the onnx package's evaluator and against our own formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_models import (
    INT64,
    Writer,
    cnn,
    mlp,
    takes,
    transformer,
    with_function,
)
from helpers.onnx_programs import check_meaning, constants, imported, network_here, random_inputs, with_random_weights
from onnx import TensorProto, helper, numpy_helper

from tessel_core.errors import InputError
from tessel_core.ir import find_operator, program_text, read_program, verify
from tessel_core.ir.transforms import DataParallel, with_samples
from tessel_core.networks.programs.onnx import onnx_program
from tessel_core.networks.programs.onnx.program import RULES

NEWEST = onnx.defs.onnx_opset_version()
BOOL = TensorProto.BOOL
Given = tuple[Any, ...]


def node(op_type: str, *inputs: Any, outputs: int = 1, opset: int = NEWEST, **rest: Any) -> onnx.ModelProto:
    """A model of one node; an input is a shape, a shape with a type, a constant as an array, or None."""
    writer, names, taken = Writer(), list[str](), list[onnx.ValueInfoProto]()
    for i, each in enumerate(inputs):
        names.append("" if each is None else f"x{i}")
        if isinstance(each, np.ndarray | np.generic):
            writer.weights[names[-1]] = numpy_helper.from_array(np.asarray(each), names[-1])
        elif isinstance(each, dict):
            taken.append(takes(names[-1], *each["shape"], element=each["element"]))
        elif each is not None:
            taken.append(takes(names[-1], *each))
    made = [f"y{i}" for i in range(outputs)]
    writer.nodes.append(helper.make_node(op_type, names, made, **rest))
    return writer.model(taken, made, opset)


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, dtype=np.int64)


def of(element: int, *shape: int) -> dict[str, Any]:
    return {"shape": shape, "element": element}


CASES: list[tuple[str, Given, dict[str, Any]]] = [
    *((each, ((2, 3), (3,)), {}) for each in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "PRelu")),
    *((each, ((2, 1), (3,)), {}) for each in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    *((each, (of(BOOL, 2, 3), of(BOOL, 3)), {}) for each in ("And", "Or", "Xor")),
    *((each, ((2, 3),), {}) for each in ("Relu", "Tanh", "Sigmoid", "Erf", "Exp", "Neg", "Abs", "Sign", "Floor")),
    *((each, ((2, 3),), {}) for each in ("Ceil", "Round", "Sin", "Cos", "Reciprocal", "Softplus", "Softsign")),
    *((each, ((2, 3),), {}) for each in ("Mish", "HardSwish", "Gelu", "LeakyRelu", "Elu", "HardSigmoid")),
    *((each, ((2, 3),), {}) for each in ("Sqrt", "Log")),  # of what is negative no number
    ("Div", (of(INT64, 2, 3), ints(-2)), {}),
    ("Not", (of(BOOL, 2, 3),), {}),
    ("Pow", ((2, 3), np.float32(2)), {}),
    ("Pow", ((2, 3), ints(3)), {}),
    ("Where", (of(BOOL, 2, 1), (3,), (2, 3)), {}),
    ("Gelu", ((2, 3),), {"approximate": "tanh"}),
    ("LeakyRelu", ((2, 3),), {"alpha": 0.3}),
    ("Clip", ((4, 3), np.float32(-0.5), np.float32(0.5)), {}),
    ("Clip", ((4, 3), None, np.float32(0.5)), {}),
    ("Clip", ((4, 3),), {"min": -0.25, "opset": 9}),
    ("Cast", ((2, 3),), {"to": INT64}),
    ("CastLike", ((2, 3), of(INT64, 1)), {}),
    ("Softmax", ((2, 3, 4),), {}),
    ("Softmax", ((2, 3, 4),), {"axis": 1}),
    ("LogSoftmax", ((2, 3, 4),), {"axis": 0}),
    ("LayerNormalization", ((2, 3, 4), (4,), (4,)), {"epsilon": 1e-3}),
    ("LayerNormalization", ((2, 3, 4), (3, 4)), {"axis": 1}),
    ("BatchNormalization", ((2, 3, 4, 4), (3,), (3,), (3,), np.float32([1, 2, 3])), {"epsilon": 1e-3}),
    *(
        (each, ((2, 3, 4), ints(-1, 0)), {"keepdims": 0})
        for each in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare")
    ),
    ("ReduceMean", ((2, 3, 4),), {}),
    ("ReduceMean", ((2, 3, 4),), {"axes": [1], "opset": 13}),
    ("GlobalAveragePool", ((2, 3, 4, 5),), {}),
    ("GlobalMaxPool", ((2, 3, 4, 5),), {}),
    ("MatMul", ((2, 3, 4, 5), (2, 3, 5, 6)), {}),
    ("MatMul", ((4, 5), (3, 5, 6)), {}),
    ("MatMul", ((2, 1, 4, 5), (3, 5, 6)), {}),
    ("Gemm", ((4, 3), (5, 4), (3, 1)), {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}),
    ("Gemm", ((4, 3), (3, 5), (5,)), {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", ((3, 4), (5, 3)), {"transA": 1, "transB": 1}),
    ("Conv", ((2, 4, 7, 6), (6, 2, 3, 2), (6,)), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", ((2, 3, 9), (4, 3, 3)), {"dilations": [2]}),
    ("Conv", ((1, 2, 5, 5), (3, 2, 3, 3)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", ((1, 2, 6, 5), (3, 2, 3, 2)), {"auto_pad": "SAME_LOWER"}),
    ("Conv", ((1, 2, 6, 5), (3, 2, 3, 2)), {"auto_pad": "VALID"}),
    ("MaxPool", ((2, 3, 6, 5),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}),
    ("MaxPool", ((2, 3, 6, 6),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", ((2, 3, 6, 5),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 2]}),
    ("AveragePool", ((2, 3, 6),), {"kernel_shape": [3], "pads": [1, 1], "count_include_pad": 1}),
    ("AveragePool", ((2, 3, 6, 6),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("Reshape", ((2, 3, 4), ints(6, -1)), {}),
    ("Reshape", ((2, 3, 4), ints(0, 2, 6)), {}),
    ("Flatten", ((2, 3, 4),), {"axis": 2}),
    ("Squeeze", ((2, 1, 4), ints(1)), {}),
    ("Unsqueeze", ((2, 4), ints(0, 2)), {}),
    ("Transpose", ((2, 3, 4),), {"perm": [1, 2, 0]}),
    ("Transpose", ((2, 3, 4),), {}),
    ("Concat", ((2, 3), (2, 4)), {"axis": -1}),
    ("Split", ((2, 6), ints(1, 2, 3)), {"axis": 1, "outputs": 3}),
    ("Split", ((6, 2),), {"num_outputs": 3, "outputs": 3}),
    ("Slice", ((5, 6), ints(-2, 9), ints(-100, 1), ints(0, 1), ints(-1, -3)), {}),
    ("Slice", ((5, 6), ints(1), ints(2**63 - 1), ints(-1)), {}),
    ("Slice", ((5, 6),), {"starts": [1, 0], "ends": [3, -1], "opset": 9}),
    ("Expand", ((3, 1), ints(2, 1, 4)), {}),
    ("Pad", ((2, 3), ints(0, 1, 2, 0), np.float32(7)), {}),
    ("Pad", ((2, 3), ints(1, 2), None, ints(-1)), {}),
    ("Pad", ((2, 3),), {"pads": [0, 1, 2, 0], "value": 3.0, "opset": 9}),
    ("Gather", ((4, 3), of(INT64, 2, 2)), {}),
    ("Gather", ((4, 3), ints(-1)), {"axis": 1}),
]
"""The operator, its inputs, its attributes; `opset` and the number of `outputs` where they are not the usual."""


def test_every_rule_has_a_case() -> None:
    assert {each for each, _, _ in CASES} == RULES.keys()


@pytest.mark.parametrize(("op_type", "inputs", "rest"), CASES, ids=[f"{i}-{each[0]}" for i, each in enumerate(CASES)])
def test_each_rule_means_what_the_operator_does(op_type: str, inputs: Given, rest: dict[str, Any]) -> None:
    """Computed alike, and with the FLOPs and bytes that operator graphs count, but for arguments of the host."""
    model = node(op_type, *inputs, **rest)
    program = check_meaning(model)
    (op,) = program.model.program.ops
    assert op.kind != "opaque"
    assert program.warnings == ()
    types = [program.model.program.types_of(values) for values in (op.inputs, op.outputs)]
    work = find_operator(op.kind).work(*types, dict(op.attributes))
    (told,) = network_here(model).nodes
    beside = 8 if op_type == "CastLike" else 0  # it reads a number of the type
    assert (work.flops, work.bytes + beside) == (told.flops, told.bytes)


def test_an_old_softmax_is_over_all_axes_from_one_on() -> None:
    """Before opset 13; the package's evaluator takes the one axis alone, against its own reference."""
    program = imported(node("Softmax", (2, 3, 4), opset=11)).model
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    ((_, found),) = program.run({"x0": x})
    powers = np.exp(x)
    np.testing.assert_allclose(found, powers / powers.sum(axis=(1, 2), keepdims=True), rtol=1e-5)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mlp": lambda: mlp(3),
    "cnn": cnn,
    "transformer": lambda: transformer(2),
    "old transformer": lambda: transformer(opset=17),
    "function": with_function,
}


@pytest.mark.parametrize("name", MODELS)
def test_networks_mean_what_they_did(name: str) -> None:
    program = check_meaning(with_random_weights(MODELS[name]())).model.program
    verify(program)
    assert read_program(program_text(program)) == program
    assert not [op for op in program.ops if op.kind == "opaque"]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_replicas_compute_their_samples(name: str, replicas: int) -> None:
    """Every piece of every output is that of the whole."""
    model = with_random_weights({"mlp": mlp(6), "cnn": cnn(6), "transformer": transformer(2, batch=6)}[name])
    network = network_here(model)
    whole = onnx_program(network).model
    (first,) = network.inputs
    divided = DataParallel(replicas)(with_samples(whole, {first: 0}))
    verify(divided.program)
    inputs = random_inputs(network)
    given = inputs | constants(model, network, inputs)
    ((_, wanted),) = whole.run(given)
    found = divided.run(given)
    assert len(found) == len(divided.program.devices) == replicas
    for piece, array in found:
        np.testing.assert_allclose(array, piece.of(wanted), rtol=1e-5, atol=1e-5)


MIXED: list[tuple[onnx.ModelProto, str]] = [
    (node("Softmax", (6, 4), axis=0), "operation 0 (softmax): mixes the samples of a batch"),
    (node("ReduceMean", (6, 4), ints(0)), "operation 0 (reduce_mean): mixes the samples of a batch"),
    (node("Transpose", (6, 6)), ""),
    (node("Add", (6, 4), np.ones((6, 4), np.float32)), "operation 0 (add): mixes the samples of a batch"),
    (node("MatMul", (6, 6), (6, 6)), "operation 0 (matmul): mixes the samples of a batch"),
    (node("Gemm", (6, 4), (6, 5), transA=1), "operation 0 (gemm): mixes the samples of a batch"),
    (node("Concat", (6, 4), (6, 4), axis=0), "operation 0 (concat): mixes the samples of a batch"),
    (node("Slice", (6, 4), ints(0), ints(1)), "operation 0 (strided_slice): mixes the samples of a batch"),
    (node("Reshape", (6, 4), ints(4, 6)), ""),
    (node("Gather", (6, 4), ints(0)), "operation 0 (take): mixes the samples of a batch"),
    (node("CumSum", (6, 4), np.array(0)), "operation 0 (opaque): is not known to keep samples apart"),
    (node("Expand", (6, 1), ints(6, 4)), ""),
]


@pytest.mark.parametrize(("model", "why"), MIXED, ids=[each[0].graph.node[0].op_type for each in MIXED])
def test_what_mixes_samples_is_not_divided(model: onnx.ModelProto, why: str) -> None:
    """And what is divided means the same."""
    network = network_here(model)
    whole = onnx_program(network).model
    batch = dict.fromkeys(network.inputs, 0)
    if why:
        with pytest.raises(InputError) as told:
            with_samples(whole, batch)
        assert str(told.value) == why
        return
    inputs = random_inputs(network)
    given = inputs | constants(model, network, inputs)
    ((_, wanted),) = whole.run(given)
    for piece, array in DataParallel(2)(with_samples(whole, batch)).run(given):
        np.testing.assert_allclose(array, piece.of(wanted), rtol=1e-5, atol=1e-5)


def test_a_shape_that_does_not_fit_a_share_is_said() -> None:
    whole = with_samples(imported(node("Reshape", (6, 4), ints(3, 8))).model, {"x0": 0})
    assert [each.types[-1].shape for each in (DataParallel(3)(whole).program,)] == [(1, 8)]
    with pytest.raises(InputError, match="does not fit the 12 numbers"):
        DataParallel(2)(whole)


def test_an_output_without_samples_is_not_divided() -> None:
    writer = Writer()
    writer.add("Relu", "x", to="y")
    writer.add("Neg", "z", to="n")
    whole = imported(writer.model([takes("x", 4, 2), takes("z", 3)], ["y", "n"])).model
    with pytest.raises(InputError, match="output n: holds no samples, so it cannot be divided among replicas"):
        with_samples(whole, {"x": 0})
