"""PyTorch functions with the same meaning as our operators, which share no code with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

Tensor = Any
Values = dict[str, Any]


def _reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda values, x: function(x, values["axes"], keepdim=bool(values["keep"]))


def _product(values: Values, x: Tensor) -> Tensor:
    for axis in sorted((each % x.ndim for each in values["axes"]), reverse=True):
        x = x.prod(axis)
    return x


def _pads(values: Values) -> list[int]:
    """Return the argument of `pad`: before and after, from the last axis to the first."""
    pads, many = values["pads"], len(values["pads"]) // 2
    return [each for axis in reversed(range(many)) for each in (pads[axis], pads[many + axis])]


def _conv(values: Values, x: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
    padded, steps = F.pad(x, _pads(values)), (values["strides"], 0, values["dilations"], values["groups"])
    return F.conv2d(padded, w, bias[0] if bias else None, *steps)


def _max_pool(values: Values, x: Tensor) -> Tensor:
    padded = F.pad(x, _pads(values), value=-torch.inf)
    return F.max_pool2d(padded, values["kernel"], values["strides"], 0, values["dilations"])


def _average_pool(values: Values, x: Tensor) -> Tensor:
    """Return the average pool: a convolution with ones, divided by the number of elements."""
    steps = {"stride": values["strides"], "dilation": values["dilations"]}
    rows, kernel = x.flatten(0, 1)[:, None], x.new_ones((1, 1, *values["kernel"]))
    counted = F.pad(torch.ones_like(rows), _pads(values), value=float(values["count_pads"]))
    made = F.conv2d(F.pad(rows, _pads(values)), kernel, **steps) / F.conv2d(counted, kernel, **steps)
    return made.unflatten(0, x.shape[:2]).squeeze(2)


def _attention(values: Values, q: Tensor, k: Tensor, v: Tensor, *bias: Tensor) -> Tensor:
    q, k, v = (each.unflatten(2, (-1, values["head_size"])).transpose(1, 2) for each in (q, k, v))
    mask = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
    if values.get("causal"):
        mask = mask.masked_fill(~torch.ones_like(mask, dtype=torch.bool).tril(k.shape[2] - q.shape[2]), -torch.inf)
    for each in bias:
        mask = mask + each.repeat(len(q) // len(each), 1, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)


def _route(values: Values, logits: Tensor) -> tuple[Tensor, Tensor]:
    share, choice = torch.sigmoid(logits).topk(values["top"])
    return values["scale"] * share / share.sum(-1, keepdim=True), choice.int()


def _adam(values: Values, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the first step of `torch.optim.Adam` for weights without moments."""
    weights, gradients = tensors[: len(tensors) // 4], tensors[3 * (len(tensors) // 4) : -1]
    held = [each.clone().requires_grad_() for each in weights]
    for each, gradient in zip(held, gradients, strict=True):
        each.grad = gradient
    taken = torch.optim.Adam(held, values["rate"], (values["beta1"], values["beta2"]), values["epsilon"])
    taken.step()
    return tuple(each.detach() for each in held)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        kind: lambda values, x, kind=kind: getattr(torch, kind)(x)
        for kind in "tanh erf sqrt exp log abs sign floor ceil round sin cos reciprocal sigmoid neg".split()  # noqa: SIM905
    },
    "silu": lambda values, x: F.silu(x),
    "softplus": lambda values, x: F.softplus(x),
    "softsign": lambda values, x: F.softsign(x),
    "mish": lambda values, x: F.mish(x),
    "hard_swish": lambda values, x: F.hardswish(x),
    "gelu": lambda values, x: F.gelu(x, approximate="tanh"),
    "gelu_erf": lambda values, x: F.gelu(x),
    "relu": lambda values, x: F.relu(x),
    "leaky_relu": lambda values, x: F.leaky_relu(x, values["alpha"]),
    "elu": lambda values, x: F.elu(x, values["alpha"]),
    "clip": lambda values, x: torch.clamp(x, values["low"], values["high"]),
    "scale": lambda values, x: torch.mul(x, values["by"]),
    "add": lambda values, x, y: torch.add(x, y),
    "sub": lambda values, x, y: torch.sub(x, y),
    "mul": lambda values, x, y: torch.mul(x, y),
    "div": lambda values, x, y: torch.div(x, y),
    "max": lambda values, x, y: torch.maximum(x, y),
    "min": lambda values, x, y: torch.minimum(x, y),
    "pow": lambda values, x, y: torch.pow(x, y),
    "prelu": lambda values, x, slope: F.prelu(x, slope),
    "gate": lambda values, x, by: F.glu(torch.cat((x, by), -1)),
    "equal": lambda values, x, y: torch.eq(x, y),
    "greater": lambda values, x, y: torch.gt(x, y),
    "greater_or_equal": lambda values, x, y: torch.ge(x, y),
    "less": lambda values, x, y: torch.lt(x, y),
    "less_or_equal": lambda values, x, y: torch.le(x, y),
    "and": lambda values, x, y: torch.logical_and(x, y),
    "or": lambda values, x, y: torch.logical_or(x, y),
    "xor": lambda values, x, y: torch.logical_xor(x, y),
    "not": lambda values, x: torch.logical_not(x),
    "where": lambda values, *given: torch.where(*given),
    "softmax": lambda values, x: F.softmax(x, *values["axes"]),
    "log_softmax": lambda values, x: F.log_softmax(x, *values["axes"]),
    "reduce_sum": _reduced(torch.sum),
    "reduce_mean": _reduced(torch.mean),
    "reduce_max": _reduced(torch.amax),
    "reduce_min": _reduced(torch.amin),
    "reduce_prod": _product,
    "reduce_sum_square": lambda values, x: torch.linalg.vector_norm(x, 2, values["axes"]) ** 2,
    "reduce_l2": lambda values, x: torch.linalg.vector_norm(x, 2, values["axes"]),
    "layer_norm": lambda values, x, scale, shift: F.layer_norm(x, x.shape[-1:], scale, shift, 1e-5),
    "rms_norm": lambda values, x, scale: F.rms_norm(x, x.shape[-1:], scale, 1e-6),
    "batch_norm": lambda values, x, scale, shift, mean, variance: F.batch_norm(
        x, mean, variance, scale, shift, eps=values["epsilon"]
    ),
    "batch_norm_training": lambda values, x, scale, shift: F.batch_norm(
        x, None, None, scale, shift, training=True, eps=values["epsilon"]
    ),
    "matmul": lambda values, x, y: torch.matmul(x, y),
    "matmul_transposed": lambda values, x, w: F.linear(x, w),
    "linear": lambda values, x, w, b: F.linear(x, w.T, b),
    "conv": _conv,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_average_pool": lambda values, x: F.adaptive_avg_pool2d(x, 1),
    "global_max_pool": lambda values, x: F.adaptive_max_pool2d(x, 1),
    "embedding": lambda values, table, rows: F.embedding(rows, table),
    "loss": lambda values, x, target, many: F.mse_loss(x, target, reduction="none") / many,
    "cross_entropy": lambda values, x, target, many: F.cross_entropy(x, target.long(), reduction="none") / many,
    "attention": _attention,
    "attention_bias": _attention,
    "concat": lambda values, *given: torch.cat(given, values["axis"]),
    "split": lambda values, x: x.chunk(values["parts"], values["axis"]),
    "split_at": lambda values, x: x.split(values["sizes"], values["axis"]),
    "transpose": lambda values, x: torch.permute(x, values["axes"]),
    "expand": lambda values, x: torch.broadcast_to(x, torch.broadcast_shapes(x.shape, values["shape"])),
    "take": lambda values, x, places: x[places],
    "pad": lambda values, x: F.pad(x, _pads(values), value=values["value"]),
    "roll": lambda values, x: torch.roll(x, values["shifts"], values["axes"]),
    "route": _route,
    "adam": _adam,
}
"""Function by kind, of the attributes and tensors of its example."""
