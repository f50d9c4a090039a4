"""A network family whose layers narrow the stream and widen it again."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import Distributed
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.networks.modules import Network
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckSpec(GraphSpec):
    """Sizes of the network."""

    layers: int = option(8, Option("Layers", "Number of layers, each with two matrix products", 1, 500))
    width: int = option(1024, Option("Width", "Elements of each sample between layers", 1, 65_536))
    narrow: int = option(256, Option("Narrow width", "Elements of each sample inside a layer", 1, 65_536))


def program(spec: BottleneckSpec) -> Distributed:
    """Build the forward pass on one device; in training it ends with the squared loss."""
    check_divides("the narrow width", spec.narrow, "Tensor-parallel degree", spec.tensor_parallel)
    net = Network("bottleneck", spec.dtype)
    x = net.input("x", spec.dtype, (spec.micro_batch, spec.width))
    for layer in range(spec.layers):
        with net.layer(f"layer{layer}", layer):
            inner = net("relu", "relu", net.linear("down", x, spec.narrow, cut=True))
            x = net.residual("up", x, inner)
    if not spec.training:
        return net.finish({"y": x})
    with net.layer("head", spec.layers - 1):
        loss = net.squared_loss(x)
    return net.finish({"loss": loss})


BOTTLENECK = GraphFamily(
    "bottleneck",
    "Bottleneck",
    "An example: each layer has two products, and the first one narrows the stream",
    BottleneckSpec,
    {"bottleneck-8": BottleneckSpec(), "bottleneck-24": BottleneckSpec(layers=24, width=4096, narrow=512)},
    program,
)
