"""Samples in imported programs: their axis is found and divided among replicas, or the program is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_models import Writer, cnn, mlp, takes, transformer
from helpers.onnx_nodes import CASES, Given, ints, node
from helpers.onnx_programs import constants, imported, network_here, random_inputs, with_random_weights

from tessel_core.errors import InputError
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.transforms import samples
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.samples import with_samples
from tessel_core.ir.verify import verify
from tessel_core.networks.onnx import onnx_program


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_replicas_compute_their_samples(name: str, replicas: int) -> None:
    """Each part of each output equals that of the whole."""
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
    (node("CumSum", (6, 4), np.array(0)), "operation 0 (cum_sum): has no rule for its sample axis"),
    (node("Expand", (6, 1), ints(6, 4)), ""),
]


REFUSED = [each for each in MIXED if each[1]]
DIVIDED = [model for model, why in MIXED if not why]


@pytest.mark.parametrize(("model", "why"), REFUSED, ids=[each[0].graph.node[0].op_type for each in REFUSED])
def test_what_mixes_samples_is_not_divided(model: onnx.ModelProto, why: str) -> None:
    network = network_here(model)
    with pytest.raises(InputError) as told:
        with_samples(onnx_program(network).model, dict.fromkeys(network.inputs, 0))
    assert str(told.value) == why


@pytest.mark.parametrize("model", DIVIDED, ids=[each.graph.node[0].op_type for each in DIVIDED])
def test_what_is_divided_means_the_same(model: onnx.ModelProto) -> None:
    network = network_here(model)
    whole = onnx_program(network).model
    batch = dict.fromkeys(network.inputs, 0)
    inputs = random_inputs(network)
    given = inputs | constants(model, network, inputs)
    ((_, wanted),) = whole.run(given)
    for piece, array in DataParallel(2)(with_samples(whole, batch)).run(given):
        np.testing.assert_allclose(array, piece.of(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op_type", "inputs", "rest"), CASES, ids=[f"{i}-{each[0]}" for i, each in enumerate(CASES)])
def test_samples_that_are_followed_are_apart(op_type: str, inputs: Given, rest: dict[str, Any]) -> None:
    """Samples may lie along any axis of any input. If the program is not refused, the divided results are the same."""
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
    with pytest.raises(InputError, match="output n: has no sample axis, so it cannot be divided among replicas"):
        with_samples(whole, {"x": 0})
