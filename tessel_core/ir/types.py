"""Types of values: a number format, a shape, and the device that holds the tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

WIDTHS = {
    **{"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1},
}
"""Bytes of one number in each format."""

REAL = ("fp64", "fp32", "tf32", "bf16", "fp16")
"""Formats of real numbers."""

HOST = 0
"""The device that feeds the others; workers are 1 … W."""

_INTEGER = {int}


def check_real(dtype: str) -> None:
    """InputError for what is no format of real numbers."""
    if dtype not in REAL:
        raise InputError("dtype", f"must be one of {', '.join(REAL)}, got {dtype!r}")


@dataclass(frozen=True, slots=True)
class TensorType:
    """`fp16[256, 512]@1`: the dtype, the sizes along each axis, and the device.

    Raises InputError for an unknown dtype, a negative size or device.
    """

    dtype: str
    shape: tuple[int, ...]
    device: int

    def __post_init__(self) -> None:
        if self.dtype not in WIDTHS:
            raise InputError(f"type {self}", f"dtype must be one of {', '.join(WIDTHS)}")
        if not _INTEGER.issuperset(map(type, self.shape)) or min(self.shape, default=0) < 0:
            raise InputError(f"type {self}", "sizes must be whole numbers of at least 0")
        if self.device < 0:
            raise InputError(f"type {self}", "devices are numbered from 0")
        if self.bytes > MAGNITUDE:
            raise InputError(f"type {self}", "takes more than 2^53 bytes")

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * WIDTHS[self.dtype]

    def on(self, device: int) -> TensorType:
        """The same tensor elsewhere."""
        return replace(self, device=device)

    def shaped(self, shape: tuple[int, ...]) -> TensorType:
        """Another shape in the same format on the same device."""
        return replace(self, shape=shape)

    def resized(self, axis: int, size: int) -> TensorType:
        """Another size along one axis."""
        return replace(self, shape=(*self.shape[:axis], size, *self.shape[axis + 1 :]))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]@{self.device}"


_known: dict[TensorType, TensorType] = {}


def interned(of_type: TensorType) -> TensorType:
    """The one object for all types that equal it, so that types can be compared by identity."""
    return _known.setdefault(of_type, of_type)


def places_here(tokens: int, index: int, parts: int, balanced: bool = False) -> NDArray[np.int64]:
    """The places, of a sequence cut into equal parts, of the `tokens` that part `index` has.

    With `balanced`, part i is chunks i and 2 parts - 1 - i of twice as many.

    >>> places_here(4, 1, 2, balanced=True).tolist()
    [2, 3, 4, 5]
    """
    if not balanced:
        return np.arange(tokens) + index * tokens
    half = tokens // 2
    return np.concatenate([np.arange(half) + chunk * half for chunk in (index, 2 * parts - 1 - index)])
