"""FP8 linear layers. Their products are marked, and the cost model uses the duration of an FP8 product."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.formats import FORMAT, FP8
from tessel_core.ir.program import Op
from tessel_core.ir.transforms.sharding import one_device

_GROUPED = "grouped_matmul"
_WEIGHT_OF = {
    **dict.fromkeys(("matmul", "matmul_grad", "matmul_weight_grad", "linear"), 1),
    **dict.fromkeys((_GROUPED, f"{_GROUPED}_grad", f"{_GROUPED}_weight_grad"), 2),
    **dict.fromkeys(("matmul_input_grad", f"{_GROUPED}_input_grad"), 0),
}
"""For each product, the index of the linear layer's weight among its inputs."""
_UNMARKED = ("head", "router")
"""If a name contains one of these parts, its product keeps its format: projections to the vocabulary and routers."""


@dataclass(frozen=True, slots=True)
class Fp8Linears:
    """Marks the products of linear layers, forward and backward, as FP8 products with one scale per tensor.

    Weights, activations and messages between devices keep their number format. Before a product, its factors are scaled
    by their largest magnitude and cast to FP8 [torchao, float8 dynamic tensorwise scaling]. Attention, embeddings,
    routers and the projection to the vocabulary are not marked. The mark changes only costs. The rounding of FP8 is not
    modelled, so the program computes the same results.

    Raises InputError for a program of several devices. Apply this transform before tensor parallelism.
    """

    experts: bool = True
    """Whether products of experts are marked, too [DeepSeek-AI 2024, arXiv 2412.19437, section 3.3]."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model, on one device, with the attribute `format` on the marked products."""
        program = model.program
        one_device(model, "FP8")
        weights = {value for value, piece in model.piece_of.items() if model.role_of(piece).weight}
        marked = {FORMAT: FP8}
        ops = tuple(op.with_attributes(**marked) if self._is_linear(op, weights) else op for op in program.ops)
        return replace(model, program=replace(program, ops=ops))

    def _is_linear(self, op: Op, weights: set[int]) -> bool:
        if op.kind not in _WEIGHT_OF or (op.kind.startswith(_GROUPED) and not self.experts):
            return False
        return op.inputs[_WEIGHT_OF[op.kind]] in weights and not set(_UNMARKED) & set(op.tag.name.split("/"))
