"""Transformers on H200s: GPT and mT5 as pipelines or with a sharded vocabulary, Flava as two branches that join.

mT5 [Xue 2021] and the large vocabularies are those of Lin 2024, section II.  Of Flava [Singh 2022], position
embeddings, pooling, and the heads and losses of pretraining are left out, each below 1 % of the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tessel_core.costs.meshes import DEVICES_PER_NODE, INFINIBAND, NVLINK, broadcast_seconds
from tessel_core.model import Dependency, MicroBatchPlan
from tessel_core.networks.operators import linear
from tessel_core.networks.parts import (
    Dimensions,
    Part,
    causal_layer,
    decoder_layer,
    embedding,
    encoder_layer,
    join,
    numbered,
    vocabulary_loss,
)
from tessel_core.networks.pipelines import (
    Placed,
    cut_stages,
    everywhere,
    h200_plan,
    in_stages,
    link,
    pipeline_plan,
    sharded_plan,
    stage_links,
    training_blocks,
)


@dataclass(frozen=True, slots=True)
class Gpt:
    """A decoder; a pipeline holds its input and output embeddings separately, also where they are tied."""

    size: Dimensions
    layers: int
    tensor_parallel: int = 1
    """GPUs that share each layer, and so each stage: one device of the plan."""

    def with_micro_batch(self, sequences: int) -> Gpt:
        """The same network fed with that many sequences at a time."""
        return replace(self, size=replace(self.size, micro_batch=sequences))


PADDED_VOCABULARY = 50_304
"""GPT-3's 50,257 tokens, padded to a multiple of 128 as is usual, so that shards and matrix tiles are whole."""

GPT_6_7B = Gpt(Dimensions(PADDED_VOCABULARY, hidden=4096, heads=32, sequence=2048, micro_batch=1), layers=32)
"""GPT-3 6.7B [Brown 2020, table 2.1]."""

GPT_13B = Gpt(Dimensions(PADDED_VOCABULARY, hidden=5120, heads=40, sequence=2048, micro_batch=1), layers=40)
"""GPT-3 13B [Brown 2020, table 2.1]; 5120 is 40 heads of 128, where the table prints 5140."""

GPT_175B = Gpt(
    Dimensions(PADDED_VOCABULARY, hidden=12_288, heads=96, sequence=2048, micro_batch=1), layers=96, tensor_parallel=8
)
"""GPT-3 175B [Brown 2020, table 2.1], each layer over the eight GPUs of a node."""

GPT_1M = Gpt(Dimensions(vocabulary=1_000_000, hidden=4096, heads=32, sequence=2048, micro_batch=1), layers=32)
"""GPT-3 6.7B's layers under a vocabulary of a million tokens [Lin 2024, section II and table III]."""


def gpt_v_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """Embedding on the first stage, projection and loss on the last, layers cut so that the busiest stage is least."""
    return _gpt_pipeline("gpt-v", gpt, devices, split=False)


def gpt_split_v_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """The stages of `gpt_v_plan`, each backward split into input and weight gradients."""
    return _gpt_pipeline("gpt-split-v", gpt, devices, split=True)


def gpt_m_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """Layers alone as stages; embedding, projection and loss sharded over all devices."""
    stages = cut_stages(numbered(causal_layer(gpt.size), gpt.layers), devices)
    return sharded_plan("gpt-m", gpt.size, stages, None)


def _gpt_pipeline(name: str, gpt: Gpt, devices: int, *, split: bool) -> MicroBatchPlan:
    stages = in_stages(cut_stages(gpt_parts(gpt), devices), range(devices))
    return pipeline_plan(name, [stages], gpt.tensor_parallel, split=split)


def gpt_parts(gpt: Gpt) -> list[Part]:
    """The network in the order of its forward pass."""
    layer = causal_layer(gpt.size, gpt.tensor_parallel)
    first, last = embedding(gpt.size, gpt.tensor_parallel), vocabulary_loss(gpt.size, gpt.tensor_parallel)
    return [first, *numbered(layer, gpt.layers), last]


@dataclass(frozen=True, slots=True)
class Mt5:
    """An encoder and a decoder that share the input embedding; the output projection is its own [Xue 2021]."""

    size: Dimensions
    encoder_layers: int
    decoder_layers: int

    def with_micro_batch(self, pairs: int) -> Mt5:
        """The same network fed with that many pairs of sequences at a time."""
        return replace(self, size=replace(self.size, micro_batch=pairs))


MT5_XXL = Mt5(Dimensions(vocabulary=250_112, hidden=4096, heads=32, sequence=2048, micro_batch=1), 24, 24)
"""mT5-XXL's depth, width and vocabulary [Xue 2021], with the measured layer: 32 heads of 128 and an MLP of 4 x hidden
in place of 64 heads of 64 and a gated MLP of 2.5 x hidden, within a tenth of its FLOPs."""


def mt5_v_plan(mt5: Mt5, devices: int) -> MicroBatchPlan:
    """Layers cut so that the busiest stage is least."""
    return pipeline_plan("mt5-v", [in_stages(cut_stages(mt5_parts(mt5), devices), range(devices))])


