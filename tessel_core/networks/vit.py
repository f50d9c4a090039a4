"""Vision transformers, and pairs of an image encoder and a text encoder as in CLIP."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network, check_heads, encoder, image_tokens, one_token
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class VitSpec(GraphSpec):
    """Sizes of a vision transformer."""

    layers: int = option(12, Option("Layers", "Layers of the image encoder", 1, 1000))
    hidden: int = option(768, Option("Hidden size", "Channels between layers", 1, 131_072))
    heads: int = option(12, Option("Heads", "Heads of each attention", 1, 1024))
    image: int = option(224, Option("Image side", "Pixels of a square image", 1, 4096))
    patch: int = option(16, Option("Patch side", "Pixels of a square patch", 1, 256))
    classes: int = option(1000, Option("Classes", "Number of classes", 2, 1_000_000))


def vit(spec: VitSpec) -> Distributed:
    """Build the forward pass, in training with the cross entropy of every image, otherwise with the logits.

    Inputs are `images` [n, 3, side, side], the row number of the class token for each image (always 0) and the weights.
    Training adds the inputs `targets` [n] and `n` (number of samples in the whole batch).

    Raises InputError if the number of heads does not divide the hidden size, the number of devices does not divide the
    heads, or the patch size does not divide the image size.
    """
    check_heads(spec.hidden, spec.heads, spec.tensor_parallel)
    check_divides("the image side", spec.image, "Patch side", spec.patch)
    net = Network("vit", spec.dtype)
    with net.layer("embedding", 0):
        x = image_tokens(net, spec.micro_batch, spec.image, spec.patch, spec.hidden)
    x = encoder(net, "layer", x, spec.layers, 0, spec.heads)
    with net.layer("head", spec.layers - 1):
        logits = net.linear("projection", one_token(net, "class", net.layer_norm("norm", x), 0), spec.classes)
        return net.finish({"loss": net.cross_entropy(logits)} if spec.training else {"logits": logits})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipSpec(GraphSpec):
    """Sizes of a pair of encoders. A sample is an image with a text."""

    layers: int = option(12, Option("Image layers", "Layers of the image encoder", 1, 1000))
    hidden: int = option(768, Option("Image hidden size", "Channels between layers of the image encoder", 1, 131_072))
    heads: int = option(12, Option("Image heads", "Heads of each attention in the image encoder", 1, 1024))
    image: int = option(224, Option("Image side", "Pixels of a square image", 1, 4096))
    patch: int = option(32, Option("Patch side", "Pixels of a square patch", 1, 256))
    text_layers: int = option(12, Option("Text layers", "Layers of the text encoder", 1, 1000))
    text_hidden: int = option(
        512, Option("Text hidden size", "Channels between layers of the text encoder", 1, 131_072)
    )
    text_heads: int = option(8, Option("Text heads", "Heads of each attention in the text encoder", 1, 1024))
    sequence: int = option(77, Option("Text length", "Tokens per text", 1, 65_536))
    vocabulary: int = option(49_408, Option("Vocabulary", "Number of different tokens", 2, 10_000_000))
    joint: int = option(512, Option("Joint size", "Channels of the outputs of both encoders", 1, 131_072))


def clip(spec: ClipSpec) -> Distributed:
    """Build the forward pass: the similarity of each image and its text and, in training, a squared loss of it.

    Inputs are `images`, the row number of the class token for each image (always 0), `tokens` [n, text length],
    `positions` and the weights. Training adds the inputs `targets` [n, 1] and `n` (number of samples in the whole
    batch). The output of the last token represents the text. Similarities between an image and other texts of the batch
    are left out. Their products are below 0.1 % of the work.

    Raises InputError if a number of heads does not divide its hidden size, the number of devices does not divide the
    heads, or the patch size does not divide the image size.
    """
    for hidden, heads in ((spec.hidden, spec.heads), (spec.text_hidden, spec.text_heads)):
        check_heads(hidden, heads, spec.tensor_parallel)
    check_divides("the image side", spec.image, "Patch side", spec.patch)
    net, layers = Network("clip", spec.dtype), spec.layers + spec.text_layers
    image, text = _image_vector(net, spec), _text_vector(net, spec)
    with net.layer("head", layers - 1):
        scale = net("scale", "exp", net.parameter("scale.weight", 1))
        alike = net("alike", "reduce_sum", net("alike", "mul", image, text), axes=(1,), keep=1)
        y = net("scale", "mul", alike, scale)
        return net.finish({"loss": net.squared_loss(y)} if spec.training else {"similarity": y})


def _image_vector(net: Network, spec: ClipSpec) -> int:
    with net.layer("image_embedding", 0):
        x = image_tokens(net, spec.micro_batch, spec.image, spec.patch, spec.hidden, bias=False)
        x = net.layer_norm("norm", x)
    x = encoder(net, "image", x, spec.layers, 0, spec.heads)
    with net.layer("image_end", spec.layers - 1):
        return _unit(net, net.layer_norm("norm", one_token(net, "class", x, 0)), spec.joint)


def _text_vector(net: Network, spec: ClipSpec) -> int:
    with net.layer("text_embedding", spec.layers):
        ids, places = (
            net.ids("tokens", spec.micro_batch, spec.sequence),
            net.ids("positions", spec.sequence, role=Role()),
        )
        tokens = net.embedding("tokens", ids, spec.vocabulary, spec.text_hidden)
        x = net("add", "bias", tokens, net.embedding("positions", places, spec.sequence, spec.text_hidden))
    x = encoder(net, "text", x, spec.text_layers, spec.layers, spec.text_heads, causal=True)
    with net.layer("text_end", spec.layers + spec.text_layers - 1):
        return _unit(net, one_token(net, "last", net.layer_norm("norm", x), spec.sequence - 1), spec.joint)


def _unit(net: Network, x: int, outputs: int) -> int:
    """Project x to `outputs` channels and normalize it to length 1."""
    y = net.linear("projection", x, outputs, bias=False)
    length = net("length", "sqrt", net("length", "reduce_sum", net("length", "mul", y, y), axes=(1,), keep=1))
    return net("unit", "div", y, length)


VIT = GraphFamily(
    "vit",
    "Vision transformer",
    "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv 2010.11929, table 1",
    VitSpec,
    {
        "vit-b-16": VitSpec(),
        "vit-b-32": VitSpec(patch=32),
        "vit-l-16": VitSpec(layers=24, hidden=1024, heads=16),
        "vit-l-32": VitSpec(layers=24, hidden=1024, heads=16, patch=32),
        "vit-h-14": VitSpec(layers=32, hidden=1280, heads=16, patch=14),
    },
    program=vit,
)
CLIP = GraphFamily(
    "clip",
    "CLIP-like pair",
    "Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021, "
    "arXiv 2103.00020",
    ClipSpec,
    {
        "clip-b-32": ClipSpec(),
        "clip-b-16": ClipSpec(patch=16),
        "clip-l-14": ClipSpec(layers=24, hidden=1024, heads=16, patch=14, text_hidden=768, text_heads=12, joint=768),
    },
    program=clip,
)
