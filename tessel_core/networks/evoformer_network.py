"""AlphaFold's Evoformer: representations of the sequence alignment (MSA) and of residue pairs [Jumper 2021].

Algorithms have the numbers of the paper's supplementary methods. Dropout and the network before and after the blocks
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from tessel_core.ir.distributed import Distributed
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class EvoformerSpec(GraphSpec):
    """Sizes of an Evoformer stack and of its input."""

    blocks: int = option(48, Option("Blocks", "Number of blocks", 1, 200))
    sequences: int = option(128, Option("Sequences", "Sequences in the alignment", 1, 16_384))
    residues: int = option(256, Option("Residues", "Residues in the crop", 1, 16_384))
    msa_channels: int = option(256, Option("MSA channels", "Channels of the representation of the alignment", 1, 8192))
    pair_channels: int = option(128, Option("Pair channels", "Channels of the representation of pairs", 1, 8192))


@dataclass(frozen=True, slots=True)
class Heads:
    """Number of heads of each attention, head size, and channels of the outer products.

    Defaults are the published sizes.
    """

    msa: int = 8
    pair: int = 4
    size: int = 32
    outer: int = 32


def evoformer(spec: EvoformerSpec, heads: Heads = Heads()) -> Distributed:
    """Build the forward pass of the blocks [algorithm 6].

    Inputs are `msa` [n, sequences, residues, channels], `pair` [n, residues, residues, channels] and the weights.
    Training adds the inputs `targets`, with the shape of `pair`, and `n` (number of samples in the whole batch). In
    training, the output is a squared loss of the pairs. Otherwise the outputs are both representations.

    Tensor parallelism divides attention and transitions. Every device computes all outer products and triangle
    multiplications [Cheng 2022, FastFold, arXiv 2203.00854].

    Raises InputError if the number of devices does not divide the heads of pairs.
    """
    check_divides("the number of heads of pairs", heads.pair, "Tensor-parallel degree", spec.tensor_parallel)
    net, side = Network("evoformer", spec.dtype), spec.residues
    msa = net.input("msa", spec.dtype, (spec.micro_batch, spec.sequences, side, spec.msa_channels))
    pair = net.input("pair", spec.dtype, (spec.micro_batch, side, side, spec.pair_channels))
    for block in range(spec.blocks):
        with net.layer(f"block{block}", block):
            msa = _transition(net, "msa_transition", _msa_attention(net, msa, pair, heads))
            pair = _outer_product(net, msa, pair, heads.outer)
            for edges in ("outgoing", "incoming"):
                pair = _triangle_product(net, edges, pair)
            for node in ("starting", "ending"):
                pair = _triangle_attention(net, node, pair, heads)
            pair = _transition(net, "pair_transition", pair)
    if not spec.training:
        return net.finish({"msa_out": msa, "pair_out": pair})
    with net.layer("head", spec.blocks - 1):
        return net.finish({"loss": net.squared_loss(pair)})


def _msa_attention(net: Network, msa: int, pair: int, heads: Heads) -> int:
    """Add attention along residues, biased by the pairs, then attention along sequences [algorithms 7 and 8]."""
    inner = heads.msa * heads.size
    with net.inside("msa_rows"):
        normed = net.layer_norm("bias_norm", pair)
        bias = net("bias", "permute", net.linear("bias", normed, heads.msa, bias=False, cut=True), axes=(0, 3, 1, 2))
        msa = _gated_attention(net, msa, net.layer_norm("norm", msa), inner, heads.size, along=2, bias=bias)
    with net.inside("msa_columns"):
        return _gated_attention(net, msa, net.layer_norm("norm", msa), inner, heads.size, along=1)


def _triangle_attention(net: Network, node: str, pair: int, heads: Heads) -> int:
    """Add attention around the starting or ending node of an edge, biased by the third edge [algorithms 13 and 14]."""
    along, axes = (2, (0, 3, 1, 2)) if node == "starting" else (1, (0, 3, 2, 1))
    with net.inside(f"triangle_{node}"):
        normed = net.layer_norm("norm", pair)
        bias = net("bias", "permute", net.linear("bias", normed, heads.pair, bias=False, cut=True), axes=axes)
        return _gated_attention(net, pair, normed, heads.pair * heads.size, heads.size, along=along, bias=bias)


def _gated_attention(
    net: Network, x: int, normed: int, inner: int, size: int, *, along: int, bias: int | None = None
) -> int:
    """Add gated attention and a residual sum. Queries, keys and values have no biases.

    `along` is the axis of the tokens in x, 1 or 2. `bias` [n, heads, tokens, tokens] is the same for all positions
    along the other axis.
    """
    tokens, entries = net.type_of(x).shape[along], net.type_of(x).shape[3 - along]
    qkv = net.linear("qkv", normed, 3 * inner, bias=False, cut=True, grain=3 * size)
    rows = net("qkv", "reshape", _turned(net, "qkv", qkv, along), shape=(-1, tokens, 3 * inner))
    parts = net.all("qkv", "unpack_qkv", rows, head_size=size)
    if bias is None:
        mixed = net("core", "attention", *parts, causal=0, head_size=size)
    else:
        mixed = net("core", "attention_bias", *parts, bias, consecutive=1, head_size=size)
    mixed = _turned(net, "core", net("core", "reshape", mixed, shape=(-1, entries, tokens, inner)), along)
    gate = net.linear("gate", normed, inner, cut=True, grain=size)
    return net.residual("projection", x, net("gated", "gate", mixed, gate), grain=size)


def _turned(net: Network, name: str, x: int, along: int) -> int:
    """Swap axes 1 and 2 if the tokens are along axis 1. A second call restores the order."""
    return x if along == 2 else net(name, "permute", x, axes=(0, 2, 1, 3))


def _transition(net: Network, name: str, x: int) -> int:
    """Add a multilayer perceptron with a hidden width of 4 x channels [algorithms 9 and 15]."""
    with net.inside(name):
        up = net.linear("up", net.layer_norm("norm", x), 4 * net.type_of(x).shape[-1], cut=True)
        return net.residual("down", x, net("relu", "relu", up, keeps_output=1))


def _outer_product(net: Network, msa: int, pair: int, width: int) -> int:
    """Add the mean over sequences of outer products of two vectors per residue [algorithm 10]."""
    _, sequences, side, _ = net.type_of(msa).shape
    with net.inside("outer_product"):
        y = net.linear("vectors", net.layer_norm("norm", msa), 2 * width)
        y = net("mean", "scale", y, by=1 / sqrt(sequences))  # Dividing both factors by the root gives the mean.
        y = net("by_residue", "reshape", y, shape=(-1, sequences, side, 2, width))
        y = net("by_residue", "transpose", y, axes=(0, 3, 2, 4, 1))
        both = net.all("by_residue", "chunk", y, axis=1, parts=2)
        left, right = (net("by_residue", "reshape", each, shape=(-1, side * width, sequences)) for each in both)
        outer = net("product", "matmul", left, net("by_residue", "permute", right, axes=(0, 2, 1)))
        outer = net("by_pair", "reshape", outer, shape=(-1, side, width, side, width))
        outer = net("by_pair", "transpose", outer, axes=(0, 1, 3, 2, 4))
        outer = net("by_pair", "reshape", outer, shape=(-1, side, side, width * width))
        return net.residual("projection", pair, outer, cut=False)


def _triangle_product(net: Network, edges: str, pair: int) -> int:
    """Add a triangle multiplication along outgoing or incoming edges [algorithms 11 and 12].

    For each channel, it is a product of matrices of residues x residues.
    """
    channels = net.type_of(pair).shape[-1]
    with net.inside(f"triangle_{edges}"):
        y = net.layer_norm("norm", pair)
        gates = net.linear("edge_gates", y, 2 * channels)
        gated = net("gated_edges", "gate", net.linear("edges", y, 2 * channels), gates)
        turned = net("by_channel", "transpose", gated, axes=(0, 3, 1, 2))
        one, other = net.all("by_channel", "chunk", turned, axis=1, parts=2)
        if edges == "outgoing":
            other = net("by_channel", "permute", other, axes=(0, 1, 3, 2))
        else:
            one = net("by_channel", "permute", one, axes=(0, 1, 3, 2))
        z = net("by_pair", "transpose", net("product", "matmul", one, other), axes=(0, 2, 3, 1))
        z = net.linear("projection", net.layer_norm("product_norm", z), channels)
        return net("add", "add", pair, net("gated", "gate", z, net.linear("gate", y, channels)))


EVOFORMER = GraphFamily(
    "evoformer",
    "AlphaFold's Evoformer",
    "Jumper et al., Highly accurate protein structure prediction with AlphaFold, Nature 596, 2021, supplementary "
    "methods; crops of initial training and of fine-tuning: supplementary table 4",
    EvoformerSpec,
    {"evoformer": EvoformerSpec(), "evoformer-finetuning": EvoformerSpec(sequences=512, residues=384)},
    program=evoformer,
)
