"""Swin Transformer: attention inside windows, which shift from block to block [Liu 2021]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed, Role
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network, mlp_half, unpacked
from tessel_core.options import Option, option

_PATCH, _HEAD_SIZE = 4, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinSpec(GraphSpec):
    """Sizes of Swin Transformer. Stages one, two and four have two blocks each."""

    image: int = option(224, Option("Image side", "Pixels of a square image", 32, 4096))
    channels: int = option(96, Option("Channels", "Channels of the first stage. Every stage doubles them", 32, 4096))
    depth: int = option(
        6, Option("Blocks of stage three", "Number of blocks of stage three. The other stages have two each", 2, 1000)
    )
    window: int = option(7, Option("Window", "Patches along each side of the attention window", 1, 64))
    classes: int = option(1000, Option("Classes", "Number of classes", 1, 1_000_000))


def _program(spec: SwinSpec) -> Distributed:
    check_divides("the channels", spec.channels, "the 32 channels of a head", _HEAD_SIZE)
    check_divides("the number of heads", spec.channels // _HEAD_SIZE, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the image side", spec.image, "Window x 32 pixels", 32 * spec.window)
    return swin(spec, (2, 2, spec.depth, 2), _HEAD_SIZE)


def swin(spec: SwinSpec, depths: tuple[int, ...], head_size: int) -> Distributed:
    """Build the forward pass, in training with the cross entropy, otherwise with the logits.

    `depths` is the number of blocks per stage. Inputs are `images` [n, 3, side, side], `places` [window², window²] and
    the weights. Training adds the inputs `targets` [n] and `n` (number of samples in the whole batch). For two patches
    of a window, `places` has the row of the bias table that belongs to their distance.

    Stochastic depth is left out, and so is the mask between patches that are neighbours only because of the shift.
    Tensor parallelism divides heads and MLPs.
    """
    net, number, side = Network("swin", spec.dtype), 0, spec.image // _PATCH
    places = net.ids("places", spec.window**2, spec.window**2, role=Role())
    with net.layer("embedding", number):
        pixels = net.input("images", spec.dtype, (spec.micro_batch, 3, spec.image, spec.image))
        x = net.conv("patches", pixels, spec.channels, _PATCH, _PATCH, bias=True)
        x = net.layer_norm("norm", net("patches", "permute", x, axes=(0, 2, 3, 1)))
    for stage, depth in enumerate(depths):
        for block in range(depth):
            number += 1
            with net.layer(f"stage{stage + 1}.{block}", number):
                shift = spec.window // 2 if block % 2 and side > spec.window else 0
                x = mlp_half(net, _attention(net, x, places, spec.window, head_size, shift))
        if stage < len(depths) - 1:
            side //= 2
            with net.layer(f"merging{stage + 1}", number):
                x = _merging(net, x)
    with net.layer("head", number):
        channels_first = net("pool", "permute", net.layer_norm("norm", x), axes=(0, 3, 1, 2))
        pooled = net("pool", "reshape", net("pool", "global_average_pool", channels_first), shape=(0, -1))
        logits = net.linear("classes", pooled, spec.classes)
        return net.finish({"loss": net.cross_entropy(logits)} if spec.training else {"logits": logits})


def _attention(net: Network, x: int, places: int, window: int, size: int, shift: int) -> int:
    """Apply attention inside windows of [n, height, width, channels], and a residual sum.

    The tensor is shifted by `shift` patches before and back after the attention.
    """
    _, height, width, channels = net.type_of(x).shape
    rows, columns, patches = height // window, width // window, window * window
    with net.inside("attention"):
        y = net.layer_norm("norm", x)
        if shift:
            y = net("roll", "roll", y, axes=(1, 2), shifts=(-shift, -shift))
        y = net("windows", "reshape", y, shape=(-1, rows, window, columns, window, channels))
        y = net("windows", "transpose", y, axes=(0, 1, 3, 2, 4, 5))
        y = net("windows", "reshape", y, shape=(-1, patches, channels))
        parts = unpacked(net, "qkv", y, channels, size)
        y = net("core", "attention_bias", *parts, _position_bias(net, places, window, channels // size), head_size=size)
        weight = net.parameter("projection.weight", channels, channels, cut=0, grain=size)
        y = net("projection", "matmul", y, weight)
        y = net("image", "reshape", y, shape=(-1, rows, columns, window, window, channels))
        y = net("image", "transpose", y, axes=(0, 1, 3, 2, 4, 5))
        y = net("image", "reshape", y, shape=(-1, height, width, channels))
        if shift:
            y = net("roll_back", "roll", y, axes=(1, 2), shifts=(shift, shift))
        return net("add", "residual", x, y, net.parameter("projection.bias", channels))


def _position_bias(net: Network, places: int, window: int, heads: int) -> int:
    """Return the position bias [1, heads, patches, patches]: a number per head and pair of patches in a window."""
    table, patches = net.embedding("bias", places, (2 * window - 1) ** 2, heads, cut=True), window * window
    return net("bias", "reshape", net("bias", "permute", table, axes=(2, 0, 1)), shape=(1, heads, patches, patches))


def _merging(net: Network, x: int) -> int:
    """Merge each square of 2 x 2 patches: concatenate their channels and project them to half as many channels."""
    _, height, width, channels = net.type_of(x).shape
    x = net("neighbours", "reshape", x, shape=(-1, height // 2, 2, width // 2, 2, channels))
    x = net("neighbours", "transpose", x, axes=(0, 1, 3, 4, 2, 5))
    x = net("neighbours", "reshape", x, shape=(-1, height // 2, width // 2, 4 * channels))
    return net.linear("reduction", net.layer_norm("norm", x), 2 * channels, bias=False)


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
    program=_program,
)
