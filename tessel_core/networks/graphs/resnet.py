"""ResNet with bottleneck blocks [He 2016], strides in the 3 x 3 convolutions as in torchvision (v1.5)."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import GraphBuilder, Tensor
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.options import Option, option

_BLOCKS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
"""Blocks of each stage, by depth [He 2016, table 1]."""
_STEM, _EXPANSION = 64, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetSpec(GraphSpec):
    """Sizes of a ResNet; the convolution that begins it is part of the stem."""

    depth: str = option("50", Option("Depth", "Layers with weights", choices=tuple(_BLOCKS)))
    image: int = option(224, Option("Image side", "Pixels of a square image", 32, 4096))
    classes: int = option(1000, Option("Classes", "Outputs", 1, 1_000_000))


def resnet(spec: ResNetSpec) -> OperatorGraph:
    """Under tensor parallelism each device computes a share of every convolution's outputs, and they are gathered
    [Dryden 2019, filter parallelism, arXiv 1903.06681]."""
    split = spec.tensor_parallel
    check_divides("the 64 channels of the stem", _STEM, "Tensor-parallel degree", split)
    check_divides("the number of classes", spec.classes, "Tensor-parallel degree", split)
    b = GraphBuilder(spec.dtype)
    x = b.input("images", spec.micro_batch, spec.image, spec.image, 3)
    with b.inside("stem"):
        x = b.all_gather("gather", b.relu("relu", _conv_norm(b, "conv", x, _STEM // split, 7, 2)), split)
        x = b.max_pool("pool", x, 3, 2)
    for stage, blocks in enumerate(_BLOCKS[spec.depth]):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            with b.inside(f"stage{stage + 1}.{block}"):
                x = _bottleneck(b, x, _STEM * 2**stage, stride, split)
    with b.inside("head"):
        logits = b.linear("classes", b.average_pool("pool", x), spec.classes // split)
        logits = b.all_gather("gather", logits, split)
        if spec.training:
            b.cross_entropy("loss", logits)
    return b.graph("resnet", spec.micro_batch)


def _bottleneck(b: GraphBuilder, x: Tensor, width: int, stride: int, split: int) -> Tensor:
    """1 x 1, 3 x 3 and 1 x 1 beside the identity, or beside a 1 x 1 where the shape changes."""
    outputs = _EXPANSION * width
    y = b.all_gather("gather1", b.relu("relu1", _conv_norm(b, "conv1", x, width // split, 1, 1)), split)
    y = b.all_gather("gather2", b.relu("relu2", _conv_norm(b, "conv2", y, width // split, 3, stride)), split)
    y = _conv_norm(b, "conv3", y, outputs // split, 1, 1)
    if stride != 1 or x.channels != outputs:
        x = _conv_norm(b, "shortcut", x, outputs // split, 1, stride)
    elif split > 1:
        x = b.part(x, *x.shape[:-1], outputs // split)
    return b.all_gather("gather3", b.relu("relu3", b.add("add", y, x)), split)


def _conv_norm(b: GraphBuilder, name: str, x: Tensor, outputs: int, kernel: int, stride: int) -> Tensor:
    return b.batch_norm(f"{name}_norm", b.conv(name, x, outputs, kernel, stride, bias=False))


RESNET = GraphFamily(
    "resnet",
    "ResNet",
    "He et al., Deep Residual Learning for Image Recognition, CVPR 2016, arXiv 1512.03385; strides of torchvision",
    ResNetSpec,
    {f"resnet{depth}": ResNetSpec(depth=depth) for depth in _BLOCKS},
    resnet,
)
