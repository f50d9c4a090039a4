"""A multilayer perceptron: products with a ReLU after each but the last."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model import OperatorGraph
from tessel_core.networks.graphs.builder import GraphBuilder
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec(GraphSpec):
    """Sizes of a multilayer perceptron; the micro-batch is its batch."""

    micro_batch: int = option(256, Option("Micro-batch", "Samples that pass at once", 1, 1_048_576))
    layers: int = option(8, Option("Layers", "Products", 1, 5000))
    width: int = option(512, Option("Width", "Inputs and outputs of each layer", 1, 1_048_576))


def mlp(spec: MlpSpec) -> OperatorGraph:
    """Under tensor parallelism a layer is split by outputs, the next by inputs, and their sum taken."""
    split = spec.tensor_parallel
    check_divides("the width", spec.width, "Tensor-parallel degree", split)
    b = GraphBuilder(spec.dtype)
    x = b.input("samples", spec.micro_batch, spec.width)
    for layer in range(spec.layers):
        with b.inside(f"layer{layer}"):
            by_outputs = layer % 2 == 0
            x = b.linear("product", x, spec.width // split if by_outputs else spec.width)
            x = x if by_outputs else b.all_reduce("all_reduce", x, split)
            if layer < spec.layers - 1:
                x = b.relu("relu", x)
            elif by_outputs:
                b.all_gather("all_gather", x, split)
    return b.graph("mlp", spec.micro_batch)


MLP = GraphFamily(
    "mlp",
    "Multilayer perceptron",
    "Products and ReLUs, as in DistIR: Santhanam et al. 2021, arXiv 2111.05426",
    MlpSpec,
    {"mlp-8": MlpSpec(), "mlp-16x8192": MlpSpec(layers=16, width=8192, micro_batch=1024)},
    mlp,
)
