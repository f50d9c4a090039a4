"""Number formats in PyTorch, and conversion from and to NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from tessel_core.ir.operators.arrays import NUMPY_TYPES, in_format, wide
from tessel_core.ir.operators.operator import Array, Compute, Values
from tessel_core.torch_extra import TORCH_NAMES

Tensor: TypeAlias = Any
"""torch.Tensor. The type is Any, so that type checks work without PyTorch."""
Tensors = Sequence[Tensor]
Meaning = Compute
"""Function from input tensors of one device and attributes to the output tensors."""

TORCH_TYPES: dict[str, Any] = {name: getattr(torch, torch_name) for name, torch_name in TORCH_NAMES.items()}
"""PyTorch dtypes by the names of number formats in programs."""


def from_numpy(array: Array, dtype: str, place: Any = "cpu") -> Tensor:
    """Copy an array into a new tensor of the given format and device."""
    whole: Array = np.array(array, NUMPY_TYPES[dtype], order="C")
    return torch.from_numpy(whole).to(device=place, dtype=TORCH_TYPES[dtype])


def to_numpy(tensor: Tensor) -> Array:
    """Convert a tensor to an array; bf16 becomes fp32."""
    on_cpu = tensor.detach().cpu()
    array: Array = (on_cpu.float() if on_cpu.dtype is torch.bfloat16 else on_cpu).numpy()
    return array


def gradient_of(meaning: Meaning) -> Meaning:
    """Return the gradient of an operator with one output with respect to all inputs, computed by autograd.

    The returned function takes the inputs and the gradient of the output. It computes in fp32 or a wider format, and
    rounds the result once.
    """

    def gradient(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        *given, dz = tensors
        leaves = [wide(each).detach().requires_grad_() for each in given]
        with torch.enable_grad():
            (made,) = meaning(leaves, values)
        gradients = torch.autograd.grad(made, leaves, wide(dz))
        return [in_format(each, like) for each, like in zip(gradients, given, strict=True)]

    return gradient
