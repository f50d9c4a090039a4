"""Tensors of ONNX models: shapes, bits per element, and the elements of small constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

if TYPE_CHECKING:
    import onnx


Shape = tuple[int, ...]

_BITS = {
    "COMPLEX128": 128,
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 64),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("INT8", "UINT8", "BOOL"), 8),
    **dict.fromkeys(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"), 8),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("INT2", "UINT2"), 2),
}
"""Bits per element of each TensorProto.DataType.  Formats of less than a byte are packed."""
_FORMATS = {"DOUBLE": "fp64", "FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}
"""Names that this library uses for number formats. Other formats have their ONNX name in lower case."""
_MAX_AXES = 64


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's number format (fp32, int64, bool, int4 …), shape, and size in bytes, rounded up."""

    dtype: str
    shape: Shape
    bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def tensor(name: str, element: int, shape: Shape) -> Tensor:
    """Return a tensor whose element type is number `element` of TensorProto.DataType.

    Raises InputError for text and unknown types, a negative size, and too many axes or elements.
    """
    from onnx import TensorProto

    where = f"tensor {name}"
    known = TensorProto.DataType.values()
    kind = TensorProto.DataType.Name(element) if element in known else f"number {element}"
    if kind not in _BITS:
        raise InputError(where, f"has elements of type {kind}, which are not supported")
    if len(shape) > _MAX_AXES:
        raise InputError(where, f"has {len(shape)} axes, more than the {_MAX_AXES} allowed")
    if any(size < 0 for size in shape):
        raise InputError(where, f"has a negative size: {list(shape)}")
    if math.prod(shape) > MAGNITUDE:
        raise InputError(where, "has more than 2^53 elements")
    return Tensor(_FORMATS.get(kind, kind.lower()), shape, -(-math.prod(shape) * _BITS[kind] // 8))


def tensor_of_type(name: str, kind: onnx.TypeProto) -> Tensor | None:
    """Return a tensor of this type; None if its shape, or a size in it, is unknown."""
    what = kind.WhichOneof("value")
    if what in ("sequence_type", "map_type", "optional_type", "opaque_type"):
        raise InputError(f"tensor {name}", f"is a {what.removesuffix('_type')}, but only tensors can be read")
    if what is None or what == "sparse_tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    if not kind.tensor_type.elem_type or not all(size.HasField("dim_value") for size in sizes):
        return None
    return tensor(name, kind.tensor_type.elem_type, tuple(size.dim_value for size in sizes))


Value = NDArray[np.generic]

MAX_KNOWN_ELEMENTS = 1024
"""Largest constant whose elements are read.  Shapes, lists of axes and paddings are smaller."""
SHAPE_ARITHMETIC = frozenset(
    (
        *("Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Flatten"),
        *("Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less"),
        *("LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "ReduceMax"),
        *("ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Sign"),
        *("Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators with which exporters compute shapes.  No others are evaluated: the evaluator is slow on wrong indices."""


def value_of(tensor: onnx.TensorProto) -> Value | None:
    """Return the elements of a small constant; None if it is large or its data was left out.

    Raises InputError if data and shape do not fit each other.
    """
    from onnx import numpy_helper

    elements = math.prod(tensor.dims)
    held = tensor.raw_data or tensor.float_data or tensor.int32_data or tensor.int64_data
    held = held or tensor.double_data or tensor.uint64_data
    if not 0 <= elements <= MAX_KNOWN_ELEMENTS or (elements and not held):
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        raise InputError(f"tensor {tensor.name}", f"its data does not fit its shape {list(tensor.dims)}") from None


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto:
    """Return the tensor of a Constant node.

    Raises InputError for text, and if the node contains no value or several.
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
    """Return a dense tensor with the shape and type of a sparse one, without data."""
    from onnx import TensorProto

    return TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)


def shape_value(node: onnx.NodeProto, shape: Shape) -> Value:
    """Return the output of a Shape or Size node for a tensor of this shape."""
    if node.op_type == "Size":
        return np.array(np.prod(shape, dtype=np.int64))
    limits = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], dtype=np.int64)


def evaluate(node: onnx.NodeProto, known: Mapping[str, Value], opset: int) -> tuple[Value, ...] | None:
    """Compute the outputs of a node from its known inputs; None if the reference evaluator cannot."""
    from onnx import ValueInfoProto, helper
    from onnx.reference import ReferenceEvaluator

    feeds = {name: known[name] for name in node.input if name}
    inputs, outputs = ([ValueInfoProto(name=name) for name in names if name] for names in (feeds, node.output))
    graph = helper.make_graph([node], "one node", inputs, outputs)
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    # The evaluator's operators raise different exceptions for unexpected attributes or types.
    except Exception:
        return None
    values = tuple(np.asarray(each) for each in results)
    return values if all(each.dtype.kind in "biuf" for each in values) else None
