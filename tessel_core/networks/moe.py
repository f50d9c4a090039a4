"""Decoders with a mixture of experts: Mixtral, Qwen3, and DeepSeek with latent attention."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.decoder import cached, check_decoder, embedded, finished
from tessel_core.networks.graphs.spec import GraphFamily, check_divides
from tessel_core.networks.llama import LlamaSpec, attention_half, sized
from tessel_core.networks.modules import Network, gated_mlp
from tessel_core.options import Option, option

SOFTMAX, SIGMOID = "softmax", "sigmoid"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSpec(LlamaSpec):
    """Sizes of a decoder with experts. If the latent size is above 0, attention is DeepSeek's latent attention."""

    experts: int = option(8, Option("Experts", "Experts per layer", 1, 4096))
    active: int = option(2, Option("Active experts", "Experts that each token uses", 1, 256))
    expert_inner: int = option(14_336, Option("Expert width", "Channels of the gated MLP of an expert", 1, 1_048_576))
    shared: int = option(0, Option("Shared experts", "Experts in addition that every token uses", 0, 64))
    dense_layers: int = option(
        0,
        Option("Dense layers", "Number of layers at the start with one MLP for all tokens instead of experts", 0, 1000),
    )
    router: str = option(
        SOFTMAX,
        Option(
            "Router",
            "Function that scores the experts. Sigmoid adds a bias to the choice, which balances the experts",
            choices=(SOFTMAX, SIGMOID),
        ),
    )
    imbalance: float = option(
        1.0,
        Option(
            "Token imbalance",
            "Tokens on the busiest device of experts, divided by the average. It matters only with expert parallelism",
            1.0,
            1024.0,
        ),
    )
    latent: int = option(
        0,
        Option("Latent size", "Size of the latent vector shared by keys and values. 0 means ordinary heads", 0, 65_536),
    )
    query_latent: int = option(
        0, Option("Query latent size", "Size of the latent vector of queries. 0 projects queries directly", 0, 65_536)
    )
    rotary_size: int = option(
        64, Option("Rotary size", "Channels of a head with rotary positions, in latent attention", 2, 1024)
    )
    value_size: int = option(128, Option("Value size", "Channels of a head's values, in latent attention", 1, 1024))


