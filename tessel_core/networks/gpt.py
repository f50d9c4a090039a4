"""GPT on one device: sizes, training, prefill of a prompt, and decoding of one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError, find
from tessel_core.ir.definition import SEQUENCES, Definition
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.types import check_real
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides, check_positions
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True)
class GptSpec:
    """Sizes of a pre-norm decoder with learned positions and an untied output projection.

    Raises InputError for a size below 1, a hidden size that the heads do not divide, or a rate outside of [0, 1).
    """

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    sequence: int
    """Tokens per sample in training, and the largest allowed number of tokens in inference."""
    batch: int = 1
    dtype: str = "fp32"
    positions: int = 0
    """Rows of the position table. 0 means as many as the sequence has tokens."""
    dropout: float = 0.0
    """Dropout rate in training; 0 for no dropout.

    Dropout applies to attention weights, after the projection and after the MLP, as in Megatron-LM [Korthikanti 2022,
    section 4]."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "vocabulary", "sequence", "batch"):
            check_degree(name, getattr(self, name))
        if self.hidden % self.heads:
            raise InputError("heads", f"hidden size {self.hidden} does not divide into {self.heads} equal heads")
        check_real(self.dtype)
        if isinstance(self.dropout, str) or not 0 <= self.dropout < 1:
            raise InputError("dropout", f"must be a rate of at least 0 and below 1, got {self.dropout}")
        if self.positions:
            check_positions("sequence", self.sequence, self.positions)

    @property
    def head_size(self) -> int:
        """Channels per head."""
        return self.hidden // self.heads


def _published(layers: int, hidden: int, heads: int, sequence: int) -> GptSpec:
    """Return a spec with the vocabulary of GPT-2 and GPT-3 [Radford 2019, section 2.2]."""
    return GptSpec(layers, hidden, heads, 50_257, sequence)


GPT_SPECS = {
    "gpt2": _published(12, 768, 12, 1024),
    "gpt2-medium": _published(24, 1024, 16, 1024),
    "gpt2-large": _published(36, 1280, 20, 1024),
    "gpt2-xl": _published(48, 1600, 25, 1024),
    "gpt3-125m": _published(12, 768, 12, 2048),
    "gpt3-350m": _published(24, 1024, 16, 2048),
    "gpt3-760m": _published(24, 1536, 16, 2048),
    "gpt3-1.3b": _published(24, 2048, 16, 2048),
    "gpt3-2.7b": _published(32, 2560, 32, 2048),
    "gpt3-6.7b": _published(32, 4096, 32, 2048),
    "gpt3-13b": _published(40, 5120, 40, 2048),
    "gpt3-175b": _published(96, 12_288, 96, 2048),
    "opt-66b": GptSpec(64, 9216, 72, 50_272, 2048),
}
"""Published sizes: GPT-2 [Radford 2019, table 2], GPT-3 [Brown 2020, table 2.1] and OPT-66B [Zhang 2022, arXiv
2205.01068].

Two misprints of the GPT-3 table are corrected: 1.3B has 16 heads of 128 instead of 24 heads, and 13B has a width of
40 x 128 = 5120 instead of 5140."""


def gpt_spec(name: str) -> GptSpec:
    """Return the published sizes called `name`. Raises InputError with all known names for an unknown name."""
    return find(GPT_SPECS, name, "model")


def gpt_forward(spec: GptSpec, *, training: bool = True) -> Distributed:
    """Build the forward pass, in training with the cross entropy of every token, otherwise with the logits.

    Inputs are `tokens`, `positions` (0 … sequence - 1) and the weights. Training adds the inputs `targets` and `n`
    (number of predictions in the whole batch, batch x sequence).

    The embeddings belong to the first layer. The last norm, the projection to the vocabulary and the loss belong to the
    last layer. Tensor parallelism divides embeddings and projection along the hidden axis, which works for every
    vocabulary size. Megatron-LM instead divides a padded vocabulary, so it does not need to sum all logits.
    """
    net = Definition(f"gpt-{spec.layers}x{spec.hidden}")
    logits, _ = _decoder(net, spec if training else replace(spec, dropout=0.0), spec.sequence)
    if not training:
        return net.finish({"logits": logits})
    with net.layer("head", spec.layers - 1):
        targets = net.input("targets", "int32", (spec.batch, spec.sequence), SEQUENCES)
        loss = net("loss", "cross_entropy", logits, targets, net.input("n", "int32", (), Role()))
    return net.finish({"loss": loss})


