"""Convert the measured rows to work of kernels, and compute the errors of a fit on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

from tessel_core.costs.devices import H200
from tessel_core.costs.fit import CostFit, rates_of
from tessel_core.costs.kernels import Work
from tools.gpt_layer import LayerPasses, layer_cost
from tools.h200_rows import Row, rows
from tools.kernel_work import alone, attention, attention_backward, matmul, moving

RATES = rates_of(H200.device("h200"), "bf16")
LONG = 500e-6
"""Seconds from which a layer's row is not dominated by launches."""

OPERATORS: dict[str, Callable[[Row], Work]] = {
    "matmul": lambda row: matmul(*row.shape),
    "attention_fwd": lambda row: attention(*row.shape),
    "attention_bwd": lambda row: attention_backward(*row.shape),
    "layernorm": lambda row: moving("normalisation", row.bytes_moved),
    "softmax": lambda row: moving("softmax", row.bytes_moved),
    "gelu": lambda row: moving("activation", row.bytes_moved),
    "add": lambda row: moving("elementwise", row.bytes_moved),
    "copy": lambda row: moving("elementwise", row.bytes_moved),
    "embedding": lambda row: moving("embedding", row.bytes_moved),
    "cross_entropy": lambda row: moving("loss", row.bytes_moved),
}
"""Work of measured operators, by the name of their rows."""

PASSES: dict[str, Callable[[LayerPasses], float]] = {
    "layer_infer": lambda cost: cost.inference,
    "layer_fwd": lambda cost: cost.forward,
    "layer_bwd": lambda cost: cost.backward,
    "layer_bwd_input": lambda cost: cost.input_gradient,
    "layer_bwd_weight_incl_path": lambda cost: cost.parameter_gradients,
}
"""Cost of measured passes of layers, by the name of their rows."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured kernel."""

    shape: tuple[int, ...]
    work: Work
    seconds: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of some rows."""

    each: tuple[float, ...]

    @property
    def rows(self) -> int:
        return len(self.each)

    @property
    def median(self) -> float:
        return median(map(abs, self.each))

    @property
    def ninth_decile(self) -> float:
        return quantiles(map(abs, self.each), n=10, method="inclusive")[-1]

    def __str__(self) -> str:
        """Return the cells of a table: rows, median and 90th percentile in per cent."""
        if len(self.each) < 2:
            return f"{len(self.each)} | – | –"
        return f"{self.rows} | {100 * self.median:.1f} | {100 * self.ninth_decile:.1f}"


def kernel_rows() -> dict[str, list[KernelRow]]:
    """Return the measured kernels by class."""
    found: dict[str, list[KernelRow]] = {}
    for operator, work_of in OPERATORS.items():
        for shape, row in rows(operator).items():
            work = work_of(row)
            found.setdefault(work.kernel, []).append(KernelRow(shape, work, row.seconds))
    return found


def kernel_errors(fit: CostFit, measured: Iterable[KernelRow]) -> Errors:
    """Return the errors on kernels measured alone."""
    return Errors(tuple(alone(fit, row.work, RATES) / row.seconds - 1 for row in measured))


def layer_errors(
    seconds_of: Callable[[str, tuple[int, ...]], float], chosen: Callable[[str, Row], bool] = lambda name, row: True
) -> Errors:
    """Return the errors on the chosen passes of all layers.

    `seconds_of` predicts a pass of a layer of a given shape.
    """
    each = ((name, row) for name in PASSES for row in rows(name).values() if chosen(name, row))
    return Errors(tuple(seconds_of(name, row.shape) / row.seconds - 1 for name, row in each))


def predicted(fit: CostFit) -> Callable[[str, tuple[int, ...]], float]:
    """Return the model's predictor of passes of layers."""
    costs = {shape: layer_cost(*shape, fit=fit) for shape in rows("layer_fwd")}
    return lambda name, shape: PASSES[name](costs[shape])


def is_long(row: Row) -> bool:
    """Return whether launches do not dominate the row."""
    return row.seconds >= LONG


def hidden_sizes() -> list[int]:
    """Return the measured hidden sizes of layers, sorted."""
    return sorted({shape[2] for shape in rows("layer_fwd")})
