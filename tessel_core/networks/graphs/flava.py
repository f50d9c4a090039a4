"""Flava: a text and an image encoder side by side, and a joint one over both outputs [Singh 2022]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import IDS_WIDTH, GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.graphs.transformer import check_heads, transformer_layer
from tessel_core.options import Option, option

_POSITIONS, _TYPES = 512, 2
"""Rows of the text encoder's tables of positions and of token types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavaSpec(GraphSpec):
    """Sizes of a Flava; a sample is a text with an image."""

    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Of each attention", 1, 1024))
    layers: int = option(12, Option("Layers", "Of the text encoder, and of the image encoder", 1, 1000))
    joint_layers: int = option(6, Option("Joint layers", "Of the encoder over both", 1, 1000))
    sequence: int = option(77, Option("Text length", "Tokens of a text", 1, _POSITIONS))
    image: int = option(224, Option("Image side", "Pixels of a square image", 16, 4096))
    patch: int = option(16, Option("Patch side", "Pixels of a square patch", 1, 256))
    vocabulary: int = option(30_522, Option("Vocabulary", "Tokens there are", 2, 10_000_000))


def flava(spec: FlavaSpec) -> OperatorGraph:
    """Three encoders of pre-norm layers; poolers, heads and losses of pretraining are left out."""
    check_heads(spec.hidden, spec.heads, spec.tensor_parallel)
    check_divides("the image side", spec.image, "Patch side", spec.patch)
    b = GraphBuilder(spec.dtype)
    text = _encoder(b, "text", _text(b, spec), spec.layers, spec)
    image = _encoder(b, "image", _image(b, spec), spec.layers, spec)
    with b.inside("joint_embedding"):
        parts = [b.linear("text", text, spec.hidden), b.linear("image", image, spec.hidden)]
        tokens = 1 + sum(part.shape[1] for part in parts)
        both = b.concat("concat", parts, (spec.micro_batch, tokens, spec.hidden), weights=spec.hidden)
    _encoder(b, "joint", both, spec.joint_layers, spec)
    return b.graph("flava", spec.micro_batch)


def _encoder(b: GraphBuilder, name: str, x: Tensor, layers: int, spec: FlavaSpec) -> Tensor:
    for layer in range(layers):
        with b.inside(f"{name}{layer}"):
            x = transformer_layer(b, x, spec.heads, spec.tensor_parallel)
    with b.inside(f"{name}_end"):
        return b.layer_norm("norm", x)


def _text(b: GraphBuilder, spec: FlavaSpec) -> Tensor:
    """Tokens, their positions and types."""
    with b.inside("text_embedding"):
        ids, types = (b.input(name, spec.micro_batch, spec.sequence, width=IDS_WIDTH) for name in ("ids", "types"))
        places = b.input("places", spec.sequence, width=IDS_WIDTH)
        tokens = b.embedding("tokens", ids, spec.vocabulary, spec.hidden)
        kinds = b.embedding("types", types, _TYPES, spec.hidden)
        positions = b.embedding("positions", places, _POSITIONS, spec.hidden)
        return b.layer_norm("norm", b.add("add", tokens, kinds, positions))


def _image(b: GraphBuilder, spec: FlavaSpec) -> Tensor:
    """Patches, a class token before them, positions [Dosovitskiy 2021]."""
    with b.inside("image_embedding"):
        pixels = b.input("images", spec.micro_batch, spec.image, spec.image, 3)
        patches = b.conv("patches", pixels, spec.hidden, spec.patch, spec.patch, bias=True)
        count = 1 + (spec.image // spec.patch) ** 2
        x = b.concat("class", (patches,), (spec.micro_batch, count, spec.hidden), weights=spec.hidden)
        return b.add("positions", x, weights=count * spec.hidden)


FLAVA = GraphFamily(
    "flava",
    "Flava",
    "Singh et al., FLAVA: A Foundational Language And Vision Alignment Model, CVPR 2022, arXiv 2112.04482",
    FlavaSpec,
    {"flava": FlavaSpec()},
    flava,
)