def gpt_inference(spec: GptSpec, prompt: int | None = None) -> Distributed:
    """Build the forward pass over a prompt (prefill).

    Inputs are `tokens`, `positions` (0 … prompt - 1), a cache of the prompt's length, and the weights. Outputs are the
    logits of every token, and the cache with the keys and values of every layer. By default the prompt has
    `spec.sequence` tokens.
    """
    prompt = spec.sequence if prompt is None else prompt
    return _with_cache(f"gpt-{spec.layers}x{spec.hidden}-prefill", spec, prompt, 0)


def gpt_decode(spec: GptSpec, context: int) -> Distributed:
    """Build the decoding of one token. The keys and values of the `context` tokens before it are in the cache.

    Inputs are `tokens` [batch, 1], `positions` [1] with the value `context`, a cache of context + 1 tokens, and the
    weights. Outputs are the logits of the new token, and the cache.
    """
    return _with_cache(f"gpt-{spec.layers}x{spec.hidden}-decode", spec, 1, context)


def _with_cache(name: str, spec: GptSpec, new: int, before: int) -> Distributed:
    if before < 0 or new < 1 or before + new > spec.sequence:
        raise InputError("tokens", f"{before} and {new} more must be at most {spec.sequence}, the number of positions")
    net = Definition(name)
    logits, written = _decoder(net, replace(spec, dropout=0.0), new, before)
    names = [f"l{layer}.{what}" for layer in range(spec.layers) for what in "kv"]
    return net.finish({"logits": logits} | dict(zip(names, written, strict=True)))


def _decoder(net: Definition, spec: GptSpec, tokens: int, before: int | None = None) -> tuple[int, list[int]]:
    """Return the logits of `tokens` new tokens, and the updated caches of all layers.

    `before` is the number of tokens in the cache. None means that there is no cache.
    """
    h, dtype, written = spec.hidden, spec.dtype, list[int]()
    with net.layer("embedding", 0):
        ids = net.input("tokens", "int32", (spec.batch, tokens), SEQUENCES)
        places = net.input("positions", "int32", (tokens,), Role(sequence_axis=0))
        x = net("tokens", "embedding", net.weight("embedding", dtype, (spec.vocabulary, h), cut=1, vocabulary=0), ids)
        y = net(
            "positions", "embedding", net.weight("position", dtype, (spec.positions or spec.sequence, h), cut=1), places
        )
        x = net("add", "bias", x, y)
    for i in range(spec.layers):
        with net.layer(f"layer{i}", i):
            layer = _Layer(net, spec, i)
            x = layer.attention(x, before, written)
            x = layer.mlp(x)
    with net.layer("head", spec.layers - 1):
        scale, shift = (net.weight(f"norm.{what}", dtype, (h,)) for what in ("scale", "shift"))
        x = net("norm", "layer_norm", x, scale, shift)
        return net(
            "projection", "matmul", x, net.weight("head", dtype, (h, spec.vocabulary), cut=0, vocabulary=1)
        ), written


