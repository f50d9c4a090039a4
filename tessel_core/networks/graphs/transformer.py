"""The halves of a transformer layer, split over devices as Megatron does [Shoeybi 2019, section 3].

Heads and the width of the MLP are divided; a sum over the devices ends each half.
"""

from __future__ import annotations

from tessel_core.networks.graphs.builder import GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import check_divides


def check_heads(hidden: int, heads: int, split: int) -> None:
    """Raise InputError unless heads divide the hidden size, and devices the heads."""
    check_divides("the hidden size", hidden, "Heads", heads)
    check_divides("the number of heads", heads, "Tensor-parallel degree", split)


def transformer_layer(b: GraphBuilder, x: Tensor, heads: int, split: int, *, causal: bool = False) -> Tensor:
    """Pre-norm, with biases, and an MLP of 4 x hidden; x is (batch, tokens, hidden)."""
    with b.inside("attention"):
        y = b.layer_norm("norm", x)
        qkv = b.linear("qkv", y, 3 * x.channels // split)
        shape = (*x.shape[:-1], x.channels // split)
        y = b.attention("core", (qkv,), shape, heads // split, x.shape[-2], causal=causal)
        x = b.residual(x, "projection", y, split)
    return mlp(b, x, 4 * x.channels, split)


def mlp(b: GraphBuilder, x: Tensor, inner: int, split: int) -> Tensor:
    """Norm, two products with a GELU between them, sum."""
    with b.inside("mlp"):
        y = b.gelu("gelu", b.linear("up", b.layer_norm("norm", x), inner // split))
        return b.residual(x, "down", y, split)
