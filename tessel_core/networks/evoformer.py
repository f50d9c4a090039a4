"""AlphaFold's Evoformer on H200s: a pipeline through which a micro-batch passes three times [Jumper 2021].

Algorithms are those of the paper's supplementary methods.  Left out: dropout, and what surrounds the 48 blocks
(embedders, templates, the extra MSA stack, the structure module).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessel_core.costs import h200
from tessel_core.costs.meshes import hop_seconds
from tessel_core.model import MicroBatchPlan
from tessel_core.networks.operators import attention, gate, layer_norm, linear, product, relu, residual_sum, transpose
from tessel_core.networks.parts import Part, join, numbered
from tessel_core.networks.pipelines import (
    Placed,
    cut_stages,
    forward_links,
    h200_plan,
    in_stages,
    link,
    stage_links,
    training_blocks,
)


@dataclass(frozen=True, slots=True)
class Evoformer:
    """Sizes of an Evoformer stack and of what it is fed."""

    sequences: int
    """Of the multiple sequence alignment (MSA), N_seq."""
    residues: int
    """N_res."""
    msa_channels: int = 256
    pair_channels: int = 128
    msa_heads: int = 8
    pair_heads: int = 4
    head_size: int = 32
    outer_channels: int = 32
    blocks: int = 48
    micro_batch: int = 1

    @property
    def msa_rows(self) -> int:
        """Vectors of the MSA representation."""
        return self.micro_batch * self.sequences * self.residues

    @property
    def pair_rows(self) -> int:
        """Vectors of the pair representation."""
        return self.micro_batch * self.residues**2

    @property
    def sent_bytes(self) -> int:
        """Both representations."""
        return h200.BYTES_PER_ELEMENT * (self.msa_rows * self.msa_channels + self.pair_rows * self.pair_channels)

    @property
    def recycled_bytes(self) -> int:
        """What the next pass begins with: the pair representation and the first row of the MSA."""
        first_row = self.micro_batch * self.residues * self.msa_channels
        return h200.BYTES_PER_ELEMENT * (first_row + self.pair_rows * self.pair_channels)


EVOFORMER = Evoformer(sequences=512, residues=384)
"""AlphaFold 2's, with the crop of its fine-tuning [Jumper 2021, supplementary table 4]."""


def evoformer_plan(evoformer: Evoformer, devices: int) -> MicroBatchPlan:
    """Recycling: passes a, b and c over all stages, then the backward of c, the only pass that keeps activations."""
    stages = cut_stages(numbered(evoformer_block(evoformer), evoformer.blocks, "block"), devices)
    first, second, last = (_pass(stages, letter) for letter in "abc")
    again = hop_seconds(evoformer.recycled_bytes, devices - 1, 0)
    links = [*forward_links(first), link(first[-1].forward, second[0].forward, again)]
    links += [*forward_links(second), link(second[-1].forward, last[0].forward, again)]
    links += [*stage_links(last), link(last[-1].forward, last[-1].backward)]
    blocks = [replace(stage.forward_block(), memory=0) for stage in (*first, *second)]
    static = [stage.static_bytes for stage in stages]
    return h200_plan("evoformer", (*blocks, *training_blocks(last)), links, static)


def _pass(stages: Sequence[Part], letter: str) -> tuple[Placed, ...]:
    return tuple(replace(stage, forward=stage.forward + letter) for stage in in_stages(stages, range(len(stages))))


def evoformer_block(size: Evoformer) -> Part:
    """One block [algorithm 6]."""
    parts = (
        _msa_row_attention(size),
        _msa_column_attention(size),
        _transition(size.msa_rows, size.msa_channels),
        _outer_product_mean(size),
        *[_triangle_multiplication(size)] * 2,
        *[_triangle_attention(size)] * 2,
        _transition(size.pair_rows, size.pair_channels),
    )
    return replace(join(*parts), sent_bytes=size.sent_bytes)


def _msa_row_attention(size: Evoformer) -> Part:
    """Along the residues, biased by the pairs [algorithm 7]."""
    normed = layer_norm(size.pair_rows, size.pair_channels)
    bias = linear(size.pair_rows, size.pair_channels, size.msa_heads, bias=False)
    core = attention(size.micro_batch * size.sequences, size.msa_heads, size.residues, size.head_size, pair_bias=True)
    attended = _gated_attention(size.msa_rows, size.msa_channels, size.msa_heads * size.head_size, core)
    return join(normed, bias, attended)


def _msa_column_attention(size: Evoformer) -> Part:
    """Along the sequences [algorithm 8]."""
    core = attention(size.micro_batch * size.residues, size.msa_heads, size.sequences, size.head_size)
    return _gated_attention(size.msa_rows, size.msa_channels, size.msa_heads * size.head_size, core)


def _triangle_attention(size: Evoformer) -> Part:
    """Around the starting or the ending node, biased by the third edge [algorithms 13 and 14]."""
    bias = linear(size.pair_rows, size.pair_channels, size.pair_heads, bias=False)
    core = attention(size.micro_batch * size.residues, size.pair_heads, size.residues, size.head_size, pair_bias=True)
    return join(bias, _gated_attention(size.pair_rows, size.pair_channels, size.pair_heads * size.head_size, core))


def _gated_attention(rows: int, channels: int, inner: int, core: Part) -> Part:
    """Queries, keys, values and gates of the normed input, attention, gate, projection, sum."""
    return join(
        layer_norm(rows, channels),
        linear(rows, channels, 4 * inner),
        core,
        gate(rows * inner),
        linear(rows, inner, channels),
        residual_sum(rows * channels),
    )


def _transition(rows: int, channels: int) -> Part:
    """A multilayer perceptron of 4 x channels [algorithms 9 and 15]."""
    return join(
        layer_norm(rows, channels),
        linear(rows, channels, 4 * channels),
        relu(rows * 4 * channels),
        linear(rows, 4 * channels, channels),
        residual_sum(rows * channels),
    )


def _outer_product_mean(size: Evoformer) -> Part:
    """From the MSA to the pairs [algorithm 10]; its input is the next block's, which keeps it."""
    width = size.residues * size.outer_channels
    return join(
        layer_norm(size.msa_rows, size.msa_channels, keeps_input=False),
        linear(size.msa_rows, size.msa_channels, 2 * size.outer_channels),
        transpose(size.msa_rows * 2 * size.outer_channels),
        product(size.micro_batch, width, size.sequences, width),
        transpose(size.pair_rows * size.outer_channels**2),
        linear(size.pair_rows, size.outer_channels**2, size.pair_channels),
        residual_sum(size.pair_rows * size.pair_channels),
    )


def _triangle_multiplication(size: Evoformer) -> Part:
    """Along outgoing or incoming edges, one product of residues x residues a channel [algorithms 11 and 12]."""
    rows, channels = size.pair_rows, size.pair_channels
    return join(
        layer_norm(rows, channels),
        linear(rows, channels, 5 * channels),  # both edges, their gates and the gate of the update
        gate(2 * rows * channels),
        transpose(2 * rows * channels),
        product(size.micro_batch * channels, size.residues, size.residues, size.residues),
        transpose(rows * channels),
        layer_norm(rows, channels),
        linear(rows, channels, channels),
        gate(rows * channels),
        residual_sum(rows * channels),
    )
