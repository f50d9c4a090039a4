"""Training of a multi-layer perceptron, as the DistIR paper measures it [Santhanam 2021, section 5]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed, Piece, Role, check_degree
from tessel_core.ir.program import Tag
from tessel_core.ir.types import TensorType, check_real


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


def mlp_training(spec: MlpSpec) -> Distributed:
    """Forward, squared loss, backward on device 1; outputs are the loss, the input's gradient and the weights'.

    Tensor parallelism cuts weights of even layers by columns and of odd ones by rows.
    """
    build = ProgramBuilder(f"mlp-{spec.layers}x{spec.width}")
    square, rows = (spec.width, spec.width), (spec.batch, spec.width)
    x = build.input("x", TensorType(spec.dtype, rows, 1))
    z = build.input("z", TensorType(spec.dtype, rows, 1))
    n = build.input("n", TensorType("int32", (), 1))
    weights = [build.input(f"w{i}", TensorType(spec.dtype, square, 1)) for i in range(spec.layers)]
    taken, sums, a = [], [], x
    for i, weight in enumerate(weights):
        forward = Tag(stage=i, phase="forward")
        taken.append(a)
        sums.append(build.one("matmul", [a, weight], forward))
        a = build.one("relu", [sums[-1]], forward)
    loss = build.one("loss", [a, z, n], Tag(spec.layers - 1, phase="forward"))
    gradient = by_output = build.one("loss_grad", [a, z, n], Tag(spec.layers - 1, phase="forward"))
    gradients = list[int]()
    for i in reversed(range(spec.layers)):
        backward = Tag(stage=i, phase="backward")
        gradient = build.one("relu_grad", [sums[i], gradient], backward)
        gradient, by_weight = build.add("matmul_grad", [taken[i], weights[i], gradient], backward)
        gradients.append(by_weight)
    names = [f"w{i}" for i in range(spec.layers)]
    outputs = ["loss", "dx", *(f"d{name}" for name in reversed(names))]
    roles = {name: Role(shard_axis=1 - i % 2) for i, name in enumerate(names)}
    roles |= {f"d{name}": Role(shard_axis=roles[name].shard_axis, gradient_of=name) for name in names}
    roles |= dict.fromkeys(("x", "z", "loss", "dx"), Role(batch_axis=0)) | {"n": Role()}
    program = build.finish([loss, gradient, *gradients])
    inputs = tuple(map(Piece, ("x", "z", "n", *names)))
    return Distributed(program, inputs, tuple(map(Piece, outputs)), roles, frozenset((by_output,)))
