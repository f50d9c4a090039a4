"""ONNX models of one node, at least one for every rule that translates nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from helpers.onnx_models import INT64, Writer, takes

NEWEST = onnx.defs.onnx_opset_version()
BOOL = TensorProto.BOOL
Given = tuple[Any, ...]


def node(op_type: str, *inputs: Any, outputs: int = 1, opset: int = NEWEST, **rest: Any) -> onnx.ModelProto:
    """Return a model of one node. An input is a shape, a shape with a type, an array (a constant) or None."""
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
    *((each, ((2, 3),), {}) for each in ("Sqrt", "Log")),  # NaN for negative numbers
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
"""(operator, inputs, attributes), with `opset` and number of `outputs` if they differ from the defaults."""