def moe(spec: MoeSpec) -> Distributed:
    """Build the forward pass, in training with the cross entropy of every token, otherwise with the logits.

    Inputs are those of `llama`. With latent attention, the cache of a layer consists of latent vectors (`l0.latent`)
    and rotated keys (`l0.rotated`). Decoding then computes keys and values again from all latent vectors.

    Tokens choose among all experts, whereas DeepSeek limits the choice to some groups. The weights of a token's experts
    add up to 1. The auxiliary loss and the prediction of further tokens are left out.

    Raises InputError if the number of key-value heads does not divide the query heads, or the number of devices does
    not divide a size.
    """
    check_divides("the expert width", spec.expert_inner, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the number of heads", spec.heads, "Tensor-parallel degree", spec.tensor_parallel)
    if not spec.latent:
        check_divides("the number of heads", spec.heads, "Key-value heads", spec.kv_heads)
        check_divides("the number of key-value heads", spec.kv_heads, "Tensor-parallel degree", spec.tensor_parallel)
    elif spec.rotary_size >= spec.head_size:
        raise InputError("Rotary size", f"must be below the head size {spec.head_size}, got {spec.rotary_size}")
    if spec.active > spec.experts:
        raise InputError("Active experts", f"must be at most {spec.experts}, the number of experts, got {spec.active}")
    check_decoder(spec)
    net = Network("moe", spec.dtype)
    x, table = embedded(net, spec)
    cache = dict[str, int]()
    for i in range(spec.layers):
        with net.layer(f"layer{i}", i):
            x = (_latent_attention if spec.latent else attention_half)(net, x, spec, i, cache)
            with net.inside("mlp"):
                y = net.rms_norm("norm", x)
                if i < spec.dense_layers:
                    x = net.residual("projection", x, gated_mlp(net, y, spec.inner), bias=False)
                else:
                    x = _mixture(net, x, y, spec)
    return finished(net, spec, x, table, cache)


def _mixture(net: Network, stream: int, y: int, spec: MoeSpec) -> int:
    """Add the outputs of the chosen and the shared experts for y to the residual stream."""
    scores = net.linear("router", y, spec.experts, bias=False)
    given = [scores]
    if spec.router == SIGMOID:
        role = Role(weight=True, trained=False)
        given.append(net.input(net.path("router.bias"), spec.dtype, (spec.experts,), role))
    share, choice = net.all("route", "route", *given, top=spec.active, score=spec.router, normed=1, scale=1.0)
    uneven = {"imbalance": spec.imbalance} if spec.imbalance != 1 else {}
    rows = net("dispatch", "dispatch", y, choice, **uneven)
    h, inner = spec.hidden, spec.expert_inner

    def product(name: str, x: int, *shape: int, cut: int) -> int:
        return net(
            name, "grouped_matmul", x, choice, net.parameter(f"{name}.weight", spec.experts, *shape, cut=cut, experts=0)
        )

    gate = net("silu", "silu", product("gate", rows, h, inner, cut=2))
    gated = net("gated", "mul", gate, product("up", rows, h, inner, cut=2))
    mixed = net("combine", "combine", product("down", gated, inner, h, cut=1), choice, share)
    if spec.shared:
        with net.inside("shared"):
            stream = net.residual("projection", stream, gated_mlp(net, y, spec.shared * inner), bias=False)
    return net("add", "add", stream, mixed)


def _latent_attention(net: Network, x: int, spec: MoeSpec, layer: int, cache: dict[str, int]) -> int:
    """Apply norm, latent attention [DeepSeek-AI 2024, arXiv 2405.04434] and residual sum.

    Keys and values are computed from one latent vector per token.
    """
    size, turned, heads = spec.head_size, spec.rotary_size, spec.heads
    plain = size - turned
    rotary = {"base": spec.rotary_base, "at": spec.context}
    with net.inside("attention"):
        y = net.rms_norm("norm", x)
        low = (
            net.rms_norm("queries_norm", net.linear("queries_down", y, spec.query_latent, bias=False))
            if spec.query_latent
            else y
        )
        queries = net.linear("queries", low, heads * size, bias=False, cut=True, grain=size)
        queries = net("queries", "rotary", queries, head_size=size, first=plain, size=turned, **rotary)
        both = net.linear("latent", y, spec.latent + turned, bias=False)
        latent, keys = net.all("latent", "split_at", both, axis=2, sizes=(spec.latent, turned))
        latent = cached(net, spec, f"l{layer}.latent", net.rms_norm("latent_norm", latent), 0, cache)
        keys = net("rotated", "rotary", keys, head_size=turned, **rotary)
        keys = cached(net, spec, f"l{layer}.rotated", keys, 0, cache)
        made = net.linear(
            "keys_values",
            latent,
            heads * (plain + spec.value_size),
            bias=False,
            cut=True,
            grain=plain + spec.value_size,
        )
        made = net("keys_values", "reshape", made, shape=(0, 0, -1, plain + spec.value_size))
        own, values = net.all("keys_values", "split_at", made, axis=3, sizes=(plain, spec.value_size))
        shared = net("rotated", "reshape", keys, shape=(0, 0, 1, turned))
        shared = net("rotated", "expand", shared, shape=(1, 1, heads, 1))
        joined = net("keys", "reshape", net("keys", "concat", own, shared, axis=3), shape=(0, 0, -1))
        values = net("values", "reshape", values, shape=(0, 0, -1))
        mixed = net("core", "attention", queries, joined, values, causal=1, head_size=size)
        return net.residual("projection", x, mixed, bias=False, grain=spec.value_size)


_MIXTRAL = MoeSpec(vocabulary=32_000, rotary_base=1e6)
_QWEN_3 = MoeSpec(kv_heads=4, qk_norm=True, experts=128, active=8, vocabulary=151_936, sequence=4096, rotary_base=1e6)
_LATENT = MoeSpec(
    sequence=4096, vocabulary=102_400, rotary_base=10_000.0, active=6, shared=2, dense_layers=1, latent=512
)
_DEEPSEEK_2 = sized(_LATENT, 60, 5120, 128, 128, 12_288, 192, experts=160, expert_inner=1536, query_latent=1536)
_DEEPSEEK_3 = replace(
    sized(_DEEPSEEK_2, 61, 7168, 128, 128, 18_432, 192, experts=256, active=8, expert_inner=2048, dense_layers=3),
    vocabulary=129_280,
    shared=1,
    router=SIGMOID,
)
MOE = GraphFamily(
    "moe",
    "Mixture of experts",
    "Mixtral: Jiang et al. 2024, arXiv 2401.04088; Qwen3: arXiv 2505.09388; DeepSeek-V2: arXiv 2405.04434; "
    "DeepSeek-V3: arXiv 2412.19437; Kimi K2: arXiv 2507.20534; sizes as in the published configs",
    MoeSpec,
    {
        "mixtral-8x7b": _MIXTRAL,
        "mixtral-8x22b": replace(_MIXTRAL, layers=56, hidden=6144, heads=48, expert_inner=16_384, vocabulary=32_768),
        "qwen3-30b-a3b": replace(_QWEN_3, layers=48, hidden=2048, heads=32, expert_inner=768),
        "qwen3-235b-a22b": replace(_QWEN_3, layers=94, hidden=4096, heads=64, expert_inner=1536),
        "deepseek-v2": _DEEPSEEK_2,
        "deepseek-v2-lite": sized(_LATENT, 27, 2048, 16, 16, 10_944, 192, experts=64, expert_inner=1408),
        "deepseek-v3": _DEEPSEEK_3,
        "kimi-k2": replace(
            _DEEPSEEK_3, heads=64, kv_heads=64, experts=384, dense_layers=1, vocabulary=163_840, rotary_base=50_000.0
        ),
    },
    program=moe,
)
