"""ONNX models as programs: every rule against the onnx package's evaluator and against our own formulas."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_models import INT64, Writer, cnn, conditional, mlp, read_here, takes, transformer, with_function
from helpers.onnx_programs import check_meaning, constants, imported, network_here, random_inputs, with_random_weights
from helpers.terminal import Tessel, terminal
from onnx import TensorProto, helper, numpy_helper

from tessel_core.costs.meshes import find_mesh
from tessel_core.costs.timing import operator_seconds
from tessel_core.errors import InputError
from tessel_core.ir import OPERATORS, TensorType, find_operator, program_text, read_program, verify
from tessel_core.ir.transforms import DataParallel, samples, with_samples
from tessel_core.networks.programs import read_program_file
from tessel_core.networks.programs.onnx import onnx_program
from tessel_core.networks.programs.onnx.program import RULES
from tessel_core.strategies import Semantics, equal_devices, simulate_program

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
        (each, ((2, 4, 3), ints(-1, 0)), {"keepdims": 0})
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
    ("Slice", ((4, 6), ints(1), ints(2**63 - 1), ints(-1)), {}),
    ("Slice", ((5, 6),), {"starts": [1, 0], "ends": [3, -1], "opset": 9}),
    ("Expand", ((4, 1), ints(3, 1, 5)), {}),
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


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_the_largest_and_least_of_nothing(dtype: type[np.generic]) -> None:
    """Neither is more than any number of the format, as ONNX has it."""
    empty, values = np.zeros((0, 2), dtype), {"axes": (0,), "keep": 0}
    (largest,), (least,) = (OPERATORS[f"reduce_{each}"].compute([empty], values) for each in ("max", "min"))
    ends = {"f": (-np.inf, np.inf), "i": (-(2**63), 2**63 - 1), "b": (False, True)}[largest.dtype.kind]
    assert (largest.tolist(), least.tolist()) == ([ends[0]] * 2, [ends[1]] * 2)
    with np.errstate(divide="ignore"):
        assert OPERATORS["softmax"].compute([np.zeros((0, 2), np.float32)], {"axes": (0,)})[0].shape == (0, 2)


def test_what_does_nothing_is_no_operation() -> None:
    """A dropout in inference passes on what it takes; in training it does not."""
    model = node("Dropout", (2, 3), np.float32(0.5), np.bool_(False))
    assert check_meaning(model).model.program.ops == ()
    trace = simulate_program(imported(model).model.program, find_mesh("h200-1")).trace
    assert (trace.latency, list(trace.peak_memory)) == (0.0, [24])
    training = imported(node("Dropout", (2, 3), np.float32(0.5), np.bool_(True)))
    assert [op.kind for op in training.model.program.ops] == ["opaque"]


@pytest.mark.parametrize(
    "model",
    [
        node("MaxPool", (1, 2, 4, 4), outputs=2, kernel_shape=[2, 2]),
        node("LayerNormalization", (2, 3), (3,), outputs=2),
        node("MatMul", (3,), (3, 2)),
        node("Sum", (2,), (2,), (2,)),
        node("Pad", (4, 4), ints(1, 1, 1, 1), mode="reflect"),
        node("Pad", (4, 4), ints(0, 1, 0, -1)),
        node("ReduceSum", (2, 3), noop_with_empty_axes=1),
        node("BatchNormalization", (2, 3), *[(3,)] * 4, outputs=3, training_mode=1),
        node("AveragePool", (1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)
def test_what_no_operation_says_is_opaque(model: onnx.ModelProto) -> None:
    program = imported(model)
    assert [op.kind for op in program.model.program.ops] == ["opaque"]
    assert model.graph.node[0].op_type in program.warnings[-1]


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
    (node("Add", (6, 4), np.arange(24, dtype=np.float32).reshape(6, 4)), ""),
    (node("Concat", (6, 4), np.arange(12, dtype=np.float32).reshape(6, 2), axis=1), ""),
    (node("MatMul", (6, 6), (6, 6)), "operation 0 (matmul): mixes the samples of a batch"),
    (node("Gemm", (6, 4), (6, 5), transA=1), "operation 0 (gemm): mixes the samples of a batch"),
    (node("Concat", (6, 4), (6, 4), axis=0), "operation 0 (concat): mixes the samples of a batch"),
    (node("Slice", (6, 4), ints(0), ints(1)), "operation 0 (strided_slice): mixes the samples of a batch"),
    (node("Reshape", (6, 4), ints(4, 6)), ""),
    (node("Gather", (6, 4), ints(0)), "operation 0 (take): mixes the samples of a batch"),
    (node("CumSum", (6, 4), np.array(0)), "operation 0 (cum_sum): is not known to keep samples apart"),
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


@pytest.mark.parametrize(("op_type", "inputs", "rest"), CASES, ids=[f"{i}-{each[0]}" for i, each in enumerate(CASES)])
def test_samples_that_are_followed_are_apart(op_type: str, inputs: Given, rest: dict[str, Any]) -> None:
    """Along whatever axes of whichever inputs samples lie: what is not refused is divided without a difference."""
    model = node(op_type, *inputs, **rest)
    network = network_here(model)
    whole = onnx_program(network).model
    given = random_inputs(network)
    given |= constants(model, network, given)
    choices = [
        (None, *(axis for axis, size in enumerate(network.tensors[name].shape) if size % 2 == 0 and size))
        for name in network.inputs
    ]
    with np.errstate(all="ignore"):
        wanted = whole.run(given)
        for axes in product(*choices):
            batch = {name: axis for name, axis in zip(network.inputs, axes, strict=True) if axis is not None}
            try:
                divided = DataParallel(2)(with_samples(whole, batch))
            except InputError:
                continue
            for i, (piece, array) in enumerate(divided.run(given)):
                right = piece.of(wanted[i // 2][1])
                np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5, err_msg=f"{batch}")


def test_rules_of_samples_are_of_operators() -> None:
    assert samples._RULES.keys() <= OPERATORS.keys()


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


def test_weights_are_inputs_under_their_names() -> None:
    """A weight of two operators is one input; one that is only transposed is held once, and looked at for nothing."""
    writer = Writer()
    hidden = writer.add("MatMul", "x", writer.weight("w", 4, 6), to="hidden")
    turned = writer.add("Transpose", "w", to="turned")
    writer.add("MatMul", hidden, writer.add("Identity", turned, to="same"), to="y")
    program = check_meaning(with_random_weights(writer.model([takes("x", 3, 4)], ["y"]))).model
    assert [piece.name for piece in program.inputs] == ["x", "w"]
    assert [op.kind for op in program.program.ops] == ["matmul", "permute", "matmul"] or [
        op.kind for op in program.program.ops
    ] == ["permute", "matmul", "matmul"]
    trace = simulate_program(program.program, find_mesh("h200-1")).trace
    assert max(trace.peak_memory) == 4 * (3 * 4 + 4 * 6 + 3 * 6 + 3 * 4)


def test_what_is_computed_of_constants_is_an_input() -> None:
    """As operator graphs have it: a product of weights, and a mask made of shapes."""
    writer = Writer()
    product = writer.add("MatMul", writer.weight("u", 6, 2), writer.weight("v", 2, 6), to="product")
    ones = writer.add("ConstantOfShape", writer.add("Shape", "x", to="shape"), to="ones")
    masked = writer.add("Add", "x", writer.add("Trilu", ones, to="mask", upper=0), to="masked")
    writer.add("MatMul", masked, product, to="y")
    program = check_meaning(with_random_weights(writer.model([takes("x", 5, 6)], ["y"]))).model
    assert [piece.name for piece in program.inputs] == ["x", "mask", "product"]


def test_what_has_no_meaning_is_known_by_its_costs() -> None:
    """It is timed as the operator graph's operator is; executing it says which one it was."""
    model = node("TopK", (5, 100), ints(8), outputs=2)
    program = imported(model)
    known_by = "operators without a meaning in programs are known by their costs only"
    assert program.warnings == (f"{known_by}: TopK (1, first y0)",)
    (op,) = program.model.program.ops
    assert program.model.program.types_of(op.outputs) == (TensorType("fp32", (5, 8), 1), TensorType("int64", (5, 8), 1))
    mesh = find_mesh("h200-1")
    (operator,) = (each for each in read_here(model).graph.operators if each.kind == "top_k")
    found = simulate_program(program.model.program, mesh).trace
    assert found.latency == pytest.approx(operator_seconds(operator, mesh.devices[0], "fp32"))
    assert max(found.peak_memory) == 4 * 500 + 12 * 40
    assert simulate_program(program.model.program, mesh, Semantics.DISTIR).trace.latency == 1e-5
    with pytest.raises(InputError) as told:
        program.model.run({"x0": np.ones((5, 100), np.float32)})
    assert str(told.value) == "operator top_k: is known by its costs only, so the program cannot be executed"


