"""Operators that use a PyTorch kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Meaning, Tensor, Tensors, gradient_of
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.arrays import rounded, wide
from tessel_core.ir.operators.attributes import integer, integers
from tessel_core.ir.operators.normalization import NORM_EPSILON
from tessel_core.ir.operators.operator import Values
from tessel_core.ir.operators.windows import with_pads, without_pads


def _of_each(function: Callable[[Tensor], Tensor]) -> Meaning:
    return rounded(lambda x, values: function(x))


_FUNCTIONS: dict[str, Meaning] = {
    "gelu": _of_each(partial(functional.gelu, approximate="tanh")),
    "gelu_erf": _of_each(functional.gelu),
    "silu": _of_each(functional.silu),
}


@rounded
def _layer_norm(x: Tensor, scale: Tensor, shift: Tensor, values: Values) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], scale, shift, NORM_EPSILON)


def _layer_norm_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    """Return the gradients of input, scale and shift.  They do not depend on the value of the shift."""
    x, scale, dz = tensors
    return gradient_of(_layer_norm)([x, scale, torch.zeros_like(scale), dz], values)


def _cross_entropy(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    logits, targets, count = tensors
    log_probability = torch.log_softmax(wide(logits), -1).gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    return [(-log_probability / count).to(logits.dtype)]


def _cross_entropy_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    logits, targets, count = tensors
    slope = torch.softmax(wide(logits), -1)
    hit = targets.long().unsqueeze(-1)
    slope.scatter_add_(-1, hit, torch.full_like(hit, -1, dtype=slope.dtype))
    return [(slope / count).to(logits.dtype)]


_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


@rounded
def _conv(x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    *bias, values = rest
    steps = {"stride": integers(values, "strides"), "dilation": integers(values, "dilations")}
    return _CONVOLUTIONS[w.ndim - 2](with_pads(x, values), w, *bias, **steps, groups=integer(values, "groups"))


def _slopes(x: Tensor, w: Tensor, dz: Tensor, values: Values, wanted: tuple[bool, bool]) -> list[Tensor]:
    """Return the gradients of a convolution's input and kernel; `wanted` says which of them to compute."""
    none, groups = [0] * (w.ndim - 2), integer(values, "groups")
    steps = integers(values, "strides"), none, integers(values, "dilations"), False, none, groups
    gradients = torch.ops.aten.convolution_backward(dz, with_pads(x, values), w, None, *steps, [*wanted, False])
    return [without_pads(gradients[0], x.shape[2:], values) if wanted[0] else None, gradients[1]]


@rounded
def _conv_input_grad(w: Tensor, dz: Tensor, values: Values) -> Tensor:
    shape = len(dz), integer(values, "groups") * w.shape[1], *integers(values, "sizes")
    return _slopes(dz.new_zeros(()).expand(shape), w, dz, values, (True, False))[0]


@rounded
def _conv_weight_grad(x: Tensor, dz: Tensor, values: Values) -> Tensor:
    shape = dz.shape[1], x.shape[1] // integer(values, "groups"), *integers(values, "kernel")
    return _slopes(x, dz.new_zeros(()).expand(shape), dz, values, (False, True))[1]


def _with_kernel(kind: str, kernel: Meaning) -> Meaning:
    """Use `kernel` for one to three spatial axes, and the operator's definition otherwise."""

    def meaning(tensors: Tensors, values: Values) -> Sequence[Tensor]:
        has_kernel = tensors[0].ndim - 2 in _CONVOLUTIONS
        return (kernel if has_kernel else find_operator(kind).compute)(tensors, values)

    return meaning


KERNELS: dict[str, Meaning] = {
    "cast": lambda tensors, values: [tensors[0].to(TORCH_TYPES[str(values["dtype"])], copy=True)],
    **_FUNCTIONS,
    **{f"{kind}_grad": gradient_of(meaning) for kind, meaning in _FUNCTIONS.items()},
    "layer_norm": _layer_norm,
    "layer_norm_grad": _layer_norm_grad,
    "cross_entropy": _cross_entropy,
    "cross_entropy_grad": _cross_entropy_grad,
    "conv": _with_kernel("conv", _conv),
    "conv_grad": _with_kernel(
        "conv_grad", rounded(lambda x, w, dz, values: tuple(_slopes(x, w, dz, values, (True, True))))
    ),
    "conv_input_grad": _with_kernel("conv_input_grad", _conv_input_grad),
    "conv_weight_grad": _with_kernel("conv_weight_grad", _conv_weight_grad),
}
