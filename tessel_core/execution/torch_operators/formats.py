"""Formats of numbers in PyTorch, and the way there and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from tessel_core.ir.operators.operator import NUMPY_TYPES, Array, Compute, Values, in_format, wide
from tessel_core.torch_extra import TORCH_NAMES

Tensor: TypeAlias = Any
"""torch.Tensor, which is looked at with PyTorch installed or not."""
Tensors = Sequence[Tensor]
Meaning = Compute
"""The outputs, from input tensors of one device and the attributes."""

TORCH_TYPES: dict[str, Any] = {name: getattr(torch, theirs) for name, theirs in TORCH_NAMES.items()}
"""PyTorch's number formats by our names."""


def from_numpy(array: Array, dtype: str, place: Any = "cpu") -> Tensor:
    """A tensor of its own memory in that format."""
    whole: Array = np.array(array, NUMPY_TYPES[dtype], order="C")
    return torch.from_numpy(whole).to(device=place, dtype=TORCH_TYPES[dtype])


def to_numpy(tensor: Tensor) -> Array:
    """The same numbers; bf16 as fp32."""
    here = tensor.detach().cpu()
    found: Array = (here.float() if here.dtype is torch.bfloat16 else here).numpy()
    return found


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
        return [in_format(each, like) for each, like in zip(found, given, strict=True)]

    return gradient