def test_branches_hold_their_weights() -> None:
    program = imported(conditional())
    types = program.model.program.types
    assert [(piece.name, types[value].bytes) for value, piece in program.model.piece_of.items()] == [
        ("flag", 1),
        ("x", 32),
        ("choice.constants", 64),
    ]
    assert program.warnings[0].startswith("how often the subgraphs run is not known of If (1, first choice)")
    assert program.warnings[1].endswith("known by their costs only: If (1, first choice)")


def test_quantized_weights_are_held_as_they_are() -> None:
    """Nine numbers of four bits take five bytes, until they are used."""
    writer = Writer()
    writer.weights["w"] = helper.make_tensor("w", TensorProto.INT4, [3, 3], bytes(5), raw=True)
    real = writer.add("DequantizeLinear", "w", writer.number("scale", 0.5), to="real")
    writer.add("MatMul", "x", real, to="y")
    program = imported(writer.model([takes("x", 2, 3)], ["y"])).model
    assert [str(program.program.types[value]) for value in program.program.inputs] == [
        "fp32[2, 3]@1",
        "int8[5]@1",
        "fp32[]@1",
    ]
    assert [op.kind for op in program.program.ops] == ["opaque", "matmul"]


def test_names_can_be_printed_and_read_back() -> None:
    """Old exporters call tensors by numbers, which values of programs have too; others write what no text can hold."""
    nodes = [helper.make_node("Relu", ["1"], ["0"]), helper.make_node("Neg", ["0"], ["onnx::a, b"])]
    nodes += [helper.make_node("Abs", ["onnx::a, b"], ["onnx::a. b"])]
    nodes += [helper.make_node("Sub", ["0", "onnx::a. b"], ["%2"])]
    graph = helper.make_graph(nodes, "a\nb", [takes("1", 2)], [onnx.ValueInfoProto(name="%2")])
    program = imported(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).model
    assert [piece.name for piece in (*program.inputs, *program.outputs)] == ["1", "%2"]
    assert read_program(program_text(program.program)) == program.program


