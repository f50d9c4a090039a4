"""ResNet with bottleneck blocks [He 2016]. The strides are in the 3 x 3 convolutions, as in torchvision (v1.5)."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network, swept
from tessel_core.options import Option, option

_BLOCKS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
"""Number of blocks of each stage, by number of layers [He 2016, table 1]."""
_WIDTH, _EXPANSION = 64, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetSpec(GraphSpec):
    """Sizes of ResNet."""

    depth: str = option("50", Option("Depth", "Number of layers with weights", choices=tuple(_BLOCKS)))
    image: int = option(224, Option("Image side", "Pixels of a square image", 32, 4096))
    classes: int = option(1000, Option("Classes", "Number of classes", 1, 1_000_000))


def _program(spec: ResNetSpec) -> Distributed:
    check_divides(f"the {_WIDTH} channels of the stem", _WIDTH, "Tensor-parallel degree", spec.tensor_parallel)
    check_divides("the number of classes", spec.classes, "Tensor-parallel degree", spec.tensor_parallel)
    return resnet(spec, _BLOCKS[spec.depth])


def resnet(spec: ResNetSpec, blocks: tuple[int, ...], width: int = _WIDTH) -> Distributed:
    """Build the forward pass, in training with the cross entropy, otherwise with the logits.

    `blocks` is the number of blocks per stage, and `width` the number of channels of the stem. Inputs are `images` [n,
    3, side, side] and the weights. Training adds the inputs `targets` [n] and `n` (number of samples in the whole
    batch). Running averages of the batch norms are left out.

    With tensor parallelism, each device computes some output channels of every convolution. Then all channels are
    gathered [Dryden 2019, filter parallelism, arXiv 1903.06681].
    """
    net, number = Network("resnet", spec.dtype), 0
    with net.layer("stem", number):
        x = net.input("images", spec.dtype, (spec.micro_batch, 3, spec.image, spec.image))
        x = _relu(net, "relu", _conv_norm(net, "conv", x, width, 7, 2))
        x = net("pool", "max_pool", x, kernel=(3, 3), **swept(3, 2))
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride, number = 2 if block == 0 and stage > 0 else 1, number + 1
            with net.layer(f"stage{stage + 1}.{block}", number):
                x = _bottleneck(net, x, width * 2**stage, stride)
    with net.layer("head", number):
        pooled = net("pool", "reshape", net("pool", "global_average_pool", x), shape=(0, -1))
        logits = net.linear("classes", pooled, spec.classes, cut=True)
        return net.finish({"loss": net.cross_entropy(logits)} if spec.training else {"logits": logits})


def _bottleneck(net: Network, x: int, width: int, stride: int) -> int:
    """Apply 1 x 1, 3 x 3 and 1 x 1 convolutions, and add the input.

    If the shape changes, add its 1 x 1 projection instead.
    """
    outputs = _EXPANSION * width
    y = _relu(net, "relu1", _conv_norm(net, "conv1", x, width, 1, 1))
    y = _relu(net, "relu2", _conv_norm(net, "conv2", y, width, 3, stride))
    y = _conv_norm(net, "conv3", y, outputs, 1, 1)
    if stride != 1 or net.type_of(x).shape[1] != outputs:
        x = _conv_norm(net, "shortcut", x, outputs, 1, stride)
    return _relu(net, "relu3", net("add", "add", y, x))


def _conv_norm(net: Network, name: str, x: int, outputs: int, kernel: int, stride: int) -> int:
    return net.batch_norm(f"{name}_norm", net.conv(name, x, outputs, kernel, stride, cut=True), cut=True)


def _relu(net: Network, name: str, x: int) -> int:
    """Apply a ReLU that keeps its output for the backward pass. The next convolution keeps this tensor, too."""
    return net(name, "relu", x, keeps_output=1)


RESNET = GraphFamily(
    "resnet",
    "ResNet",
    "He et al., Deep Residual Learning for Image Recognition, CVPR 2016, arXiv 1512.03385; strides of torchvision",
    ResNetSpec,
    {f"resnet{depth}": ResNetSpec(depth=depth) for depth in _BLOCKS},
    program=_program,
)
