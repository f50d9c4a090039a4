"""GPT: a decoder of pre-norm layers [Radford 2019; Brown 2020, arXiv 2005.14165]."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tessel_core.errors import InputError
from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import GraphBuilder
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec
from tessel_core.networks.graphs.transformer import check_heads, transformer_layer
from tessel_core.options import Option, option

IDS_WIDTH = 8
"""Bytes of a token's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GptSpec(GraphSpec):
    """Sizes of a GPT."""

    layers: int = option(12, Option("Layers", "Of the decoder", 1, 2000))
    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Of each attention", 1, 1024))
    sequence: int = option(1024, Option("Sequence length", "Tokens of a sample", 1, 1_048_576))
    positions: int = option(1024, Option("Positions", "Rows of the learned position table", 1, 1_048_576))
    vocabulary: int = option(50_257, Option("Vocabulary", "Tokens there are", 2, 10_000_000))


def gpt(spec: GptSpec) -> OperatorGraph:
    """Embedding, layers, head; without a loss in inference.

    The output embedding is a product with weights of its own, also where a published network ties it to the input
    embedding: on two stages there are two copies.  Under tensor parallelism the vocabulary is split, and the sums of
    three numbers a token in the loss are left out.
    """
    check_heads(spec.hidden, spec.heads, spec.tensor_parallel)
    if spec.sequence > spec.positions:
        raise InputError("Sequence length", f"must be at most the {spec.positions:,} positions, got {spec.sequence:,}")
    b, split = GraphBuilder(spec.dtype), spec.tensor_parallel
    rows = ceil(spec.vocabulary / split)
    with b.inside("embedding"):
        ids = b.input("tokens", spec.micro_batch, spec.sequence, width=IDS_WIDTH)
        places = b.input("places", spec.sequence, width=IDS_WIDTH)
        x = b.all_reduce("all_reduce", b.embedding("tokens", ids, rows, spec.hidden), split)
        x = b.add("add", x, b.embedding("positions", places, spec.positions, spec.hidden))
    for layer in range(spec.layers):
        with b.inside(f"layer{layer}"):
            x = transformer_layer(b, x, spec.heads, split, causal=True)
    with b.inside("head"):
        logits = b.linear("projection", b.layer_norm("norm", x), rows, bias=False)
        if spec.training:
            b.cross_entropy("loss", logits)
    return b.graph("gpt", spec.micro_batch)


def _gpt_3(layers: int, hidden: int, heads: int, vocabulary: int = 50_257) -> GptSpec:
    return GptSpec(layers=layers, hidden=hidden, heads=heads, sequence=2048, positions=2048, vocabulary=vocabulary)


GPT = GraphFamily(
    "gpt",
    "GPT",
    "GPT-2: Radford et al. 2019; GPT-3: Brown et al. 2020, arXiv 2005.14165, table 2.1, 13B with a width of 5120 for "
    "40 heads of 128; 66B: OPT-66B, Zhang et al. 2022, arXiv 2205.01068",
    GptSpec,
    {
        "gpt2-small": GptSpec(),
        "gpt2-medium": GptSpec(layers=24, hidden=1024, heads=16),
        "gpt2-large": GptSpec(layers=36, hidden=1280, heads=20),
        "gpt2-xl": GptSpec(layers=48, hidden=1600, heads=25),
        "gpt-6.7b": _gpt_3(32, 4096, 32),
        "gpt-13b": _gpt_3(40, 5120, 40),
        "gpt-66b": _gpt_3(64, 9216, 72, vocabulary=50_272),
        "gpt-175b": _gpt_3(96, 12_288, 96),
    },
    gpt,
)
