"""Multilayer perceptrons as in the DistIR paper [Santhanam 2021, section 5]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.types import check_real
from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec, check_divides
from tessel_core.options import Option, option


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Sizes of a multilayer perceptron: layers of width x width weights, each followed by a ReLU."""

    layers: int
    width: int
    batch: int
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "batch"):
            check_degree(name, getattr(self, name))
        check_real(self.dtype)


def mlp_forward(spec: MlpSpec, *, training: bool = True) -> Distributed:
    """Build the forward pass, in training with the losses, otherwise with the last layer's output.

    Inputs are `x`, the targets `z`, `n` (number of samples in the whole batch) and the weights. Tensor parallelism
    divides the weights of even layers by columns and those of odd layers by rows.
    """
    net, rows = Definition(f"mlp-{spec.layers}x{spec.width}"), (spec.batch, spec.width)
    x = net.input("x", spec.dtype, rows)
    for i in range(spec.layers):
        with net.layer(f"layer{i}", i):
            x = net("product", "matmul", x, net.weight(f"w{i}", spec.dtype, (spec.width, spec.width), cut=1 - i % 2))
            x = net("relu", "relu", x)
    if not training:
        return net.finish({"y": x})
    with net.layer("head", spec.layers - 1):
        loss = net("loss", "loss", x, net.input("z", spec.dtype, rows), net.input("n", "int32", (), Role()))
    return net.finish({"loss": loss})


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpOptions(GraphSpec):
    """Options of the operator graph of a multilayer perceptron."""

    micro_batch: int = option(256, Option("Micro-batch", "Samples per micro-batch", 1, 1_048_576))
    layers: int = option(8, Option("Layers", "Number of matrix products", 1, 5000))
    width: int = option(
        512, Option("Width", "Number of inputs of each layer, which is also its number of outputs", 1, 1_048_576)
    )


def _program(asked: MlpOptions) -> Distributed:
    check_divides("the width", asked.width, "Tensor-parallel degree", asked.tensor_parallel)
    spec = MlpSpec(asked.layers, asked.width, asked.micro_batch, asked.dtype)
    return mlp_forward(spec, training=asked.training)


MLP = GraphFamily(
    "mlp",
    "Multilayer perceptron",
    "Matrix products without biases, each followed by a ReLU, as in DistIR: Santhanam et al. 2021, arXiv 2111.05426",
    MlpOptions,
    {"mlp-8": MlpOptions(), "mlp-16x8192": MlpOptions(layers=16, width=8192, micro_batch=1024)},
    program=_program,
)
