"""mT5: an encoder and a decoder that takes its output in every layer [Xue 2021]."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import IDS_WIDTH, GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.options import Option, option

_BUCKETS = 32
"""Distances that the relative position bias tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mt5Spec(GraphSpec):
    """Sizes of an mT5."""

    layers: int = option(12, Option("Layers", "Of the encoder, and as many of the decoder", 1, 1000))
    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Of each attention", 1, 1024))
    head_size: int = option(64, Option("Head size", "Channels of a head", 1, 1024))
    inner: int = option(2048, Option("MLP width", "Channels of the gated MLP", 1, 1_048_576))
    sequence: int = option(512, Option("Input length", "Tokens that the encoder reads", 1, 1_048_576))
    outputs: int = option(512, Option("Output length", "Tokens that the decoder reads and predicts", 1, 1_048_576))
    vocabulary: int = option(250_112, Option("Vocabulary", "Tokens there are", 2, 10_000_000))


def mt5(spec: Mt5Spec) -> OperatorGraph:
    """Without biases; the decoder has a copy of the input embedding that it shares in one process.

    The tables of relative position biases belong to the first layer of each stack, whose bias all its layers read.
    """
    check_divides("the number of heads", spec.heads, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the MLP width", spec.inner, "Tensor-parallel degree", spec.tensor_parallel)
    b = GraphBuilder(spec.dtype)
    x = _embedding(b, "encoder_embedding", spec, spec.sequence)
    for layer in range(spec.layers):
        with b.inside(f"encoder{layer}"):
            x = _mlp(b, _self_attention(b, x, spec, first=layer == 0, causal=False), spec)
    with b.inside("encoder_end"):
        encoded = b.rms_norm("norm", x)
    y = _embedding(b, "decoder_embedding", spec, spec.outputs)
    for layer in range(spec.layers):
        with b.inside(f"decoder{layer}"):
            y = _self_attention(b, y, spec, first=layer == 0, causal=True)
            y = _mlp(b, _cross_attention(b, y, encoded, spec), spec)
    with b.inside("head"):
        rows = ceil(spec.vocabulary / spec.tensor_parallel)
        logits = b.linear("projection", b.rms_norm("norm", y), rows, bias=False)
        if spec.training:
            b.cross_entropy("loss", logits)
    return b.graph("mt5", spec.micro_batch)


def _embedding(b: GraphBuilder, name: str, spec: Mt5Spec, tokens: int) -> Tensor:
    with b.inside(name):
        ids = b.input(name, spec.micro_batch, tokens, width=IDS_WIDTH)
        x = b.embedding("tokens", ids, ceil(spec.vocabulary / spec.tensor_parallel), spec.hidden)
        return b.all_reduce("all_reduce", x, spec.tensor_parallel)


def _self_attention(b: GraphBuilder, x: Tensor, spec: Mt5Spec, *, first: bool, causal: bool) -> Tensor:
    heads = spec.heads // spec.tensor_parallel
    with b.inside("attention"):
        qkv = b.linear("qkv", b.rms_norm("norm", x), 3 * heads * spec.head_size, bias=False)
        shape = (*x.shape[:-1], heads * spec.head_size)
        table = _BUCKETS * heads if first else 0
        y = b.attention("core", (qkv,), shape, heads, x.shape[-2], causal=causal, table=table)
        return b.residual(x, "projection", y, spec.tensor_parallel, bias=False)


def _cross_attention(b: GraphBuilder, y: Tensor, encoded: Tensor, spec: Mt5Spec) -> Tensor:
    """Queries of the decoder, keys and values of the encoder's output."""
    heads = spec.heads // spec.tensor_parallel
    inner = heads * spec.head_size
    with b.inside("cross"):
        queries = b.linear("queries", b.rms_norm("norm", y), inner, bias=False)
        pairs = b.linear("keys_values", encoded, 2 * inner, bias=False)
        mixed = b.attention("core", (queries, pairs), queries.shape, heads, encoded.shape[-2])
        return b.residual(y, "projection", mixed, spec.tensor_parallel, bias=False)


def _mlp(b: GraphBuilder, x: Tensor, spec: Mt5Spec) -> Tensor:
    """GELU of one product times another."""
    inner = spec.inner // spec.tensor_parallel
    with b.inside("mlp"):
        y = b.rms_norm("norm", x)
        gate = b.gelu("gelu", b.linear("gate", y, inner, bias=False))
        gated = b.multiply("gated", gate, b.linear("up", y, inner, bias=False))
        return b.residual(x, "projection", gated, spec.tensor_parallel, bias=False)


MT5 = GraphFamily(
    "mt5",
    "mT5",
    "Xue et al., mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer, NAACL 2021, arXiv 2010.11934",
    Mt5Spec,
    {
        "mt5-small": Mt5Spec(layers=8, hidden=512, heads=6, inner=1024),
        "mt5-base": Mt5Spec(),
        "mt5-large": Mt5Spec(layers=24, hidden=1024, heads=16, inner=2816),
        "mt5-xl": Mt5Spec(layers=24, hidden=2048, heads=32, inner=5120),
        "mt5-xxl": Mt5Spec(layers=24, hidden=4096, heads=64, inner=10_240),
    },
    mt5,
)