def test_costs_under_both_semantics() -> None:
    """4 x 64 times 64 x 128 with a bias, a ReLU, and 128 x 10; DistIR counts no bias and nothing that is written."""
    program = imported(mlp(4)).model.program
    mesh = equal_devices(1, 1e13, 1e12, 100)
    trace = simulate_program(program, mesh, Semantics.DISTIR).trace
    launches, flops = 3e-5, (2 * 4 * 64 * 128 + 4 * 128 + 2 * 4 * 128 * 10) / 1e13
    moved = 4 * (4 * 64 + 64 * 128 + 4 * 128 + 4 * 128 + 128 * 10) / 1e12
    assert trace.latency == pytest.approx(launches + flops + moved, rel=1e-12)
    default = simulate_program(program, find_mesh("h200-1")).trace
    graph = read_here(mlp(4)).graph
    device = find_mesh("h200-1").devices[0]
    assert default.latency == pytest.approx(sum(operator_seconds(each, device, "fp32") for each in graph.operators))


def test_a_large_model_in_another_process_and_back() -> None:
    """The same program; the benchmark of ONNX models says how long it takes."""
    data = transformer(66, 16, 4, 20, 4, "batch").SerializeToString()
    found = read_program_file(data, "large.onnx", {"batch": 2})
    assert len(found.program.ops) == 4 + 31 * 66 > 2000
    assert found.warnings == ()
    assert found.program == imported(onnx.load_from_string(data), batch=2).model.program


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """In a folder with three models and the text of a program."""
    monkeypatch.chdir(tmp_path)
    models = {"mlp": mlp(), "branches": conditional(), "softmax": node("Softmax", (6, 4), axis=0)}
    for name, model in models.items():
        Path(f"{name}.onnx").write_bytes(model.SerializeToString())
    Path("text.txt").write_text("program p\n%x: fp32[4, 4]@1\n%y: fp32[4, 4]@1 = relu(%x)\nreturn %y")
    return terminal(monkeypatch, capsys)


