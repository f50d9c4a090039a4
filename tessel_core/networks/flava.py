"""Flava on H200s: a text and a vision encoder side by side, and a joint encoder on all devices [Singh 2022].

Left out, each below 1 % of the network: position embeddings, pooling, and the heads and losses of pretraining.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tessel_core.costs.meshes import DEVICES_PER_NODE, INFINIBAND, NVLINK, broadcast_seconds
from tessel_core.model import Dependency, MicroBatchPlan
from tessel_core.networks.operators import linear
from tessel_core.networks.parts import Dimensions, Part, embedding, encoder_layer, join
from tessel_core.networks.pipelines import (
    Placed,
    cut_stages,
    everywhere,
    h200_plan,
    in_stages,
    link,
    stage_links,
    training_blocks,
)


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
    text = in_stages(cut_stages(_text_parts(flava), half), 0, "t")
    vision = in_stages(cut_stages(_vision_parts(flava), devices - half), half, "v")
    share = replace(flava.joint, micro_batch=flava.micro_batch // nodes)
    layers = join([encoder_layer(share, devices // nodes)] * flava.joint_layers)
    joint = everywhere("J", layers, devices)
    links = [*_joined(text, flava.text, joint, nodes), *_joined(vision, flava.vision, joint, nodes)]
    static = [stage.part.static_bytes + layers.static_bytes for stage in (*text, *vision)]
    return h200_plan("flava", training_blocks((*text, *vision, joint)), [*links, link("J", "Jb")], static)


def _text_parts(flava: Flava) -> list[Part]:
    return [embedding(flava.text), *[encoder_layer(flava.text)] * flava.layers, _projection(flava.text)]


def _vision_parts(flava: Flava) -> list[Part]:
    """The embedding of a patch is a product with its pixels in three colours."""
    pixels = linear(flava.micro_batch * flava.patches, 3 * flava.patch_side**2, flava.hidden)
    first = replace(pixels, sent_bytes=flava.vision.hidden_bytes)
    return [first, *[encoder_layer(flava.vision)] * flava.layers, _projection(flava.vision)]


def _projection(size: Dimensions) -> Part:
    """Into the joint encoder's space."""
    return replace(linear(size.tokens, size.hidden, size.hidden), sent_bytes=size.hidden_bytes)


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
