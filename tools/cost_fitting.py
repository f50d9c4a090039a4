"""Fit the cost model to the measured rows.

First, fit every class of kernels alone on its rows, robustly and in the logarithm of seconds. Then fit five parameters
that only whole layers show. These are the factors of autograd's launches, and the speed of the memory-bound kernels of
the backward pass, which have no rows of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tessel_core.costs.devices import H200
from tessel_core.costs.fit import CostFit, KernelFit, Launches
from tessel_core.costs.kernels import Work
from tessel_core.costs.meshes import NVLINK
from tools.calibrate import MODES, KernelRun, calibrated
from tools.cost_rows import PASSES, RATES, KernelRow, kernel_rows
from tools.gpt_layer import PARAMETER_TENSORS, GptLayer
from tools.h200_rows import rows
from tools.kernel_work import alone, moving
from tools.robust_fit import Vector, minimize

OVERLAP = 3.0
"""Exponent of the p-norm of launch time and work time.

All classes and layers share it. docs/cost_model.md has the errors for other values.
"""
WAIT_SHARES = tuple(share / 20 for share in range(4, 17))
"""Candidates for the share of its launch time that a kernel waits for if it runs alone."""
LOGIT_SHARE = 4 / 14
"""Bytes of a logit and of its gradient in bf16, divided by the bytes that the backward of the loss moves.

This was not measured. We assume that it computes an fp32 gradient from fp32 probabilities (read 4, write 4) and
converts it to bf16 (read 4, write 2).
"""
DIGITS = 5
"""Significant digits of the written parameters."""

# Free parameters of each class of kernels. Its launch time is also free, and so is its share of the bandwidth if it
# uses no matrix units.
START = {"compute": 0.7, "memory": 0.7, "per_output": 300.0, "even_head": 60.0}
FREE: dict[str, tuple[str, ...]] = {
    "matmul": ("compute", "memory", "per_output"),
    "attention": ("compute", "per_output", "even_head"),
    "attention_backward": ("compute", "per_output", "even_head"),
}
GROUPED_SHARE = 1.075
"""Share of the peak of experts' products, divided by that of plain products.

