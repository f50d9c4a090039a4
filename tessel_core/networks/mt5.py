"""mT5: an encoder, and a decoder in which every layer attends to the encoder's output [Xue 2021]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network, gated_mlp, unpacked
from tessel_core.options import Option, option

_BUCKETS = 32
"""Number of buckets in which the relative position bias groups distances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mt5Spec(GraphSpec):
    """Sizes of mT5."""

    layers: int = option(12, Option("Layers", "Layers of the encoder and of the decoder, each", 1, 1000))
    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Heads of each attention", 1, 1024))
    head_size: int = option(64, Option("Head size", "Channels per head", 1, 1024))
    inner: int = option(2048, Option("MLP width", "Channels of the gated MLP", 1, 1_048_576))
    sequence: int = option(512, Option("Input length", "Tokens that the encoder reads", 1, 1_048_576))
    outputs: int = option(512, Option("Output length", "Tokens that the decoder reads and predicts", 1, 1_048_576))
    vocabulary: int = option(250_112, Option("Vocabulary", "Number of different tokens", 2, 10_000_000))


def mt5(spec: Mt5Spec) -> Distributed:
    """Build the forward pass, in training with the cross entropy of every token, otherwise with the logits.

    Inputs are `encoder_tokens`, `decoder_tokens`, the bucket of each query's distance to each key (`encoder_buckets`,
    `decoder_buckets`) and the weights. There are no biases. Training adds the inputs `targets` and `n` (number of
    predictions in the whole batch).

    Encoder and decoder each have a copy of the input embedding, which mT5 shares. The first layer of each stack looks
    up the position bias, and all layers of the stack add it. Scores are divided by the square root of the head size. In
    mT5, the initial weights contain this factor instead.

    Raises InputError if the number of devices does not divide the heads, the hidden size or the MLP width.
    """
    check_divides("the number of heads", spec.heads, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the MLP width", spec.inner, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the hidden size", spec.hidden, "Tensor-parallel degree", spec.tensor_parallel)
    net = Network("mt5", spec.dtype)
    encoded = _encoder(net, spec)
    y = _decoder(net, spec, encoded)
    with net.layer("head", 2 * spec.layers - 1):
        y = net.rms_norm("norm", y)
        table = net.parameter("projection.weight", spec.hidden, spec.vocabulary, cut=0)
        logits = net("projection", "matmul", y, table)
        return net.finish({"loss": net.cross_entropy(logits)} if spec.training else {"logits": logits})


def _encoder(net: Network, spec: Mt5Spec) -> int:
    x, bias = _embedding(net, "encoder", spec, spec.sequence, 0), None
    for i in range(spec.layers):
        with net.layer(f"encoder{i}", i):
            x, bias = _self_attention(net, x, spec, "encoder", bias)
            x = _mlp(net, x, spec)
    with net.layer("encoder_end", spec.layers - 1):
        return net.rms_norm("norm", x)


def _decoder(net: Network, spec: Mt5Spec, encoded: int) -> int:
    y, bias = _embedding(net, "decoder", spec, spec.outputs, spec.layers), None
    for i in range(spec.layers):
        with net.layer(f"decoder{i}", spec.layers + i):
            y, bias = _self_attention(net, y, spec, "decoder", bias)
            y = _mlp(net, _cross_attention(net, y, encoded, spec), spec)
    return y


def _embedding(net: Network, stack: str, spec: Mt5Spec, tokens: int, layer: int) -> int:
    with net.layer(f"{stack}_embedding", layer):
        ids = net.ids(f"{stack}_tokens", spec.micro_batch, tokens)
        return net.embedding("tokens", ids, spec.vocabulary, spec.hidden, cut=True)


def _position_bias(net: Network, stack: str, tokens: int, heads: int) -> int:
    """Return the position bias for each head, query and key, [1, heads, tokens, tokens]."""
    buckets = net.ids(f"{stack}_buckets", tokens, tokens, role=Role())
    table = net.embedding("bias", buckets, _BUCKETS, heads, cut=True)
    return net("bias", "reshape", net("bias", "permute", table, axes=(2, 0, 1)), shape=(1, heads, tokens, tokens))


def _self_attention(net: Network, x: int, spec: Mt5Spec, stack: str, bias: int | None) -> tuple[int, int]:
    """Apply self-attention. Return the residual stream and the position bias.

    The first layer computes the bias. Other layers get it as `bias`.
    """
    size = spec.head_size
    with net.inside("attention"):
        parts = unpacked(net, "qkv", net.rms_norm("norm", x), spec.heads * size, size, bias=False)
        if bias is None:
            bias = _position_bias(net, stack, net.type_of(x).shape[1], spec.heads)
        y = net("core", "attention_bias", *parts, bias, causal=int(stack == "decoder"), head_size=size)
        return net.residual("projection", x, y, bias=False, grain=size), bias


def _cross_attention(net: Network, y: int, encoded: int, spec: Mt5Spec) -> int:
    """Apply cross-attention with queries from the decoder and keys and values from the encoder's output."""
    size = spec.head_size
    inner = spec.heads * size
    with net.inside("cross"):
        queries = net.linear("queries", net.rms_norm("norm", y), inner, bias=False, cut=True, grain=size)
        pairs = net.linear("keys_values", encoded, 2 * inner, bias=False, cut=True, grain=2 * size)
        heads = net("keys_values", "reshape", pairs, shape=(0, 0, -1, 2, size))
        both = net.all("keys_values", "chunk", heads, axis=3, parts=2)
        keys, values = (net("keys_values", "reshape", each, shape=(0, 0, -1)) for each in both)
        mixed = net("core", "attention", queries, keys, values, causal=0, head_size=size)
        return net.residual("projection", y, mixed, bias=False, grain=size)


def _mlp(net: Network, x: int, spec: Mt5Spec) -> int:
    """Apply norm, a gated MLP with GELU, and residual sum."""
    with net.inside("mlp"):
        return net.residual("projection", x, gated_mlp(net, net.rms_norm("norm", x), spec.inner, "gelu"), bias=False)


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
    program=mt5,
)
