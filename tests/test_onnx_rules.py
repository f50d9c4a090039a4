"""Every rule for ONNX nodes agrees with the onnx package's evaluator and with our formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_nodes import CASES, Given, ints, node
from helpers.onnx_programs import check_meaning, imported, network_here

from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.operators import OPERATORS, find_operator
from tessel_core.networks.onnx.rules import RULES
from tessel_core.simulation import simulate


def test_every_rule_has_a_case() -> None:
    assert {each for each, _, _ in CASES} == RULES.keys()


@pytest.mark.parametrize(("op_type", "inputs", "rest"), CASES, ids=[f"{i}-{each[0]}" for i, each in enumerate(CASES)])
def test_each_rule_means_what_the_operator_does(op_type: str, inputs: Given, rest: dict[str, Any]) -> None:
    """Results are equal, and so are FLOPs and bytes in operator graphs, apart from arguments on the host."""
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
    """ONNX defines both as the limits of the format."""
    empty, values = np.zeros((0, 2), dtype), {"axes": (0,), "keep": 0}
    (largest,), (least,) = (OPERATORS[f"reduce_{each}"].compute([empty], values) for each in ("max", "min"))
    ends = {"f": (-np.inf, np.inf), "i": (-(2**63), 2**63 - 1), "b": (False, True)}[largest.dtype.kind]
    assert (largest.tolist(), least.tolist()) == ([ends[0]] * 2, [ends[1]] * 2)
    with np.errstate(divide="ignore"):
        assert OPERATORS["softmax"].compute([np.zeros((0, 2), np.float32)], {"axes": (0,)})[0].shape == (0, 2)


def test_what_does_nothing_is_no_operation() -> None:
    """A dropout returns its input in inference, but not in training."""
    model = node("Dropout", (2, 3), np.float32(0.5), np.bool_(False))
    assert check_meaning(model).model.program.ops == ()
    trace = simulate(imported(model).model.program, find_mesh("h200-1"))
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
    """Before opset 13. The package's evaluator uses only one axis, unlike its own reference."""
    program = imported(node("Softmax", (2, 3, 4), opset=11)).model
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    ((_, found),) = program.run({"x0": x})
    powers = np.exp(x)
    np.testing.assert_allclose(found, powers / powers.sum(axis=(1, 2), keepdims=True), rtol=1e-5)
