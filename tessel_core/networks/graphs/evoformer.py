"""AlphaFold's Evoformer: one representation of the sequence alignment (MSA) and one of residue pairs [Jumper 2021].

Algorithms are those of the paper's supplementary methods.  Left out: dropout, and what surrounds the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.options import Option, option

_MSA_HEADS, _PAIR_HEADS, _HEAD_SIZE, _OUTER = 8, 4, 32, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class EvoformerSpec(GraphSpec):
    """Sizes of an Evoformer stack and of what it is fed."""

    blocks: int = option(48, Option("Blocks", "Of the stack", 1, 200))
    sequences: int = option(128, Option("Sequences", "Of the alignment", 1, 16_384))
    residues: int = option(256, Option("Residues", "Of the crop", 1, 16_384))
    msa_channels: int = option(256, Option("MSA channels", "Of the alignment's representation", 1, 8192))
    pair_channels: int = option(128, Option("Pair channels", "Of the pairs' representation", 1, 8192))


def evoformer(spec: EvoformerSpec) -> OperatorGraph:
    """One pass over the blocks [algorithm 6].

    Under tensor parallelism attention and transitions are divided, outer products and triangle multiplications are
    computed by every device [Cheng 2022, FastFold, arXiv 2203.00854].
    """
    check_divides("the 4 heads of pairs", _PAIR_HEADS, "Tensor-parallel degree", spec.tensor_parallel)
    b = GraphBuilder(spec.dtype)
    msa = b.input("msa", spec.micro_batch, spec.sequences, spec.residues, spec.msa_channels)
    pair = b.input("pair", spec.micro_batch, spec.residues, spec.residues, spec.pair_channels)
    for block in range(spec.blocks):
        with b.inside(f"block{block}"):
            msa = _msa_attention(b, msa, pair, spec)
            msa = _transition(b, "msa_transition", msa, spec)
            pair = _outer_product(b, msa, pair, spec)
            for edges in ("outgoing", "incoming"):
                pair = _triangle_product(b, f"triangle_{edges}", pair, spec)
            for node in ("starting", "ending"):
                pair = _triangle_attention(b, f"triangle_{node}", pair, spec)
            pair = _transition(b, "pair_transition", pair, spec)
    return b.graph("evoformer", spec.micro_batch)


def _msa_attention(b: GraphBuilder, msa: Tensor, pair: Tensor, spec: EvoformerSpec) -> Tensor:
    """Along the residues, biased by the pairs, then along the sequences [algorithms 7 and 8]."""
    heads = _MSA_HEADS // spec.tensor_parallel
    with b.inside("msa_rows"):
        bias = b.linear("bias", b.layer_norm("bias_norm", pair), heads, bias=False)
        y = b.layer_norm("norm", msa)
        msa = _gated_attention(b, msa, y, heads, spec.residues, spec.tensor_parallel, (bias,))
    with b.inside("msa_columns"):
        y = b.layer_norm("norm", msa)
        return _gated_attention(b, msa, y, heads, spec.sequences, spec.tensor_parallel)


def _triangle_attention(b: GraphBuilder, name: str, pair: Tensor, spec: EvoformerSpec) -> Tensor:
    """Around the starting or the ending node, biased by the third edge [algorithms 13 and 14]."""
    heads = _PAIR_HEADS // spec.tensor_parallel
    with b.inside(name):
        y = b.layer_norm("norm", pair)
        bias = b.linear("bias", y, heads, bias=False)
        return _gated_attention(b, pair, y, heads, spec.residues, spec.tensor_parallel, (bias,))


def _gated_attention(
    b: GraphBuilder, x: Tensor, normed: Tensor, heads: int, keys: int, split: int, bias: Sequence[Tensor] = ()
) -> Tensor:
    """Queries, keys and values, which have no biases, attention, gate, projection, sum."""
    inner = heads * _HEAD_SIZE
    qkv = b.linear("qkv", normed, 3 * inner, bias=False)
    mixed = b.attention("core", (qkv, *bias), (*x.shape[:-1], inner), heads, keys)
    return b.residual(x, "projection", b.gate("gated", mixed, b.linear("gate", normed, inner)), split)


def _transition(b: GraphBuilder, name: str, x: Tensor, spec: EvoformerSpec) -> Tensor:
    """A multilayer perceptron of 4 x channels [algorithms 9 and 15]."""
    with b.inside(name):
        inner = 4 * x.channels // spec.tensor_parallel
        y = b.relu("relu", b.linear("up", b.layer_norm("norm", x), inner))
        return b.residual(x, "down", y, spec.tensor_parallel)


def _outer_product(b: GraphBuilder, msa: Tensor, pair: Tensor, spec: EvoformerSpec) -> Tensor:
    """The mean over the sequences of outer products of two vectors a residue [algorithm 10]."""
    batch, width = spec.micro_batch, spec.residues * _OUTER
    with b.inside("outer_product"):
        y = b.linear("vectors", b.layer_norm("norm", msa), 2 * _OUTER)
        y = b.transpose("by_residue", y, batch, 2 * width, spec.sequences)
        outer = b.product("product", (y,), (batch, width, width), spec.sequences)
        outer = b.transpose("by_pair", outer, *pair.shape[:-1], _OUTER**2)
        return b.add("add", pair, b.linear("projection", outer, pair.channels))


def _triangle_product(b: GraphBuilder, name: str, pair: Tensor, spec: EvoformerSpec) -> Tensor:
    """Along outgoing or incoming edges: a product of residues x residues a channel [algorithms 11 and 12]."""
    channels, side = pair.channels, spec.residues
    with b.inside(name):
        y = b.layer_norm("norm", pair)
        edges = b.gate("gated_edges", b.linear("edges", y, 2 * channels), b.linear("edge_gates", y, 2 * channels))
        edges = b.transpose("by_channel", edges, spec.micro_batch, 2 * channels, side, side)
        z = b.product("product", (edges,), (spec.micro_batch, channels, side, side), side)
        z = b.layer_norm("product_norm", b.transpose("by_pair", z, *pair.shape))
        update = b.gate("gated", b.linear("projection", z, channels), b.linear("gate", y, channels))
        return b.add("add", pair, update)


EVOFORMER = GraphFamily(
    "evoformer",
    "AlphaFold's Evoformer",
    "Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 596, 2021, supplementary "
    "methods; crops of initial training and of fine-tuning: supplementary table 4",
    EvoformerSpec,
    {"evoformer": EvoformerSpec(), "evoformer-finetuning": EvoformerSpec(sequences=512, residues=384)},
    evoformer,
)
