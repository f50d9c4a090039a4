"""Published measurements of operators on B200 and A100 PCIe cards, as runs of kernels to fit.

The rows are in tools/measured_operators.csv. They count all scores of causal attention, of which the
kernel computes half. Its backward pass counts as 2.5 forward passes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from tessel_core.costs.devices import find_device_kind
from tessel_core.costs.fit import CostFit, Rates, kind_fit, rates_of
from tessel_core.costs.kernels import Work
from tools.calibrate import COMPUTE, PER_OUTPUT, KernelRun, calibrated, run_seconds
from tools.kernel_work import matmul

ROWS = Path(__file__).with_name("measured_operators.csv")
KINDS = ("b200", "a100-pcie")
FREE = ("matmul" + COMPUTE, "matmul" + PER_OUTPUT, "attention" + COMPUTE, "attention_backward" + COMPUTE)
"""Parameters that the rows determine. Launches and memory-bound kernels stay as fitted on an H200."""
GROUPED = "grouped_matmul"

_PASSES = {"matmul": "inference", "sdp_fwd": "forward", "sdp_bwd": "backward", "group_matmul": "inference"}
_ACCUMULATED_BYTES = {"bf16": 4, "fp32": 8}
"""Bytes read and written per gradient of a weight that is added to a sum in this format."""
_FORWARDS_PER_BACKWARD = 2.5


def measured_runs(kind: str) -> list[KernelRun]:
    """Return the measured runs of a kind of device. Products of one size in different layouts are held out together."""
    text = "\n".join(line for line in ROWS.read_text("ascii").splitlines() if not line.startswith("#"))
    rows = csv.DictReader(text.splitlines())
    return [run for row in rows if row["device"] == kind for run in _run(row)]


def _run(row: dict[str, str]) -> Iterator[KernelRun]:
    shape = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row["shape"])}
    if row["operator"] == "group_matmul":
        work, counted = _grouped(shape, row["shape"]), 1.0
        group = tuple(sorted((shape["M"], shape["K"], shape["N"])))
    elif row["operator"] == "matmul":
        work, counted = matmul(shape["m"], shape["k"], shape["n"]), 1.0
        group = tuple(sorted((shape["m"], shape["k"], shape["n"])))
    else:
        work = _attention(shape, backward=row["operator"] == "sdp_bwd")
        group, counted = tuple(shape.values()), 2.0
    seconds = counted * work.flops / (float(row["peak_tflops"]) * 1e12 * float(row["fraction_of_peak"]))
    yield KernelRun((row["operator"], group), (work,), _PASSES[row["operator"]], seconds)


def _grouped(shape: dict[str, int], said: str) -> Work:
    """Return the work of the products of `ng` experts of M rows each.

    They are forward products, gradients of the rows, or gradients of the weights, which are added to a sum.
    """
    experts, m, k, n = (shape[name] for name in ("ng", "M", "K", "N"))
    flops, rows, weights, width = 2.0 * experts * m * k * n, experts * m * (k + n), experts * k * n, 2
    if "stage=bwd_grad_w" not in said:
        return Work(GROUPED, flops, (rows + weights) * width, 0.0)
    accumulated = _ACCUMULATED_BYTES["fp32" if "main_grad_dtype=fp32" in said else "bf16"]
    return Work(GROUPED, flops, rows * width + weights * accumulated, 0.0)


def _attention(shape: dict[str, int], *, backward: bool) -> Work:
    """Return the work of causal attention with fewer key-value heads than query heads.

    Its head size is the mean of those of keys and values.
    """
    tokens, heads, width = shape["batch"] * shape["seq_len"], shape["head_num"], 2
    size = (shape["qk_head_dim"] + shape["v_head_dim"]) / 2
    queries, shared = tokens * heads * size, tokens * shape["kv_head_num"] * size
    flops = 2.0 * shape["seq_len"] * queries
    if backward:
        return Work("attention_backward", _FORWARDS_PER_BACKWARD * flops, 4 * (queries + shared) * width, queries, size)
    return Work("attention", flops, 2 * (queries + shared) * width, queries, size)


def kind_rates(kind: str) -> Rates:
    """Return the rates in bf16 from the device's data sheet."""
    return rates_of(find_device_kind(kind).device("measured"), "bf16")


def fit_kind(kind: str, runs: list[KernelRun] | None = None) -> CostFit:
    """Fit parameters to the runs of a kind of device, starting from those of the H200.

    Experts' products are fitted separately.
    """
    runs, rates = measured_runs(kind) if runs is None else runs, kind_rates(kind)
    plain, grouped = ([run for run in runs if (run.works[0].kernel == GROUPED) is asked] for asked in (False, True))
    fit = calibrated(kind_fit("h200"), plain, rates, FREE)
    return calibrated(fit, grouped, rates, (GROUPED + COMPUTE, GROUPED)) if grouped else fit


def unseen(kind: str, parts: int = 5) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of each run as predicted by the other runs, by a constant share of the peak, and as measured.

    Sizes are divided into `parts` groups, and each group is predicted by a fit on the others. The constant is the
    median share of the others.
    """
    runs, rates = measured_runs(kind), kind_rates(kind)
    groups = {group: i % parts for i, group in enumerate(sorted({run.group for run in runs}, key=repr))}
    fitted, constant, measured = list[float](), list[float](), list[float]()
    for part in range(parts):
        rest, held_out_runs = ([run for run in runs if (groups[run.group] == part) is held] for held in (False, True))
        shares: dict[str, list[float]] = {}
        for run in rest:
            shares.setdefault(run.works[0].kernel, []).append(run.works[0].flops / (rates.matrix * run.seconds))
        usual = {kernel: sorted(some)[len(some) // 2] for kernel, some in shares.items()}
        fitted += run_seconds(fit_kind(kind, rest), held_out_runs, rates)
        constant += [run.works[0].flops / (rates.matrix * usual[run.works[0].kernel]) for run in held_out_runs]
        measured += [run.seconds for run in held_out_runs]
    return fitted, constant, measured
