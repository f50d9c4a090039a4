"""Flava: a text encoder, an image encoder, and a joint encoder of both outputs [Singh 2022]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides, check_positions
from tessel_core.networks.modules import Network, check_heads, class_token, encoder, image_tokens
from tessel_core.options import Option, option

_TYPES = 2
"""Number of token types that the text encoder distinguishes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavaSpec(GraphSpec):
    """Sizes of Flava. A sample is a text with an image."""

    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Heads of each attention", 1, 1024))
    layers: int = option(12, Option("Layers", "Layers of the text encoder and of the image encoder, each", 1, 1000))
    joint_layers: int = option(6, Option("Joint layers", "Layers of the joint encoder", 1, 1000))
    sequence: int = option(77, Option("Text length", "Tokens per text", 1, 1_048_576))
    positions: int = option(512, Option("Positions", "Rows of the text encoder's position table", 1, 1_048_576))
    image: int = option(224, Option("Image side", "Pixels of a square image", 16, 4096))
    patch: int = option(16, Option("Patch side", "Pixels of a square patch", 1, 256))
    vocabulary: int = option(30_522, Option("Vocabulary", "Number of different tokens", 2, 10_000_000))


def flava(spec: FlavaSpec) -> Distributed:
    """Build the forward pass, in training with a squared loss, otherwise with the joint encoder's output.

    Inputs are `tokens` and `types` [n, text length], `positions` [text length], `images` [n, 3, side, side] and the
    weights. Training adds the inputs `targets`, with the shape of the output, and `n` (number of samples in the whole
    batch). Layers are pre-norm. Poolers, heads and losses of pretraining are left out.

    Raises InputError in these cases:

    - The number of heads does not divide the hidden size.
    - The number of devices does not divide the heads.
    - The patch size does not divide the image size.
    - The text is longer than the position table.
    """
    check_heads(spec.hidden, spec.heads, spec.tensor_parallel)
    check_divides("the image side", spec.image, "Patch side", spec.patch)
    check_positions("Text length", spec.sequence, spec.positions)
    net, last = Network("flava", spec.dtype), 2 * spec.layers + spec.joint_layers - 1
    text = _encoder(net, "text", _text(net, spec), spec.layers, 0, spec.heads)
    image = _encoder(net, "image", _image(net, spec), spec.layers, spec.layers, spec.heads)
    with net.layer("joint_embedding", 2 * spec.layers):
        parts = [net.linear("text", text, spec.hidden), net.linear("image", image, spec.hidden)]
        both = net("concat", "concat", class_token(net, spec.micro_batch, spec.hidden), *parts, axis=1)
    joint = _encoder(net, "joint", both, spec.joint_layers, 2 * spec.layers, spec.heads)
    if not spec.training:
        return net.finish({"joint": joint})
    with net.layer("head", last):
        return net.finish({"loss": net.squared_loss(joint)})


def _encoder(net: Network, name: str, x: int, layers: int, first: int, heads: int) -> int:
    """Add encoder layers, numbered from `first`, and a final norm."""
    x = encoder(net, name, x, layers, first, heads)
    with net.layer(f"{name}_end", first + layers - 1):
        return net.layer_norm("norm", x)


def _text(net: Network, spec: FlavaSpec) -> int:
    """Return the sum of the embeddings of tokens, positions and token types."""
    with net.layer("text_embedding", 0):
        ids, types = (net.ids(name, spec.micro_batch, spec.sequence) for name in ("tokens", "types"))
        tokens = net.embedding("tokens", ids, spec.vocabulary, spec.hidden)
        kinds = net.embedding("types", types, _TYPES, spec.hidden)
        places = net.ids("positions", spec.sequence, role=Role())
        positions = net.embedding("positions", places, spec.positions, spec.hidden)
        x = net("add_positions", "bias", net("add", "add", tokens, kinds), positions)
        return net.layer_norm("norm", x)


def _image(net: Network, spec: FlavaSpec) -> int:
    with net.layer("image_embedding", spec.layers):
        return image_tokens(net, spec.micro_batch, spec.image, spec.patch, spec.hidden)


FLAVA = GraphFamily(
    "flava",
    "Flava",
    "Singh et al., FLAVA: A Foundational Language And Vision Alignment Model, CVPR 2022, arXiv 2112.04482",
    FlavaSpec,
    {"flava": FlavaSpec()},
    program=flava,
)
