"""Small constants that shapes are computed from: read from tensors, and computed as the nodes say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.formats.onnx.tensors import Shape

if TYPE_CHECKING:
    import onnx

Value = NDArray[np.generic]

MOST_KNOWN = 1024
"""Elements; a shape, a list of axes or a padding has fewer."""
SHAPE_ARITHMETIC = frozenset(
    (
        *("Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Flatten"),
        *("Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less"),
        *("LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "ReduceMax"),
        *("ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Sign"),
        *("Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
    )
)
"""What exporters compute shapes with; nothing else is evaluated: the evaluator is slow with wrong indices elsewhere."""


def value_of(tensor: onnx.TensorProto) -> Value | None:
    """The elements of a small constant; None for a large one, or one whose data was left behind.

    Raises
    ------
    InputError
        Where data and shape do not fit each other.
    """
    from onnx import numpy_helper

    elements = 1
    for size in tensor.dims:
        elements *= size
    held = tensor.raw_data or tensor.float_data or tensor.int32_data or tensor.int64_data
    held = held or tensor.double_data or tensor.uint64_data
    if not 0 <= elements <= MOST_KNOWN or (elements and not held):
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        raise InputError(f"tensor {tensor.name}", f"its data does not fit its shape {list(tensor.dims)}") from None


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto:
    """The tensor that a Constant node makes, large or small.

    Raises
    ------
    InputError
        For text, and where the node holds none or several.
    """
    from onnx import TensorProto, helper

    name = node.output[0] if node.output else ""
    if len(node.attribute) == 1:
        attribute = node.attribute[0]
        if attribute.name == "value":
            held: onnx.TensorProto = attribute.t
            return held
        if attribute.name == "sparse_value":
            return dense(attribute.sparse_tensor)
        if attribute.name in ("value_int", "value_ints"):
            numbers = [attribute.i] if attribute.name == "value_int" else list(attribute.ints)
            return helper.make_tensor(
                name, TensorProto.INT64, [len(numbers)][: attribute.name == "value_ints"], numbers
            )
        if attribute.name in ("value_float", "value_floats"):
            reals = [attribute.f] if attribute.name == "value_float" else list(attribute.floats)
            return helper.make_tensor(name, TensorProto.FLOAT, [len(reals)][: attribute.name == "value_floats"], reals)
    raise InputError(f"tensor {name}", "its Constant node must hold one tensor, number or list of numbers")


def dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """A sparse tensor's shape and type, as those of a dense one without its data."""
    from onnx import TensorProto

    return TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)


def shape_value(node: onnx.NodeProto, shape: Shape) -> Value:
    """What a Shape or a Size node makes of a tensor of this shape."""
    if node.op_type == "Size":
        return np.array(np.prod(shape, dtype=np.int64))
    limits = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], dtype=np.int64)


def evaluate(node: onnx.NodeProto, known: Mapping[str, Value], opset: int) -> tuple[Value, ...] | None:
    """The outputs of a node whose inputs are all known; None where the reference evaluator cannot tell."""
    from onnx import ValueInfoProto, helper
    from onnx.reference import ReferenceEvaluator

    feeds = {name: known[name] for name in node.input if name}
    inputs, outputs = ([ValueInfoProto(name=name) for name in names if name] for names in (feeds, node.output))
    graph = helper.make_graph([node], "one node", inputs, outputs)
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    # Each operator of the evaluator fails in its own way on attributes or types that it does not expect.
    except Exception:
        return None
    values = tuple(np.asarray(each) for each in found)
    return values if all(each.dtype.kind in "biuf" for each in values) else None