It is fitted on a B200 (`tools/measured_rows.py`), because an H200 has no such measurements. Outputs of experts'
products cost nothing extra, and arithmetic and memory traffic do not overlap.
"""
Measured = dict[str, list[KernelRow]]
MODE_OF = {"layer_infer": "inference", "layer_fwd": "forward"}
"""Mode of launches of each forward pass. Passes that are not listed are backward passes."""
FROM_LAYERS = ("activation_backward", "normalisation_backward")


@cache  # Tests leave out rows of few classes, so most fits repeat and are cached.
def fit_kernel(
    name: str, measured: tuple[KernelRow, ...], wait_alone: float, memory: float = 1.0, overlap: float = OVERLAP
) -> KernelFit:
    """Fit one class to kernels measured alone.

    `memory` is its share of the bandwidth, for classes whose rows do not determine it.
    """
    free = ("launch", *FREE.get(name, ("memory",)))
    seconds = np.array([row.seconds for row in measured])
    fixed = KernelFit(name, 0.0, memory)

    def made(values: Vector) -> KernelFit:
        found: dict[str, Any] = {key: _from_real(key, value) for key, value in zip(free, values, strict=True)}
        return replace(fixed, **found)

    def residuals(values: Vector) -> Vector:
        fit = CostFit(overlap, wait_alone, Launches(1, 1, 1), (made(values),))
        return np.log([alone(fit, row.work, RATES) for row in measured] / seconds)

    start = np.array([_to_real(key, START.get(key, float(seconds.min()))) for key in free])
    return made(minimize(residuals, start))


def fit_kernels(measured: Measured, wait_alone: float, overlap: float) -> tuple[KernelFit, ...]:
    """Fit every class that has rows. Derive the parameters of the other classes from the fitted ones."""
    fitted = {
        name: fit_kernel(name, tuple(of_class), wait_alone, overlap=overlap)
        for name, of_class in measured.items()
        if name not in FREE
    }
    plain = fitted["elementwise"]
    for name in FREE:
        fitted[name] = fit_kernel(name, tuple(measured[name]), wait_alone, plain.memory, overlap)
    product = fitted["matmul"]
    general = replace(product, name="general", memory=min(product.memory, plain.memory))
    assert product.compute is not None
    grouped = replace(
        product, name="grouped_matmul", compute=product.compute * GROUPED_SHARE, per_output=0.0, serial=True
    )
    derived = [replace(fitted[name.removesuffix("_backward")], name=name) for name in FROM_LAYERS]
    loss = replace(plain, name="loss_backward", launch=fitted["loss"].launch, memory=plain.memory * LOGIT_SHARE)
    optimizer = replace(plain, name="optimizer")
    collective = replace(plain, name="collective", memory=NVLINK.bandwidth / H200.memory_bandwidth)
    return (*fitted.values(), grouped, *derived, loss, optimizer, collective, general)


def best_wait(measured: Measured, overlap: float) -> float:
    """Return the share of its launch time that a kernel alone waits for. It minimizes the sum of absolute errors."""

    def loss(wait_alone: float) -> float:
        fit = CostFit(overlap, wait_alone, Launches(1, 1, 1), fit_kernels(measured, wait_alone, overlap))
        kernels = (row for of_class in measured.values() for row in of_class)
        return sum(abs(float(np.log(alone(fit, row.work, RATES) / row.seconds))) for row in kernels)

    return min(WAIT_SHARES, key=loss)


def fit_layers(fit: CostFit, without_hidden: Collection[int] = ()) -> CostFit:
    """Fit the five parameters that only whole layers show, without layers of some hidden sizes."""
    known = [run for run in layer_runs() if run.group not in without_hidden]
    return calibrated(fit, known, RATES, (*MODES, *FROM_LAYERS))


def layer_runs() -> list[KernelRun]:
    """Return every measured pass of every layer, grouped by hidden size.

    The whole backward also launches accumulations.
    """
    found = []
    for name in PASSES:
        accumulated = (moving("elementwise", 0.0),) * (PARAMETER_TENSORS if name == "layer_bwd" else 0)
        for shape, row in rows(name).items():
            works = (*works_of(name, GptLayer(*shape)), *accumulated)
            found.append(KernelRun(shape[2], works, MODE_OF.get(name, "backward"), row.seconds))
    return found


def fit_all(without_hidden: Collection[int] = (), overlap: float = OVERLAP) -> CostFit:
    """Fit all parameters and round them, without layers of some hidden sizes and products with such weights."""
    weights = {size * multiple for size in without_hidden for multiple in (1, 4)}
    measured = kernel_rows()
    measured["matmul"] = [row for row in measured["matmul"] if not weights & set(row.shape[1:])]
    wait_alone = best_wait(measured, overlap)
    alone = CostFit(overlap, wait_alone, Launches(1, 1, 1), fit_kernels(measured, wait_alone, overlap))
    return rounded(fit_layers(alone, without_hidden))


def works_of(name: str, layer: GptLayer) -> tuple[Work, ...]:
    """Return the kernels of a measured pass, by the name of its rows."""
    if name in MODE_OF:
        return layer.forward
    return layer.input_gradient if name == "layer_bwd_input" else (*layer.input_gradient, *layer.weight_gradients)


def _to_real(key: str, value: float) -> float:
    return float(np.log(value / (1 - value)) if key in ("compute", "memory") else np.log(value))


def _from_real(key: str, value: float) -> float:
    return float(1 / (1 + np.exp(-value)) if key in ("compute", "memory") else np.exp(value))


def short(value: float) -> float:
    """Round a number to the digits with which it is written."""
    return float(f"{value:.{DIGITS}g}")


def rounded(fit: CostFit) -> CostFit:
    """Round every parameter to the digits with which it is written."""

    def shorter(kernel: KernelFit) -> KernelFit:
        compute = None if kernel.compute is None else short(kernel.compute)
        numbers = (short(kernel.launch), short(kernel.memory), compute, short(kernel.per_output))
        return KernelFit(kernel.name, *numbers, short(kernel.even_head), kernel.serial)

    launches = Launches(short(fit.launches.inference), short(fit.launches.forward), short(fit.launches.backward))
    return replace(fit, launches=launches, kernels=tuple(map(shorter, fit.kernels)))
