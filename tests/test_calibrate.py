"""Calibration finds the parameters with which rows were made, and reports its error on held-out rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tessel_core.costs.fit import CostFit, KernelFit, Launches, Rates, kind_fit
from tessel_core.costs.kernels import Work
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.types import TensorType
from tessel_core.simulation.costs import MeshCosts
from tessel_core.simulation.transfers import AllreduceFit
from tools.calibrate import (
    COMPUTE,
    DEVICE,
    PER_OUTPUT,
    Accuracy,
    AllreduceRow,
    KernelRun,
    calibrated,
    fit_allreduce,
    held_out,
    run_seconds,
)
from tools.cost_fitting import fit_all, layer_runs
from tools.cost_rows import LONG, RATES, hidden_sizes
from tools.kernel_work import busy, launching

SHEET = CostFit(3.0, 1.0, Launches(1, 1, 1), (KernelFit("matmul", 1e-5, 1.0, 1.0), KernelFit("elementwise", 1e-5, 1.0)))
THERE = Rates(1e15, 1e14, 4e12)


def made_runs(fit: CostFit, noise: float = 0.0) -> list[KernelRun]:
    """Return runs of ten models with small, memory-bound and compute-bound kernels.

    `CostFit` gives the time of each kernel.
    """
    draw, found = np.random.default_rng(1), []
    for i in range(60):
        size = 10 ** draw.uniform(6, 12)
        works = (Work("matmul", size * 2e2, size / 20, size**0.9), Work("elementwise", size / 100, size / 3, 0.0)) * (
            1 + i % 3
        )
        mode = ("inference", "forward", "backward")[i % 3]
        launches = getattr(fit.launches, mode) * launching(fit, works)
        seconds = fit.joined(launches, busy(fit, works, THERE)) * math.exp(noise * draw.normal())
        found.append(KernelRun(i % 10, works, mode, seconds))
    return found


def test_the_table_times_runs_as_the_cost_model_does() -> None:
    fit = kind_fit("h200")
    runs = layer_runs()[::37]
    modes = {"inference": fit.launches.inference, "forward": fit.launches.forward, "backward": fit.launches.backward}
    wanted = [fit.joined(modes[run.mode] * launching(fit, run.works), busy(fit, run.works, RATES)) for run in runs]
    assert run_seconds(fit, runs, RATES) == pytest.approx(wanted)


def test_the_parameters_of_a_device_are_found_again() -> None:
    truth = replace(SHEET, kernels=(KernelFit("matmul", 2.5e-5, 0.55, 0.7), KernelFit("elementwise", 2.5e-5, 0.55)))
    found = calibrated(SHEET, made_runs(truth), THERE)
    product, elementwise = found.kernels
    assert (product.launch, product.memory, product.compute) == pytest.approx((2.5e-5, 0.55, 0.7), rel=5e-3)
    assert (elementwise.launch, elementwise.memory) == pytest.approx((2.5e-5, 0.55), rel=5e-3)
    assert elementwise.compute is None
    assert found.launches == SHEET.launches


def test_passes_and_single_classes_may_be_free_too() -> None:
    truth = replace(
        SHEET,
        launches=Launches(1.1, 1.3, 1.6),
        kernels=(SHEET.kernels[0], replace(SHEET.kernels[1], memory=0.3)),
    )
    found = calibrated(SHEET, made_runs(truth), THERE, ("inference", "forward", "backward", "elementwise"))
    assert found.kernel("elementwise").memory == pytest.approx(0.3, rel=1e-4)
    assert found.kernel("matmul") == SHEET.kernel("matmul")
    assert (found.launches.inference, found.launches.backward) == pytest.approx((1.1, 1.6), rel=1e-4)


def test_products_of_one_class_may_be_free() -> None:
    truth = replace(SHEET, kernels=(replace(SHEET.kernels[0], compute=0.4, per_output=300.0), SHEET.kernels[1]))
    found = calibrated(SHEET, made_runs(truth), THERE, ("matmul" + COMPUTE, "matmul" + PER_OUTPUT))
    product = found.kernel("matmul")
    assert (product.compute, product.per_output) == pytest.approx((0.4, 300.0), rel=1e-3)
    assert (product.memory, found.kernel("elementwise")) == (SHEET.kernels[0].memory, SHEET.kernels[1])
    with pytest.raises(InputError, match=r"'elementwise\.compute' is not a parameter"):
        calibrated(SHEET, made_runs(truth), THERE, ("elementwise" + COMPUTE,))


def test_rows_that_were_held_out_are_predicted() -> None:
    runs = made_runs(replace(SHEET, kernels=tuple(replace(each, memory=0.5) for each in SHEET.kernels)), noise=0.05)
    unseen = held_out((run.group for run in runs), seed=3)
    assert len(unseen) == 5
    fit = calibrated(SHEET, [run for run in runs if run.group not in unseen], THERE)
    others = [run for run in runs if run.group in unseen]
    found = Accuracy.of(run_seconds(fit, others, THERE), [run.seconds for run in others])
    assert found.rows == 30
    assert found.median < 0.05
    assert found.median <= found.largest < 0.25


def test_half_of_the_h200_s_models_predict_the_other_half() -> None:
    """One seeded split. `tests/benchmarks/calibration.py` has all splits."""
    unseen = held_out(hidden_sizes(), seed=0)
    assert len(unseen) == len(hidden_sizes()) // 2
    fit = fit_all(tuple(size for size in hidden_sizes() if size in unseen))
    runs = [run for run in layer_runs() if run.group in unseen and run.seconds >= LONG]
    found = Accuracy.of(run_seconds(fit, runs, RATES), [run.seconds for run in runs])
    assert found.median <= 0.10
    assert found.mean > found.median, "a tail that the median does not show"


def test_a_split_is_seeded_and_never_empty() -> None:
    assert held_out("abcdef", 1) == held_out("abcdef", 1)
    assert len({held_out("abcdef", seed) for seed in range(20)}) > 5
    assert [len(held_out("ab", 0, share)) for share in (0.01, 0.5, 0.99)] == [1, 1, 1]
    for groups, share in (("a", 0.5), ("ab", 0.0), ("ab", 1.0)):
        with pytest.raises(InputError, match="hold-out: needs at least two groups and a share between 0 and 1"):
            held_out(groups, 0, share)


def test_correlation_does_not_see_a_common_factor_and_errors_do() -> None:
    found = Accuracy.of([2.0, 4.0, 6.6], [1.0, 2.0, 3.0])
    assert found.correlation > 0.99
    assert (found.mean, found.median, found.largest) == pytest.approx((1.0667, 1.0, 1.2), rel=1e-3)
    assert math.isnan(Accuracy.of([1.0], [1.0]).correlation)
    with pytest.raises(InputError, match="needs at least one measured row"):
        Accuracy.of([], [])


def test_unknown_parameters_and_no_runs_are_refused() -> None:
    with pytest.raises(InputError, match="'speed' is not a parameter, choose from backward, bandwidth, "):
        calibrated(SHEET, made_runs(SHEET), THERE, (*DEVICE, "speed"))
    with pytest.raises(InputError, match="calibration: has no runs"):
        calibrated(SHEET, [], THERE)


def rows_of(fit: AllreduceFit, noise: float = 0.0) -> list[AllreduceRow]:
    draw = np.random.default_rng(2)
    sizes = [(n, 10.0**power) for n in fit.per_byte for power in range(3, 10)]
    return [AllreduceRow(n, size, fit.seconds(n, size) * math.exp(noise * draw.normal())) for n, size in sizes]


def test_the_parameters_of_an_allreduce_are_found_again() -> None:
    truth = AllreduceFit({2: 2e-12, 4: 3e-12, 8: 3.4e-12}, 3e-6, 1e-5)
    found = fit_allreduce(rows_of(truth))
    assert found.per_byte == pytest.approx(truth.per_byte)
    assert (found.per_device, found.constant) == pytest.approx((3e-6, 1e-5))
    noisy = fit_allreduce(rows_of(truth, 0.05))
    errors = [abs(noisy.seconds(row.devices, row.bytes) / row.seconds - 1) for row in rows_of(truth)]
    assert max(errors) < 0.1
    single = fit_allreduce([row for row in rows_of(truth) if row.devices == 4])
    assert (single.per_device, single.constant) == pytest.approx((0.0, 1e-5 + 4 * 3e-6))


def test_starts_are_never_negative() -> None:
    falling = [AllreduceRow(n, size, 1e-12 * size + 1e-5 * (9 - n)) for n in (2, 4, 8) for size in (1e5, 1e7, 1e9)]
    found = fit_allreduce(falling)
    assert found.per_device == 0
    assert found.constant > 0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "allreduce: has no measured rows"),
        ([AllreduceRow(2, 1e6, 1e-3)], "allreduce of 2 devices: needs measurements of at least two sizes"),
        ([AllreduceRow(2, 1e6, 1e-3), AllreduceRow(2, 2e6, 1e-4)], "2 devices: must take longer for more bytes"),
    ],
)
def test_rows_that_say_too_little_are_refused(rows: list[AllreduceRow], why: str) -> None:
    with pytest.raises(InputError, match=why):
        fit_allreduce(rows)


def test_the_simulator_uses_what_was_calibrated() -> None:
    mesh = find_mesh("h200-8")
    fit = replace(
        kind_fit("h200"), kernels=tuple(replace(each, launch=2 * each.launch) for each in kind_fit("h200").kernels)
    )
    measured = AllreduceFit({4: 2e-12}, 1e-6, 5e-6)
    plain, costs = MeshCosts(mesh), MeshCosts(mesh, fit, allreduce=measured)
    small = [TensorType("fp32", (4,), 1)]
    assert costs.seconds("relu", small, small, {})[1] == pytest.approx(2 * plain.seconds("relu", small, small, {})[1])
    for size in (0, 1000, 10**8):
        four = [TensorType("int8", (size,), d) for d in (1, 2, 3, 4)]
        assert costs.seconds("allreduce", four, four, {})[1] == pytest.approx(measured.seconds(4, size))
        assert costs.seconds("allreduce", four[:2], four[:2], {}) == plain.seconds("allreduce", four[:2], four[:2], {})
