"""Formats of numbers in PyTorch, and the way there and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from tessel_core.ir.operators.operator import NUMPY_TYPES, Array, Values

Tensor: TypeAlias = Any
"""torch.Tensor, which is looked at with PyTorch installed or not."""
Tensors = Sequence[Tensor]
Meaning = Callable[[Tensors, Values], Sequence[Tensor]]
"""The outputs, from input tensors of one device and the attributes."""

TORCH_TYPES: dict[str, Any] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
"""How each format is computed; what is not here has no arithmetic in PyTorch."""


def from_numpy(array: Array, dtype: str, place: Any = "cpu") -> Tensor:
    """A tensor of its own memory in that format."""
    whole: Array = np.array(array, NUMPY_TYPES[dtype], order="C")
    return torch.from_numpy(whole).to(device=place, dtype=TORCH_TYPES[dtype])


def to_numpy(tensor: Tensor) -> Array:
    """The same numbers; bf16 as fp32."""
    here = tensor.detach().cpu()
    found: Array = (here.float() if here.dtype is torch.bfloat16 else here).numpy()
    return found


def wide(tensor: Tensor) -> Tensor:
    """The tensor in at least fp32, in which narrow formats are summed; whole numbers as fp64."""
    if tensor.dtype in (torch.float32, torch.float64):
        return tensor
    return tensor.float() if tensor.is_floating_point() else tensor.double()


def rounded(function: Callable[..., Tensor | tuple[Tensor, ...]]) -> Meaning:
    """A meaning that is computed in at least fp32 and rounded once, to the format of the first input."""

    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        found = function(*map(wide, tensors), values)
        return [each.to(tensors[0].dtype) for each in (found if isinstance(found, tuple) else (found,))]

    return meaning


def gradient_of(meaning: Meaning) -> Meaning:
    """The gradient by all inputs of a meaning of one output, by autograd; takes the inputs and the output's gradient.

    It is computed in at least fp32 and rounded once.
    """

    def gradient(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        *given, dz = tensors
        leaves = [wide(each).detach().requires_grad_() for each in given]
        with torch.enable_grad():
            (made,) = meaning(leaves, values)
        found = torch.autograd.grad(made, leaves, wide(dz))
        return [each.to(like.dtype) for each, like in zip(found, given, strict=True)]

    return gradient


def of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Meaning:
    """A meaning of two tensors in the format of the first."""
    return lambda tensors, values: [function(*tensors).to(tensors[0].dtype)]