def mt5_parts(mt5: Mt5) -> list[Part]:
    """The network in the order of its forward pass: embedding, encoder, the embedding again with the decoder, loss."""
    first, *decoder = numbered(decoder_layer(mt5.size), mt5.decoder_layers, "decoder")
    parts = [embedding(mt5.size), *numbered(encoder_layer(mt5.size), mt5.encoder_layers, "encoder")]
    return [*parts, join(embedding(mt5.size), first), *decoder, vocabulary_loss(mt5.size)]


def mt5_nn_plan(mt5: Mt5, devices: int) -> MicroBatchPlan:
    """Encoder layers on the first half of the devices, decoder layers on the others; all that has the size of the
    vocabulary sharded over all devices."""
    half = devices // 2
    encoder = cut_stages(numbered(encoder_layer(mt5.size), mt5.encoder_layers, "encoder"), half)
    decoder = cut_stages(numbered(decoder_layer(mt5.size), mt5.decoder_layers, "decoder"), devices - half)
    return sharded_plan("mt5-nn", mt5.size, encoder + decoder, half)


@dataclass(frozen=True, slots=True)
class Flava:
    """Two encoders of equal depth and width, and a joint one over both outputs and a token of its own."""

    hidden: int
    heads: int
    layers: int
    """Of each encoder."""
    joint_layers: int
    text_tokens: int
    image_side: int
    """Pixels of a square image."""
    vocabulary: int = 30_522
    patch_side: int = 16
    micro_batch: int = 1

    @property
    def patches(self) -> int:
        """Of one image."""
        return (self.image_side // self.patch_side) ** 2

    @property
    def text(self) -> Dimensions:
        """What the text encoder sees."""
        return Dimensions(self.vocabulary, self.hidden, self.heads, self.text_tokens, self.micro_batch)

    @property
    def vision(self) -> Dimensions:
        """What the vision encoder sees: the patches and a token for the whole."""
        return replace(self.text, sequence=self.patches + 1)

    @property
    def joint(self) -> Dimensions:
        """What the joint encoder sees."""
        return replace(self.text, sequence=self.text.sequence + self.vision.sequence + 1)


FLAVA = Flava(hidden=4096, heads=32, layers=24, joint_layers=12, text_tokens=1024, image_side=480)
"""Flava's layout, 12 + 12 + 6 layers of 768 in the original, at the size of Tessel's evaluation [Lin 2024, and its
published code]."""


def flava_plan(flava: Flava, devices: int) -> MicroBatchPlan:
    """Text stages on the first half of the devices, vision stages on the others, the joint encoder J on all.

    J is tensor-parallel inside a node; of two nodes, each takes half of the micro-batch with weights of its own, whose
    gradients are summed once a step, outside the plan.
    """
    half, nodes = devices // 2, ceil(devices / DEVICES_PER_NODE)
    text = in_stages(cut_stages(_text_parts(flava), half), range(half), "t")
    vision = in_stages(cut_stages(_vision_parts(flava), devices - half), range(half, devices), "v")
    share = replace(flava.joint, micro_batch=flava.micro_batch // nodes)
    layers = join(*numbered(encoder_layer(share, devices // nodes), flava.joint_layers, "joint"))
    joint = everywhere("J", layers, devices)
    links = [*_joined(text, flava.text, joint, nodes), *_joined(vision, flava.vision, joint, nodes)]
    static = [stage.part.static_bytes + layers.static_bytes for stage in (*text, *vision)]
    return h200_plan("flava", training_blocks((*text, *vision, joint)), [*links, link("J", "Jb")], static)


def _text_parts(flava: Flava) -> list[Part]:
    return [embedding(flava.text), *numbered(encoder_layer(flava.text), flava.layers, "text"), _projection(flava.text)]


def _vision_parts(flava: Flava) -> list[Part]:
    """The embedding of a patch is a product with its pixels in three colours."""
    pixels = linear(flava.micro_batch * flava.patches, 3 * flava.patch_side**2, flava.hidden)
    first = replace(pixels, sent_bytes=flava.vision.hidden_bytes, layers=("patches",))
    return [first, *numbered(encoder_layer(flava.vision), flava.layers, "vision"), _projection(flava.vision)]


def _projection(size: Dimensions) -> Part:
    """Into the joint encoder's space."""
    return replace(linear(size.tokens, size.hidden, size.hidden), sent_bytes=size.hidden_bytes, layers=("projection",))


def _joined(branch: tuple[Placed, ...], size: Dimensions, joint: Placed, nodes: int) -> tuple[Dependency, ...]:
    """A branch's links: its last stage sends each node the node's share of the output, which is broadcast there; the
    gradients of the other nodes' shares come back."""
    share = size.hidden_bytes / nodes
    across = (nodes - 1) * INFINIBAND.seconds(share)
    inside = broadcast_seconds(NVLINK, share, len(joint.devices) // nodes)
    return (
        *stage_links(branch),
        link(branch[-1].forward, joint.forward, across + inside),
        link(joint.backward, branch[-1].backward, across),
    )
