"""Swin Transformer: attention in windows that shift from block to block [Liu 2021]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.graphs.transformer import mlp
from tessel_core.options import Option, option

_STAGES, _PATCH, _HEAD_SIZE = 4, 4, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinSpec(GraphSpec):
    """Sizes of a Swin Transformer; stages one, two and four have two blocks each."""

    image: int = option(224, Option("Image side", "Pixels of a square image", 32, 4096))
    channels: int = option(96, Option("Channels", "Of the first stage; they double at each", 32, 4096))
    depth: int = option(6, Option("Blocks of stage three", "The other stages have two each", 2, 1000))
    window: int = option(7, Option("Window", "Patches along a side of the attention's window", 1, 64))
    classes: int = option(1000, Option("Classes", "Outputs", 1, 1_000_000))


def swin(spec: SwinSpec) -> OperatorGraph:
    """Heads have 32 channels; under tensor parallelism they and the MLPs are divided."""
    check_divides("the channels", spec.channels, "the 32 channels of a head", _HEAD_SIZE)
    check_divides("the number of heads", spec.channels // _HEAD_SIZE, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the image side", spec.image, "Window x 32 pixels", 32 * spec.window)
    b, side = GraphBuilder(spec.dtype), spec.image // _PATCH
    with b.inside("embedding"):
        pixels = b.input("images", spec.micro_batch, spec.image, spec.image, 3)
        x = b.layer_norm("norm", b.conv("patches", pixels, spec.channels, 4, 4, bias=True))
    for stage, depth in enumerate((2, 2, spec.depth, 2)):
        for block in range(depth):
            with b.inside(f"stage{stage + 1}.{block}"):
                x = _block(b, x, spec.window, spec.tensor_parallel, shifted=block % 2 == 1 and side > spec.window)
        if stage < _STAGES - 1:
            side //= 2
            with b.inside(f"merging{stage + 1}"):
                x = _merging(b, x)
    with b.inside("head"):
        logits = b.linear("classes", b.average_pool("pool", b.layer_norm("norm", x)), spec.classes)
        if spec.training:
            b.cross_entropy("loss", logits)
    return b.graph("swin", spec.micro_batch)


def _block(b: GraphBuilder, x: Tensor, window: int, split: int, *, shifted: bool) -> Tensor:
    """Windows are cut out, perhaps of the image rolled by half a window, and put back after the attention."""
    channels, patches = x.channels, window * window
    heads = channels // _HEAD_SIZE // split
    with b.inside("attention"):
        y = b.layer_norm("norm", x)
        if shifted:
            y = b.transpose("roll", y, *y.shape, kind="roll")
        y = b.transpose("windows", y, x.rows // patches, patches, channels)
        qkv = b.linear("qkv", y, 3 * channels // split)
        shape = (*qkv.shape[:-1], channels // split)
        y = b.attention("core", (qkv,), shape, heads, patches, table=(2 * window - 1) ** 2 * heads)
        y = b.all_reduce("all_reduce", b.linear("projection", y, channels), split)
        y = b.transpose("image", y, *x.shape)
        if shifted:
            y = b.transpose("roll_back", y, *x.shape, kind="roll")
        x = b.add("add", x, y)
    return mlp(b, x, 4 * channels, split)


def _merging(b: GraphBuilder, x: Tensor) -> Tensor:
    """2 x 2 neighbours become one vector, which is halved."""
    batch, height, width, channels = x.shape
    x = b.transpose("neighbours", x, batch, height // 2, width // 2, 4 * channels)
    return b.linear("reduction", b.layer_norm("norm", x), 2 * channels, bias=False)


SWIN = GraphFamily(
    "swin",
    "Swin Transformer",
    "Liu et al., Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, ICCV 2021, arXiv 2103.14030",
    SwinSpec,
    {
        "swin-t": SwinSpec(),
        "swin-s": SwinSpec(depth=18),
        "swin-b": SwinSpec(depth=18, channels=128),
        "swin-l": SwinSpec(depth=18, channels=192),
    },
    swin,
)
