"""Functions of arrays that NumPy and PyTorch share, and conversion between number formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tessel_core.ir.operators.operator import Array, Arrays, Compute, Values
from tessel_core.torch_extra import TORCH_NAMES

NUMPY_TYPES = {
    "fp64": np.float64,
    "fp32": np.float32,
    "tf32": np.float32,
    "bf16": np.float32,
    "fp16": np.float16,
    "int64": np.int64,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "uint64": np.uint64,
    "uint32": np.uint32,
    "uint16": np.uint16,
    "uint8": np.uint8,
    "bool": np.bool_,
}
"""NumPy type in which each format is computed. NumPy has no bf16, so bf16 is computed in fp32."""


def _in_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray | np.generic)


def namespace(array: Array) -> Any:
    """Return the array's library, as a module with the functions of the Array API standard."""
    if _in_numpy(array):
        return np
    from array_api_compat import array_namespace  # PyTorch is optional (the extra `torch`).

    return array_namespace(array)


def in_format(array: Array, like: Array) -> Array:
    """Return the array in the number format of `like`."""
    return np.asarray(array).astype(like.dtype) if _in_numpy(like) else array.to(like.dtype)


def in_dtype(array: Array, dtype: str) -> Array:
    """Return the array in the number format called `dtype`."""
    if _in_numpy(array):
        return np.asarray(array).astype(NUMPY_TYPES[dtype])
    return array.to(getattr(namespace(array), TORCH_NAMES[dtype]))


def wide(array: Array) -> Array:
    """Return the array in fp32, or unchanged if its format is wider. Sums are computed in this format."""
    if _in_numpy(array):
        return array.astype(np.result_type(array.dtype, np.float32), copy=False)
    if not array.is_floating_point():
        return array.double()
    return array.float() if array.itemsize < 4 else array


def copied(array: Array) -> Array:
    """Return a copy of the array in row-major order."""
    return namespace(array).reshape(array, array.shape, copy=True)


def parts_of(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Return views of consecutive parts along an axis. `sizes` are their lengths."""
    ends = list(accumulate(sizes))
    before = (slice(None),) * axis
    return [array[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def equal_parts(array: Array, parts: int, axis: int) -> list[Array]:
    """Return views of `parts` equal parts along an axis. `parts` must divide its length."""
    return parts_of(array, (array.shape[axis] // parts,) * parts, axis)


def summed_rows(rows: Array, places: Array, size: int) -> Array:
    """Add each row of `rows` [n, ..] to the row `places[i]` of the result. Return the result, [size, ..]."""
    if not _in_numpy(rows):
        return rows.new_zeros((size, *rows.shape[1:])).index_add_(0, places, rows)
    found = np.zeros((size, *rows.shape[1:]), rows.dtype)
    np.add.at(found, places, rows)
    return found


def rounded(function: Callable[..., Array | tuple[Array, ...]]) -> Compute:
    """Return a `Compute` that works in at least fp32 and rounds once, to the format of the first input.

    `function` gets the arrays in at least fp32, then the attributes. It returns one array, or a tuple of several.
    """

    def compute(arrays: Arrays, values: Values) -> Sequence[Array]:
        found = function(*map(wide, arrays), values)
        return [in_format(each, arrays[0]) for each in (found if isinstance(found, tuple) else (found,))]

    return compute
