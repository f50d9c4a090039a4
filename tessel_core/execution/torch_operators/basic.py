"""Copies, sums, splits and products."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessel_core.execution.torch_operators.formats import Meaning, Tensor, Tensors, rounded
from tessel_core.ir.operators.attributes import axis_of, integer, number
from tessel_core.ir.operators.operator import Values


def _concat(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [torch.cat(list(tensors), dim=axis_of(values, tensors[0].ndim))]


def _parts(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    """Looks at the equal parts."""
    return list(tensors[0].tensor_split(integer(values, "parts"), dim=axis_of(values, tensors[0].ndim)))


def _split(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [each.clone() for each in _parts(tensors, values)]


def _slice(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [_parts(tensors, values)[integer(values, "index")]]


def _part(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    return [_slice(tensors, values)[0].clone()]


def _matmul_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, y, dz = tensors
    if y.ndim > 2:
        return dz @ y.transpose(-1, -2), x.transpose(-1, -2) @ dz
    rows, ups = (each.reshape(-1, each.shape[-1]) if each.numel() else each.flatten(0, -2) for each in (x, dz))
    return dz @ y.T, rows.T @ ups


def _matmul_weight_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    pair = (tensors[0], tensors[2])
    rows, ups = (each.reshape(-1, each.shape[-1]) if each.numel() else each.flatten(0, -2) for each in pair)
    return [rows.T @ ups]


def _gemm(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    a, b = (each.T if values[name] else each for each, name in zip(tensors, ("trans_a", "trans_b"), strict=False))
    made = number(values, "alpha") * (a @ b)
    if len(tensors) > 2:
        made = made + number(values, "beta") * tensors[2]
    return [made.to(tensors[0].dtype)]


@rounded
def _bias_grad(dz: Tensor, values: Values) -> Tensor:
    return dz.sum(dim=tuple(range(dz.ndim - integer(values, "axes", 1))))


def _relu_grad(tensors: Tensors, values: Values) -> Sequence[Tensor]:
    x, dz = tensors
    return [torch.where(x > 0, dz, torch.zeros_like(dz))]


BASIC: dict[str, Meaning] = {
    "identity": lambda tensors, values: [tensors[0].clone()],
    "add": lambda tensors, values: [tensors[0] + tensors[1]],
    "accumulate": lambda tensors, values: [tensors[0].add_(tensors[1])],
    "after": lambda tensors, values: [tensors[0]],
    "concat": _concat,
    "split": _split,
    "chunk": _split,
    "part": _part,
    "slice": _slice,
    "matmul": lambda tensors, values: [tensors[0] @ tensors[1]],
    "matmul_transposed": lambda tensors, values: [tensors[0] @ tensors[1].T],
    "matmul_transposed_grad": lambda tensors, values: [
        tensors[2] @ tensors[1],
        *_matmul_weight_grad((tensors[2], tensors[1], tensors[0]), values),
    ],
    "matmul_grad": _matmul_grad,
    "matmul_input_grad": lambda tensors, values: [tensors[1] @ tensors[0].T],
    "matmul_weight_grad": _matmul_weight_grad,
    "gemm": _gemm,
    "linear": lambda tensors, values: [tensors[0] @ tensors[1] + tensors[2]],
    "bias": lambda tensors, values: [tensors[0] + tensors[1]],
    "bias_grad": _bias_grad,
    "residual": lambda tensors, values: [tensors[0] + (tensors[1] + tensors[2])],
    "relu": lambda tensors, values: [torch.relu(tensors[0])],
    "relu_grad": _relu_grad,
    "loss": lambda tensors, values: [((tensors[0] - tensors[1]) ** 2 / tensors[2]).to(tensors[0].dtype)],
    "loss_grad": lambda tensors, values: [(2 * (tensors[0] - tensors[1]) / tensors[2]).to(tensors[0].dtype)],
}
