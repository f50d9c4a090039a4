"""Training of a multi-layer perceptron, as the DistIR paper measures it [Santhanam 2021, section 5]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.definition import Definition
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.types import check_real


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """Layers of width x width weights, each followed by a ReLU."""

    layers: int
    width: int
    batch: int
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "batch"):
            check_degree(name, getattr(self, name))
        check_real(self.dtype)


def mlp_training(spec: MlpSpec, *, split_weights: bool = False) -> Distributed:
    """Forward, squared loss, backward; outputs are the losses, the gradients of the input and of the weights."""
    return Gradients(also=("x",), split_weights=split_weights)(mlp_forward(spec))


def mlp_forward(spec: MlpSpec) -> Distributed:
    """The forward pass of training, up to the losses.

    Inputs are `x`, the targets `z`, `n` (samples of the whole batch) and the weights.  Tensor parallelism cuts weights
    of even layers by columns and of odd ones by rows.
    """
    net, rows = Definition(f"mlp-{spec.layers}x{spec.width}"), (spec.batch, spec.width)
    x = net.input("x", spec.dtype, rows)
    for i in range(spec.layers):
        with net.layer(f"layer{i}", i):
            x = net("product", "matmul", x, net.weight(f"w{i}", spec.dtype, (spec.width, spec.width), cut=1 - i % 2))
            x = net("relu", "relu", x)
    with net.layer("head", spec.layers - 1):
        loss = net("loss", "loss", x, net.input("z", spec.dtype, rows), net.input("n", "int32", (), Role()))
    return net.finish({"loss": loss})
