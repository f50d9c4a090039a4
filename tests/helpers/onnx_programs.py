"""ONNX models as programs, compared with the evaluator of the onnx package."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tessel_core.formats.onnx import OnnxNetwork
from tessel_core.formats.onnx.skeleton import skeleton_of
from tessel_core.formats.onnx.translate import translate
from tessel_core.networks.onnx import OnnxProgram, onnx_program

Arrays = dict[str, NDArray[np.generic]]


def network_here(model: onnx.ModelProto, **sizes: int) -> OnnxNetwork:
    """Return `OnnxModel.network`, computed in this process."""
    return translate(skeleton_of(model.SerializeToString()), sizes)


def imported(model: onnx.ModelProto, **sizes: int) -> OnnxProgram:
    """Return the model as a program."""
    return onnx_program(network_here(model, **sizes))


def with_random_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Replace weights by random numbers of magnitude 0.5 to 1.5, positive for variances. Integers stay."""
    draw = np.random.default_rng(seed)
    for held in model.graph.initializer:
        if held.data_type == onnx.TensorProto.FLOAT and held.dims:
            sign = 1 if held.name == "var" else draw.choice([-1, 1], tuple(held.dims))
            numbers = (sign * draw.uniform(0.5, 1.5, tuple(held.dims))).astype(np.float32)
            held.CopyFrom(numpy_helper.from_array(numbers, held.name))
    return model


def random_inputs(network: OnnxNetwork, most: int = 3, seed: int = 1) -> Arrays:
    """Return random inputs: real numbers around 0, and integers below `most`."""
    draw = np.random.default_rng(seed)
    found: Arrays = {}
    for name in network.inputs:
        tensor = network.tensors[name]
        if tensor.dtype == "fp32":
            found[name] = draw.normal(size=tensor.shape).astype(np.float32)
        elif tensor.dtype == "bool":
            found[name] = draw.random(tensor.shape) < 0.5
        else:
            found[name] = draw.integers(0, most, tensor.shape).astype(tensor.dtype)
    return found


def evaluated(model: onnx.ModelProto, inputs: Arrays, names: tuple[str, ...]) -> list[NDArray[np.generic]]:
    """Return the named tensors, computed by the evaluator of the onnx package."""
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(each) for each in ReferenceEvaluator(asked).run(None, inputs)]


def constants(model: onnx.ModelProto, network: OnnxNetwork, inputs: Arrays) -> Arrays:
    """Return the other inputs of the program: weights, and constants that the model computes from them."""
    return dict(zip(network.constants, evaluated(model, inputs, network.constants), strict=True))


def check_meaning(model: onnx.ModelProto, **sizes: int) -> OnnxProgram:
    """Assert that the program computes the same as the model for random inputs. Return the program."""
    network = network_here(model, **sizes)
    program = onnx_program(network)
    inputs = random_inputs(network)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = program.model.run(inputs | constants(model, network, inputs))
    wanted = evaluated(model, inputs, network.outputs)
    for (piece, array), right in zip(found, wanted, strict=True):
        assert array.shape == right.shape, piece.name
        assert array.dtype == right.dtype, piece.name
        np.testing.assert_allclose(array, right, rtol=2e-5, atol=2e-5, err_msg=piece.name)
    return program
