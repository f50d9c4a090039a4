"""What is known of a tensor: its shape and how many bits an element takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]

_BITS = {
    **dict.fromkeys(("COMPLEX128",), 128),
    **dict.fromkeys(("DOUBLE", "INT64", "UINT64", "COMPLEX64"), 64),
    **dict.fromkeys(("FLOAT", "INT32", "UINT32"), 32),
    **dict.fromkeys(("FLOAT16", "BFLOAT16", "INT16", "UINT16"), 16),
    **dict.fromkeys(("INT8", "UINT8", "BOOL"), 8),
    **dict.fromkeys(("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"), 8),
    **dict.fromkeys(("INT4", "UINT4", "FLOAT4E2M1"), 4),
    **dict.fromkeys(("INT2", "UINT2"), 2),
}
"""Per name of a TensorProto.DataType; small ones are packed."""
_FORMATS = {"DOUBLE": "fp64", "FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}
"""What number formats are called elsewhere; others by their name in lower case."""
_MOST_AXES = 64


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and type of element; `bytes` rounds up to whole bytes."""

    shape: Shape
    bits: int
    is_float: bool
    dtype: str
    """fp32, int64, bool …"""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return -(-self.elements * self.bits // 8)


def tensor(name: str, element: int, shape: Shape) -> Tensor:
    """A tensor whose element is number `element` of TensorProto.DataType.

    Raises
    ------
    InputError
        For text and unknown types, a negative size, and more axes or elements than are counted.
    """
    from onnx import TensorProto

    where = f"tensor {name}"
    known = TensorProto.DataType.values()
    kind = TensorProto.DataType.Name(element) if element in known else f"number {element}"
    if kind not in _BITS:
        raise InputError(where, f"has elements of type {kind}, which has no size")
    if len(shape) > _MOST_AXES:
        raise InputError(where, f"has {len(shape)} axes, more than the {_MOST_AXES} allowed")
    if any(size < 0 for size in shape):
        raise InputError(where, f"has a negative size: {list(shape)}")
    found = Tensor(shape, _BITS[kind], "FLOAT" in kind or kind == "DOUBLE", _FORMATS.get(kind, kind.lower()))
    if found.elements > MAGNITUDE:
        raise InputError(where, "has more than 2^53 elements")
    return found


def tensor_of_type(name: str, kind: onnx.TypeProto) -> Tensor | None:
    """A tensor of this type; None where its shape, or a size in it, is not known."""
    what = kind.WhichOneof("value")
    if what in ("sequence_type", "map_type", "optional_type", "opaque_type"):
        raise InputError(f"tensor {name}", f"is of a {what.removesuffix('_type')} type, only tensors are read")
    if what is None or what == "sparse_tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    if not kind.tensor_type.elem_type or not all(size.HasField("dim_value") for size in sizes):
        return None
    return tensor(name, kind.tensor_type.elem_type, tuple(size.dim_value for size in sizes))