class _Layer:
    """A pre-norm layer with biases and an MLP of width 4 x hidden.

    Tensor parallelism follows Megatron-LM [Shoeybi 2019, section 3]. Attention and MLP each have a product with a
    weight divided by columns, then one with a weight divided by rows. The columns of `qkv` are ordered by head, with 3
    x `head_size` columns per head, so that each device gets whole heads.
    """

    def __init__(self, net: Definition, spec: GptSpec, number: int) -> None:
        self._net, self._spec, self._number = net, spec, number

    def attention(self, x: int, before: int | None, written: list[int]) -> int:
        """Apply norm, causal attention and residual sum to [batch, tokens, hidden].

        If there is a cache, the updated keys and values are appended to `written`.
        """
        net, size = self._net, self._spec.head_size
        with net.inside("attention"):
            y = self._linear("qkv", self._norm("norm1", x), 3, grain=3 * size)
            q, k, v = net.all("qkv", "unpack_qkv", y, head_size=size)
            if before is not None:
                k, v = (self._cached(what, new, before) for what, new in (("k", k), ("v", v)))
                written += k, v
            y = net("core", "attention", q, k, v, causal=1, head_size=size, **self._dropout("core"))
            return self._added("projection", "out", x, y, grain=size)

    def mlp(self, x: int) -> int:
        """Apply norm, an MLP with GELU and residual sum to [batch, tokens, hidden]."""
        with self._net.inside("mlp"):
            y = self._net("gelu", "gelu", self._linear("up", self._norm("norm2", x), 4))
            return self._added("down", "down", x, y)

    def _weight(self, name: str, shape: Sequence[int], cut: int | None = None, grain: int = 1) -> int:
        return self._net.weight(f"l{self._number}.{name}", self._spec.dtype, tuple(shape), cut, grain)

    def _norm(self, weights: str, x: int) -> int:
        scale, shift = (self._weight(f"{weights}.{what}", (self._spec.hidden,)) for what in ("scale", "shift"))
        return self._net("norm", "layer_norm", x, scale, shift)

    def _linear(self, name: str, x: int, times: int, grain: int = 1) -> int:
        """Apply a linear layer with `times` x hidden outputs. Tensor parallelism divides its weight by columns."""
        h = self._spec.hidden
        w = self._weight(name, (h, times * h), 1, grain)
        return self._net(name, "linear", x, w, self._weight(f"{name}.bias", (times * h,), 0, grain))

    def _added(self, name: str, weight: str, stream: int, x: int, grain: int = 1) -> int:
        """Project x to the hidden size and add it to the residual stream. Tensor parallelism divides the weight by
        rows.

        Bias and dropout are applied after the sum over devices.
        """
        net, h, dropout = self._net, self._spec.hidden, self._dropout(name)
        product = net(name, "matmul", x, self._weight(weight, (net.type_of(x).shape[-1], h), 0, grain))
        bias = self._weight(f"{weight}.bias", (h,))
        if not dropout:
            return net("add", "residual", stream, product, bias)
        kept, _ = net.all("dropout", "dropout", net("bias", "bias", product, bias), **dropout)
        return net("add", "add", stream, kept)

    def _dropout(self, place: str) -> dict[str, float | int]:
        """Return the attributes of dropout, or {} without dropout.

        Each of its three uses in a layer has its own seed.
        """
        seed = 3 * self._number + ("core", "projection", "down").index(place)
        return {"rate": self._spec.dropout, "seed": seed} if self._spec.dropout else {}

    def _cached(self, what: str, new: int, before: int) -> int:
        """Write new keys or values into the cache after the first `before` tokens, and return the cache."""
        spec, (batch, tokens, _) = self._spec, self._net.type_of(new).shape
        role = Role(batch_axis=0, shard_axis=2, shard_grain=spec.head_size)
        room = batch, before + tokens, spec.hidden
        cache = self._net.input(f"l{self._number}.{what}", spec.dtype, room, role)
        return self._net(f"cache_{what}", "write", cache, new, axis=1, at=before)


@dataclass(frozen=True, slots=True, kw_only=True)
class GptOptions(GraphSpec):
    """Options of the operator graph of a GPT."""

    layers: int = option(12, Option("Layers", "Number of decoder layers", 1, 2000))
    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Heads of each attention", 1, 1024))
    sequence: int = option(1024, Option("Sequence length", "Tokens per sample", 1, 1_048_576))
    positions: int = option(1024, Option("Positions", "Rows of the learned position table", 1, 1_048_576))
    vocabulary: int = option(50_257, Option("Vocabulary", "Number of different tokens", 2, 10_000_000))
    dropout: float = option(
        0.0,
        Option(
            "Dropout",
            "Dropout rate in training, for attention weights, and after attention and MLP of each layer",
            0,
            0.99,
        ),
    )


def _as_options(name: str) -> GptOptions:
    size = GPT_SPECS[name]
    return GptOptions(
        layers=size.layers,
        hidden=size.hidden,
        heads=size.heads,
        sequence=size.sequence,
        positions=size.sequence,
        vocabulary=size.vocabulary,
    )


def _program(asked: GptOptions) -> Distributed:
    check_divides("the hidden size", asked.hidden, "Heads", asked.heads)
    check_divides("the number of heads", asked.heads, "Tensor-parallel degree", asked.tensor_parallel)
    check_positions("Sequence length", asked.sequence, asked.positions)
    sizes = asked.layers, asked.hidden, asked.heads, asked.vocabulary, asked.sequence
    spec = GptSpec(*sizes, asked.micro_batch, asked.dtype, asked.positions, asked.dropout)
    return gpt_forward(spec, training=asked.training)


GPT = GraphFamily(
    "gpt",
    "GPT",
    "GPT-2: Radford et al. 2019; GPT-3: Brown et al. 2020, arXiv 2005.14165, table 2.1, 13B with a width of 5120 for "
    "40 heads of 128; 66B: OPT-66B, Zhang et al. 2022, arXiv 2205.01068",
    GptOptions,
    {
        "gpt2-small": _as_options("gpt2"),
        "gpt2-medium": _as_options("gpt2-medium"),
        "gpt2-large": _as_options("gpt2-large"),
        "gpt2-xl": _as_options("gpt2-xl"),
        "gpt-6.7b": _as_options("gpt3-6.7b"),
        "gpt-13b": _as_options("gpt3-13b"),
        "gpt-66b": _as_options("opt-66b"),
        "gpt-175b": _as_options("gpt3-175b"),
    },
    program=_program,
)
