"""Parts that decoders with rotary positions have in common: sizes, embedding, cache, MLP, projection and loss."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.ir.definition import SEQUENCES
from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.graphs.spec import GraphSpec, check_divides
from tessel_core.networks.modules import Network
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec(GraphSpec):
    """Sizes of all decoders with rotary positions."""

    layers: int = option(32, Option("Layers", "Number of decoder layers", 1, 1000))
    hidden: int = option(4096, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(32, Option("Heads", "Query heads of each attention", 1, 1024))
    inner: int = option(14_336, Option("MLP width", "Channels of the gated MLP", 1, 1_048_576))
    sequence: int = option(8192, Option("Sequence length", "Tokens per sample", 1, 16_777_216))
    context: int = option(
        0,
        Option(
            "Tokens before",
            "Tokens in the cache before one more is decoded. 0 processes whole sequences",
            0,
            16_777_216,
        ),
    )
    vocabulary: int = option(128_256, Option("Vocabulary", "Number of different tokens", 2, 10_000_000))
    tied: bool = option(False, Option("Tied embeddings", "Use the input embedding as output projection", 0, 1))
    rotary_base: float = option(500_000.0, Option("Rotary base", "Base of the rotary wavelengths", 1.0, 1e12))

    @property
    def tokens(self) -> int:
        """New tokens per sample: the whole sequence, or one after the cache."""
        return 1 if self.context else self.sequence


def check_decoder(spec: DecoderSpec) -> None:
    """Raise InputError if the sizes of a decoder contradict each other."""
    check_divides("the MLP width", spec.inner, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the hidden size", spec.hidden, "Tensor-parallel degree", spec.tensor_parallel)
    if spec.context and spec.training:
        raise InputError("Tokens before", "are for decoding, but training uses whole sequences")


def embedded(net: Network, spec: DecoderSpec) -> tuple[int, int]:
    """Return the embedded tokens, [batch, tokens, hidden], and the embedding table."""
    with net.layer("embedding", 0):
        ids = net.ids("tokens", spec.micro_batch, spec.tokens, role=SEQUENCES)
        table = net.parameter("tokens.table", spec.vocabulary, spec.hidden, cut=1, vocabulary=0)
        return net("tokens", "embedding", table, ids), table


def finished(
    net: Network, spec: DecoderSpec, x: int, table: int, cache: dict[str, int], cap: float = 0.0
) -> Distributed:
    """Add the last norm, the projection to the vocabulary and, in training, the loss. Return the network.

    A `cap` above 0 bounds the logits to ± `cap` by a tanh.
    """
    with net.layer("head", spec.layers - 1):
        y = net.rms_norm("norm", x)
        if spec.tied:
            logits = net("projection", "matmul_transposed", y, table)
        else:
            weight = net.parameter("projection.weight", spec.hidden, spec.vocabulary, cut=0, vocabulary=1)
            logits = net("projection", "matmul", y, weight)
        if cap:
            logits = net("cap", "scale", net("cap", "tanh", net("cap", "scale", logits, by=1 / cap)), by=cap)
        if spec.training:
            return net.finish({"loss": net.cross_entropy(logits, SEQUENCES)})
    return net.finish({"logits": logits, **cache})


def cached(net: Network, spec: DecoderSpec, name: str, new: int, grain: int, cache: dict[str, int]) -> int:
    """Return the keys or values of all tokens so far, [batch, tokens, columns].

    In inference, the new ones are written into the cache, and `cache` records them as `name`.
    """
    if spec.context:
        batch, _, columns = net.type_of(new).shape
        role = Role(batch_axis=0, shard_axis=2 if grain else None, shard_grain=grain or 1)
        before = net.input(name, spec.dtype, (batch, spec.context + 1, columns), role)
        new = net(f"cache_{name.rpartition('.')[2]}", "write", before, new, axis=1, at=spec.context)
    if not spec.training:
        cache[name] = new
    return new
