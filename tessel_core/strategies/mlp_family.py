"""Multi-layer perceptrons, as DistIR compares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms import Optimizer, SgdUpdate
from tessel_core.networks.programs import MlpSpec, mlp_training
from tessel_core.strategies.family import Family, Size, Value


class MlpFamily(Family):
    """Training with stochastic gradient descent."""

    name = "mlp"
    title = "Multi-layer perceptron, training"
    sizes = (Size("layers", "Layers", 8), Size("width", "Width", 512), Size("batch", "Batch", 256),
             Size("dtype", "Formats", "fp16"))  # fmt: skip

    def spec(self, *values: Any, **named: Any) -> MlpSpec:
        """Layers, width, batch and dtype."""
        defaults = {size.name: size.default for size in self.sizes[len(values) :]}
        return MlpSpec(*values, **{**defaults, **named})

    def build(self, spec: MlpSpec) -> Distributed:
        """Forward, loss and backward."""
        return mlp_training(spec)

    def optimizer(self, spec: MlpSpec) -> Optimizer:
        """As DistIR has it."""
        return SgdUpdate()

    def objection(self, spec: MlpSpec, tensor: int) -> str:
        """Weights are cut by columns and by rows."""
        return f"a width of {spec.width} does not divide among {tensor} devices" if spec.width % tensor else ""

    def shared_side(self, spec: MlpSpec, tensor: int) -> int:
        """The one that tensor parallelism leaves whole."""
        return spec.width

    def example(self, spec: MlpSpec, layers: int) -> MlpSpec:
        """In a format that nothing is made in by itself."""
        return MlpSpec(layers, 22, 7, "fp32")

    def numbers(self, spec: MlpSpec, rows: int, tensor: int) -> dict[str, int]:
        """`shard` is a device's part of the width."""
        return {"shard": spec.width // tensor, "width": spec.width, "rows": rows}

    def told(self, spec: MlpSpec) -> Mapping[str, Value]:
        """All of them."""
        return {"layers": spec.layers, "width": spec.width, "batch": spec.batch, "dtype": spec.dtype}

    def words(self, spec: MlpSpec) -> str:
        """As `8 x 512, batch 256, fp16`."""
        return f"{spec.layers} x {spec.width}, batch {spec.batch}, {spec.dtype}"
