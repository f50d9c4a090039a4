"""The halves of a transformer layer, split over devices as Megatron does [Shoeybi 2019, section 3].

Heads and the width of the MLP are divided; a sum over the devices ends each half.
"""

from __future__ import annotations

from tessel_core.networks.graphs.builder import GraphBuilder, Tensor
from tessel_core.networks.graphs.operations import add, all_reduce, attention, gelu, layer_norm, linear
from tessel_core.networks.graphs.spec import check_divides


def check_heads(hidden: int, heads: int, split: int) -> None:
    """Raise InputError unless heads divide the hidden size, and devices the heads."""
    check_divides("the hidden size", hidden, "Heads", heads)
    check_divides("the number of heads", heads, "Tensor-parallel degree", split)


def transformer_layer(b: GraphBuilder, x: Tensor, heads: int, split: int, *, causal: bool = False) -> Tensor:
    """Pre-norm, with biases, and an MLP of 4 x hidden; x is (batch, tokens, hidden)."""
    with b.inside("attention"):
        y = layer_norm(b, "norm", x)
        qkv = linear(b, "qkv", y, 3 * x.channels // split)
        shape = (*x.shape[:-1], x.channels // split)
        y = attention(b, "core", (qkv,), shape, heads // split, x.shape[-2], causal=causal)
        y = all_reduce(b, "all_reduce", linear(b, "projection", y, x.channels), split)
        x = add(b, "add", x, y)
    return mlp(b, x, 4 * x.channels, split)


def mlp(b: GraphBuilder, x: Tensor, inner: int, split: int) -> Tensor:
    """Norm, two products with a GELU between them, sum."""
    with b.inside("mlp"):
        y = gelu(b, "gelu", linear(b, "up", layer_norm(b, "norm", x), inner // split))
        y = all_reduce(b, "all_reduce", linear(b, "down", y, x.channels), split)
        return add(b, "add", x, y)