def test_a_model_is_simulated(tessel: Tessel) -> None:
    ended = tessel("simulate", "mlp.onnx", "--set", "batch=4", "--json")
    assert (ended.code, ended.err) == (0, "")
    trace = simulate_program(imported(mlp(4)).model.program, find_mesh("h200-1")).trace
    assert ended.document == {
        "latency_s": trace.latency,
        "device_end_s": list(trace.device_end),
        "peak_memory": list(trace.peak_memory),
        "events": 3,
    }
    shared = tessel("simulate", "mlp.onnx", "--set", "batch=8", "--data", 2, "--mesh", "h200-2", "--json").document
    assert shared["peak_memory"] == [*trace.peak_memory] * 2
    distir = tessel("simulate", "mlp.onnx", "--set", "batch=4", "--compat", "distir", "--json").document
    assert distir["events"] == 3
    assert tessel("simulate", "mlp.onnx").err == "note: mlp.onnx: the file leaves batch open; it is taken as 1\n"
    assert "known by their costs only: If (1, first choice)" in tessel("simulate", "branches.onnx").err


WORDS: list[tuple[tuple[object, ...], str]] = [
    (("mlp.onnx", "--data", 2), "mlp.onnx: x: its 1 along axis 0 do not divide into 2 equal parts"),
    (("softmax.onnx", "--data", 2), "softmax.onnx: operation 0 (softmax): mixes the samples of a batch"),
    (("mlp.onnx", "--set", "bach=8"), "mlp.onnx: sizes: no tensor has an open size 'bach', known are batch"),
    (("mlp.onnx", "--set", "batch=0"), "mlp.onnx: sizes: batch must be at least 1, got 0"),
    (("mlp.onnx", "--set", "batch"), "--set: wants NAME=N, with a whole number, got 'batch'"),
    (("mlp.onnx", "--tensor", 2), "--tensor: is for families"),
    (("mlp.onnx", "--batch", 2), "--batch: is for families"),
    (("text.txt", "--data", 2), "text.txt: is a program's text, which says itself its sizes and devices"),
    (("text.onnx",), "text.onnx: No such file or directory"),
    (("mlp", "--layers", 2, "--width", 8, "--batch", 2, "--set", "a=1"), "--set: is for the open sizes of ONNX files"),
]


@pytest.mark.parametrize(("words", "why"), WORDS, ids=[" ".join(map(str, each[0])) for each in WORDS])
def test_wrong_words_are_one_line(tessel: Tessel, words: tuple[object, ...], why: str) -> None:
    ended = tessel("simulate", *words)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"error: {why}")


def test_what_is_no_model_says_so(tessel: Tessel) -> None:
    Path("text.txt").rename("text.onnx")
    ended = tessel("simulate", "text.onnx")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: text.onnx: the model: is not ONNX: it does not begin with an IR version\n"
