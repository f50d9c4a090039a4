"""Decoders like Llama: rotary positions, gated MLPs, and key-value heads that several query heads share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TypeVar

from tessel_core.ir.distributed import Distributed
from tessel_core.networks.decoder import DecoderSpec, cached, check_decoder, embedded, finished
from tessel_core.networks.graphs.spec import GraphFamily, check_divides
from tessel_core.networks.modules import Network, gated_mlp
from tessel_core.options import Option, option

LLAMA_STYLE, GEMMA_STYLE = "llama", "gemma2"
_SCORE_CAP, _LOGIT_CAP = 50.0, 30.0
"""Largest absolute value of attention scores and of logits in Gemma 2 [Riviere 2024, section 2]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSpec(DecoderSpec):
    """Sizes of a decoder like Llama."""

    kv_heads: int = option(
        8, Option("Key-value heads", "Heads of keys and values. Each serves the same number of query heads", 1, 1024)
    )
    head_size: int = option(128, Option("Head size", "Channels per head", 2, 1024))
    qkv_bias: bool = option(False, Option("Biases of queries, keys and values", "Add biases, as in Qwen2.5", 0, 1))
    qk_norm: bool = option(
        False, Option("Norms of queries and keys", "Normalize queries and keys of each head, as in Qwen3", 0, 1)
    )
    window: int = option(
        0, Option("Window", "Number of latest tokens that a token attends to. 0 means all", 0, 16_777_216)
    )
    style: str = option(
        LLAMA_STYLE,
        Option(
            "Style",
            "Kind of layer. Gemma 2 has GELU, norms after attention and MLP, and a window in every second layer",
            choices=(LLAMA_STYLE, GEMMA_STYLE),
        ),
    )


def llama(spec: LlamaSpec) -> Distributed:
    """Build the forward pass, in training with the cross entropy of every token, otherwise with the logits.

    Inputs are `tokens` and the weights. Training adds the inputs `targets` and `n` (number of predictions in the whole
    batch). Decoding adds the cache of each layer (`l0.k`, `l0.v`). Inference also returns the cache with the new
    tokens. The scale of a norm is used directly as the factor, whereas Gemma stores the factor minus 1.

    Raises InputError if the number of key-value heads does not divide the query heads, or the number of devices does
    not divide a size.
    """
    check_divides("the number of heads", spec.heads, "Key-value heads", spec.kv_heads)
    check_divides("the number of key-value heads", spec.kv_heads, "Tensor-parallel degree", spec.tensor_parallel)
    check_decoder(spec)
    net = Network("llama", spec.dtype)
    x, table = embedded(net, spec)
    if spec.style == GEMMA_STYLE:
        with net.layer("embedding", 0):
            x = net("scale", "scale", x, by=sqrt(spec.hidden))
    cache = dict[str, int]()
    for i in range(spec.layers):
        with net.layer(f"layer{i}", i):
            x = attention_half(net, x, spec, i, cache)
            x = _mlp(net, x, spec)
    return finished(net, spec, x, table, cache, _LOGIT_CAP if spec.style == GEMMA_STYLE else 0.0)


def attention_half(net: Network, x: int, spec: LlamaSpec, layer: int, cache: dict[str, int]) -> int:
    """Apply norm, causal attention and residual sum to [batch, tokens, hidden]."""
    size, shared = spec.head_size, spec.heads // spec.kv_heads
    with net.inside("attention"):
        y = net.rms_norm("norm", x)
        widths = {"queries": spec.heads, "keys": spec.kv_heads, "values": spec.kv_heads}
        parts = dict[str, int]()
        for name, heads in widths.items():
            grain = size * shared if name == "queries" else size
            parts[name] = net.linear(name, y, heads * size, bias=spec.qkv_bias, cut=True, grain=grain)
            if name != "values":
                normed = _head_norm(net, f"{name}_norm", parts[name], size) if spec.qk_norm else parts[name]
                rotary = {"head_size": size, "base": spec.rotary_base, "at": spec.context}
                parts[name] = net(name, "rotary", normed, **rotary)
            if name != "queries":
                parts[name] = cached(net, spec, f"l{layer}.{name[0]}", parts[name], size, cache)
        gemma, attributes = spec.style == GEMMA_STYLE, {"causal": 1, "head_size": size}
        if spec.window and not (gemma and layer % 2):
            attributes["window"] = spec.window
        mixed = net("core", "attention", *parts.values(), **attributes, **({"cap": _SCORE_CAP} if gemma else {}))
        return _added(net, x, mixed, spec, size)


def _head_norm(net: Network, name: str, x: int, size: int) -> int:
    """Normalize each head separately. All heads share one scale."""
    heads = net(name, "reshape", x, shape=(0, 0, -1, size))
    return net(name, "reshape", net.rms_norm(name, heads), shape=(0, 0, -1))


