"""Types of values: number format, shape, and the device that holds the tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

WIDTHS = {
    **{"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1},
}
"""Size in bytes of one number of each format."""

REAL = ("fp64", "fp32", "tf32", "bf16", "fp16")
"""Floating-point formats."""

HOST = 0
"""Number of the device that feeds the workers. The workers are numbered from 1."""

_INTEGER = {int}


def check_real(dtype: str) -> None:
    """Raise InputError if `dtype` is not a floating-point format."""
    if dtype not in REAL:
        raise InputError("dtype", f"must be one of {', '.join(REAL)}, got {dtype!r}")


def wide_format(dtype: str) -> str:
    """Return the format in which sums of numbers of a floating-point format are kept."""
    return "fp64" if dtype == "fp64" else "fp32"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Number format, size along each axis, and device of a tensor, written `fp16[256, 512]@1`.

    Raises InputError for an unknown dtype, or a negative size or device.
    """

    dtype: str
    shape: tuple[int, ...]
    device: int
    bytes: int = field(init=False, repr=False, compare=False)
    """Size in bytes."""

    def __post_init__(self) -> None:
        if self.dtype not in WIDTHS:
            raise InputError(f"type {self}", f"dtype must be one of {', '.join(WIDTHS)}")
        if not _INTEGER.issuperset(map(type, self.shape)) or min(self.shape, default=0) < 0:
            raise InputError(f"type {self}", "sizes must be whole numbers of at least 0")
        if self.device < 0:
            raise InputError(f"type {self}", "device must be at least 0")
        object.__setattr__(self, "bytes", math.prod(self.shape) * WIDTHS[self.dtype])
        if self.bytes > MAGNITUDE:
            raise InputError(f"type {self}", "has more than 2^53 bytes")

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def on(self, device: int) -> TensorType:
        """Return the same type on device `device`."""
        return TensorType(self.dtype, self.shape, device)

    def shaped(self, shape: tuple[int, ...]) -> TensorType:
        """Return the same type with another shape."""
        return TensorType(self.dtype, shape, self.device)

    def resized(self, axis: int, size: int) -> TensorType:
        """Return the same type with another size along one axis."""
        return self.shaped((*self.shape[:axis], size, *self.shape[axis + 1 :]))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]@{self.device}"


_known: dict[TensorType, TensorType] = {}


def interned(of_type: TensorType) -> TensorType:
    """Return the shared object that equals this type. Shared types can be compared with `is`."""
    return _known.setdefault(of_type, of_type)


def places_here(tokens: int, index: int, parts: int, balanced: bool = False) -> NDArray[np.int64]:
    """Return the positions in a sequence of the tokens that part `index` of `parts` equal parts holds.

    `tokens` is the number of tokens of one part. With `balanced`, the sequence has 2 * parts chunks, and part i holds
    chunks i and 2 * parts - 1 - i.

    >>> places_here(4, 1, 2, balanced=True).tolist()
    [2, 3, 4, 5]
    """
    if not balanced:
        return np.arange(tokens) + index * tokens
    half = tokens // 2
    return np.concatenate([np.arange(half) + chunk * half for chunk in (index, 2 * parts - 1 - index)])