def _mlp(net: Network, x: int, spec: LlamaSpec) -> int:
    with net.inside("mlp"):
        activation = "gelu" if spec.style == GEMMA_STYLE else "silu"
        return _added(net, x, gated_mlp(net, net.rms_norm("norm", x), spec.inner, activation), spec)


def _added(net: Network, stream: int, x: int, spec: LlamaSpec, grain: int = 1) -> int:
    """Project x to the width of the residual stream, and add it. In Gemma, x is normalized before the sum."""
    if spec.style != GEMMA_STYLE:
        return net.residual("projection", stream, x, bias=False, grain=grain)
    weight = net.parameter("projection.weight", net.type_of(x).shape[-1], spec.hidden, cut=0, grain=grain)
    return net("add", "add", stream, net.rms_norm("norm_behind", net("projection", "matmul", x, weight)))


Decoder = TypeVar("Decoder", bound=LlamaSpec)


def sized(
    like: Decoder, layers: int, hidden: int, heads: int, kv_heads: int, inner: int, head_size: int = 0, **more: object
) -> Decoder:
    """Return a copy of a spec with other sizes.

    By default, the head size is the hidden size divided by the number of heads.
    """
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "inner": inner, **more}
    return replace(like, head_size=head_size or hidden // heads, **sizes)  # type: ignore[arg-type]


_LLAMA_3 = LlamaSpec()
_LLAMA_2 = LlamaSpec(vocabulary=32_000, sequence=4096, rotary_base=10_000.0)
_QWEN_2 = LlamaSpec(vocabulary=152_064, sequence=4096, rotary_base=1e6, qkv_bias=True)
_QWEN_3 = LlamaSpec(vocabulary=151_936, sequence=4096, rotary_base=1e6, qk_norm=True)
_GEMMA_2 = LlamaSpec(vocabulary=256_000, rotary_base=10_000.0, tied=True, window=4096, style=GEMMA_STYLE)
LLAMA = GraphFamily(
    "llama",
    "Llama and its like",
    "Llama 2: Touvron et al. 2023, arXiv 2307.09288; Llama 3: Grattafiori et al. 2024, arXiv 2407.21783; Mistral 7B: "
    "Jiang et al. 2023, arXiv 2310.06825; Qwen2.5: arXiv 2412.15115; Qwen3: arXiv 2505.09388; Gemma 2: Riviere et al. "
    "2024, arXiv 2408.00118; Phi-3: Abdin et al. 2024, arXiv 2404.14219; sizes as in the published configs",
    LlamaSpec,
    {
        **dict.fromkeys(("llama-3-8b", "llama-3.1-8b"), _LLAMA_3),
        **dict.fromkeys(("llama-3-70b", "llama-3.1-70b"), sized(_LLAMA_3, 80, 8192, 64, 8, 28_672)),
        **dict.fromkeys(("llama-3-405b", "llama-3.1-405b"), sized(_LLAMA_3, 126, 16_384, 128, 8, 53_248)),
        "llama-3.2-1b": sized(_LLAMA_3, 16, 2048, 32, 8, 8192, tied=True),
        "llama-3.2-3b": sized(_LLAMA_3, 28, 3072, 24, 8, 8192, tied=True),
        "llama-2-7b": sized(_LLAMA_2, 32, 4096, 32, 32, 11_008),
        "llama-2-13b": sized(_LLAMA_2, 40, 5120, 40, 40, 13_824),
        "llama-2-70b": sized(_LLAMA_2, 80, 8192, 64, 8, 28_672),
        "mistral-7b": sized(_LLAMA_2, 32, 4096, 32, 8, 14_336, sequence=8192, window=4096),
        "qwen2.5-0.5b": sized(_QWEN_2, 24, 896, 14, 2, 4864, vocabulary=151_936, tied=True),
        "qwen2.5-7b": sized(_QWEN_2, 28, 3584, 28, 4, 18_944),
        "qwen2.5-72b": sized(_QWEN_2, 80, 8192, 64, 8, 29_568),
        "qwen3-8b": sized(_QWEN_3, 36, 4096, 32, 8, 12_288),
        "qwen3-32b": sized(_QWEN_3, 64, 5120, 64, 8, 25_600, 128),
        "gemma-2-9b": sized(_GEMMA_2, 42, 3584, 16, 8, 14_336, 256),
        "gemma-2-27b": sized(_GEMMA_2, 46, 4608, 32, 16, 36_864, 128),
        "phi-3-mini": sized(_LLAMA_2, 32, 3072, 32, 32, 8192, vocabulary=32_064, window=2047),
    },
    program=llama,
)
