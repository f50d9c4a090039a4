"""The fitted cost model: its laws, its error on the measured rows, and the shipped report."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tessel_core.costs.costed import operator_terms, timed
from tessel_core.costs.devices import DEVICE_KINDS, H200, DeviceKind, find_device_kind, origin_of_times
from tessel_core.costs.fit import FIT, CostFit, Launches, kind_fit, rates_of
from tessel_core.costs.kernels import KERNEL_CLASSES, kernel_of, launches_of
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.formats.fields import read_with
from tessel_core.model import Device, DeviceTime, Operator, OperatorGraph, PeakRate
from tools.calibrate import run_seconds
from tools.cost_figures import peers_table, unseen_hidden
from tools.cost_fitting import fit_all
from tools.cost_report import kinds_section, shipped_sections
from tools.cost_rows import is_long, layer_errors, predicted
from tools.gpt_layer import layer_cost
from tools.kernel_work import fit_text
from tools.measured_rows import KINDS as KINDS_WITH_ROWS
from tools.measured_rows import fit_kind, kind_rates, measured_runs, unseen
from tools.robust_fit import minimize

H100, V100 = find_device_kind("h100"), find_device_kind("v100")

REPORT = Path(__file__).resolve().parent.parent / "docs" / "cost_model.md"
ONE = H200.device("gpu0")
KINDS = ("matmul", "conv_backward", "attention", "attention_backward", "layer_norm", "softmax", "gelu_backward", "add")
devices = st.sampled_from(tuple(DEVICE_KINDS.values()))
amounts = st.floats(1, 1e15)


# The rows.


def test_the_report_says_what_the_shipped_parameters_do():
    text = REPORT.read_text(encoding="utf-8")
    for section in shipped_sections(kind_fit("h200")):
        assert section in text


def test_the_shipped_parameters_are_those_of_the_rows():
    """They agree to a thousandth, because the last digits depend on the linear-algebra library."""
    again, shipped = fit_all(), kind_fit("h200")
    assert again.wait_alone == shipped.wait_alone
    assert again.launches.backward == pytest.approx(shipped.launches.backward, rel=1e-3)
    for one, other in zip(again.kernels, shipped.kernels, strict=True):
        assert one.name == other.name
        assert (one.launch, one.memory, one.per_output, one.even_head) == pytest.approx(
            (other.launch, other.memory, other.per_output, other.even_head), rel=1e-3
        )


def test_layers_are_as_close_as_asked_also_of_hidden_sizes_that_were_left_out():
    """Half of the passes of 500 µs and more are within 8 %, and half of the shorter ones within 20 %."""
    for predict in (predicted(kind_fit("h200")), unseen_hidden()):
        assert layer_errors(predict, lambda _, row: is_long(row)).median <= 0.08
        assert layer_errors(predict, lambda _, row: not is_long(row)).median <= 0.20


@pytest.mark.parametrize("hidden", [768, 1024, 1280, 2560, 4096, 12288])
def test_every_model_that_was_left_out_is_within_eight_per_cent(hidden):
    assert layer_errors(unseen_hidden(), lambda _, row: row.shape[2] == hidden).median <= 0.08


def test_the_model_is_closer_than_simpler_ones():
    lines = dict(peers_table(kind_fit("h200"), unseen_hidden()).lines)
    model = lines["the model, hidden size left out"]
    for peer in ("curve through measured layers, hidden size left out", "roofline of the data sheet"):
        assert all(ours.median < theirs.median for ours, theirs in zip(model, lines[peer], strict=True))


def test_kinds_with_measured_rows_are_closer_than_a_constant_share() -> None:
    """The fit did not see the sizes of these rows. The shipped parameters are fitted on all rows."""
    assert kinds_section() in REPORT.read_text(encoding="utf-8")
    for kind in KINDS_WITH_ROWS:
        fitted, constant, measured = (np.array(each) for each in unseen(kind))
        ours, theirs = (np.abs(each / measured - 1) for each in (fitted, constant))
        assert ours.mean() < theirs.mean()
        assert np.quantile(ours, 0.9) < np.quantile(theirs, 0.9)
        again, shipped = fit_kind(kind), kind_fit(kind)
        for one, other in zip(again.kernels, shipped.kernels, strict=True):
            assert (one.compute or 0, one.per_output) == pytest.approx((other.compute or 0, other.per_output), rel=1e-3)
    product = Operator("w", "matmul", flops=2.0 * 4096 * 8192 * 8192, bytes=3e8, output_bytes=70_000_000)
    b200 = DEVICE_KINDS["b200"].device("d")
    own, estimated = (operator_terms(product, b200, "bf16", fit=fit).seconds for fit in (None, kind_fit("h200")))
    assert own > 1.1 * estimated


# Laws.


@given(devices, st.sampled_from((*KINDS, "unheard of")), st.sampled_from(("bf16", "fp32", "fp8")), amounts, amounts)
def test_nothing_is_faster_than_the_data_sheet(kind: DeviceKind, operator: str, dtype: str, flops: float, moved: float):
    assume(dtype != "fp8" or kind.device("d").peak("fp8"))
    device = kind.device("d")
    seconds = operator_terms(Operator("o", operator, flops=flops, bytes=moved), device, dtype).seconds
    assert seconds >= max(flops / rates_of(device, dtype).matrix, moved / kind.memory_bandwidth)
    assert seconds < float("inf")


@given(devices, st.sampled_from((*KINDS, "unheard of")), amounts, amounts, st.floats(1, 8), st.integers(0, 2**40))
def test_more_work_never_takes_less_time(
    kind: DeviceKind, operator: str, flops: float, moved: float, factor: float, out: int
):
    def seconds(flops: float, moved: float, out: int) -> float:
        one = Operator("o", operator, flops=flops, bytes=moved, output_bytes=out)
        return operator_terms(one, kind.device("d"), "bf16").seconds

    least = seconds(flops, moved, out) * (1 - 1e-12)
    assert seconds(flops * factor, moved, out) >= least
    assert seconds(flops, moved * factor, out) >= least
    if out:
        assert seconds(flops, moved, 2 * out) >= least


@given(st.floats(0, 1), st.floats(1e-9, 1), st.floats(1, 16))
def test_launch_and_work_overlap(launching: float, busy: float, overlap: float):
    joined = CostFit(overlap, 1.0, Launches(1, 1, 1), ()).joined(launching, busy)
    assert max(launching, busy) <= joined <= (launching + busy) * (1 + 1e-12)


def test_thin_products_run_slower_than_square_ones():
    """(8192 x 768) (768 x 50304) reuses less data than (8192 x 4096) (4096 x 9432), with equal FLOPs."""
    thin = Operator("o", "matmul", flops=2 * 8192 * 768 * 50304, bytes=914030592, output_bytes=8192 * 50304 * 2)
    even = Operator("o", "matmul", flops=2 * 8192 * 4096 * 9432, bytes=298909696, output_bytes=8192 * 9432 * 2)
    assert operator_terms(thin, ONE, "bf16").seconds > 1.2 * operator_terms(even, ONE, "bf16").seconds


# Kinds, devices, formats.


def test_kinds_have_classes_and_classes_have_parameters():
    assert {each.name for each in kind_fit("h200").kernels} == set(KERNEL_CLASSES)
    for kind, name in (
        ("matmul", "matmul"),
        ("Conv", "matmul"),
        ("linear_input_gradient", "matmul"),
        ("batch_norm_backward", "normalisation_backward"),
        ("relu_backward", "elementwise"),
        ("attention_backward", "attention_backward"),
        ("all_reduce", "collective"),
        ("", "general"),
    ):
        assert kernel_of(kind) == name
    assert (launches_of("conv_backward"), launches_of("conv_weight_gradient"), launches_of("relu_backward")) == (
        2,
        1,
        1,
    )


def test_every_parameter_is_physical():
    for each in kind_fit("h200").kernels:
        assert each.launch > 0
        assert 0 < each.memory <= 1
        assert each.compute is None or 0 < each.compute <= 1
        assert each.per_output >= 0
        assert each.even_head >= 0


def test_other_devices_take_their_own_peaks():
    """The same products reach the same share of the peak.

    Memory-bound kernels scale with bandwidth, apart from launches.
    """
    product, copy = Operator("o", "matmul", flops=1e15, bytes=1.0), Operator("o", "copy", flops=0.0, bytes=1e12)
    h100 = H100.device("d")
    assert operator_terms(product, h100, "bf16").seconds == pytest.approx(operator_terms(product, ONE, "bf16").seconds)
    ratio = operator_terms(copy, h100, "bf16").seconds / operator_terms(copy, ONE, "bf16").seconds
    assert ratio == pytest.approx(H200.memory_bandwidth / H100.memory_bandwidth, rel=1e-6)
    assert layer_cost(1, 2048, 4096, 32, device=V100.device("d")).forward > layer_cost(1, 2048, 4096, 32).forward


def test_a_format_without_units_is_computed_in_fp32_and_fp8_is_refused():
    assert rates_of(ONE, "fp8").matrix == pytest.approx(0.93 * 1979e12), "measured beside bf16"
    with pytest.raises(InputError, match=r"^device d: has no flops.fp8, from which times could be derived$"):
        rates_of(V100.device("d"), "fp8")
    assert rates_of(V100.device("d"), "bf16").matrix == V100.device("d").peak("fp32")
    faster = Device("d", "new", flops=(PeakRate("fp8", 2e15), PeakRate("bf16", 1e15)), memory_bandwidth=1e12)
    assert rates_of(faster, "fp8").matrix == pytest.approx(0.93 * 2e15)


def test_training_launches_take_longer_than_inference():
    small = Operator("f", "add", flops=1.0, bytes=8.0)
    back = Operator("b", "add_backward", flops=1.0, bytes=8.0, backward=True, forward_of="f")
    inference = timed(OperatorGraph("g", (small,)), [ONE]).operators[0].time_on("h200")
    forward, backward = (each.time_on("h200") for each in timed(OperatorGraph("g", (small, back)), [ONE]).operators)
    assert inference < forward < backward


def test_times_of_other_kinds_than_the_fitted_one_are_called_estimates():
    assert origin_of_times(find_mesh("h200-8")) == "times fitted on an H200"
    assert origin_of_times(find_mesh("h200-8-a100-8")) == "times estimated for a100"
    assert origin_of_times(find_mesh("b200-8")) == "times from measured fractions of the peak of b200"


# Bad input.


def test_a_rate_that_is_missing_is_named_only_where_it_is_needed():
    bare = Device("odd", "odd", memory_bandwidth=1e12)
    known = Operator("o", flops=1.0, bytes=1.0, times=(DeviceTime("odd", 3.0),))
    assert timed(OperatorGraph("g", (known,)), [bare]).operators[0].time_on("odd") == 3.0
    with pytest.raises(InputError, match=r"^device odd: has no flops.bf16, from which times could be derived$"):
        timed(OperatorGraph("g", (Operator("o", flops=1.0),)), [bare])
    with pytest.raises(InputError, match=r"^dtype: 'int3' is not known"):
        operator_terms(Operator("o", flops=1.0), ONE, "int3")


# The file, and the fit.


def test_the_file_round_trips_and_refuses_what_it_does_not_know():
    text = fit_text(kind_fit("h200"))
    assert read_with(FIT.from_fields, text.encode(), "f") == kind_fit("h200")
    with pytest.raises(InputError, match=r"^f: kernels\[0\]: unknown key 'lunch'"):
        read_with(FIT.from_fields, text.replace('"launch"', '"lunch"', 1).encode(), "f")
    with pytest.raises(InputError, match="version 2 is not known"):
        read_with(FIT.from_fields, text.replace('"version": 1', '"version": 2').encode(), "f")


def test_products_of_experts_are_near_what_a_b200_measured() -> None:
    """The median error of 108 rows. As one plain product they would be 30 % off."""
    runs = [run for run in measured_runs("b200") if run.works[0].kernel == "grouped_matmul"]
    errors = np.abs(np.array(run_seconds(kind_fit("b200"), runs, kind_rates("b200"))) / [r.seconds for r in runs] - 1)
    assert len(runs) == 108
    assert np.median(errors) < 0.09
    assert np.quantile(errors, 0.9) < 0.23


@pytest.mark.parametrize("kind", ["b200", "h200", "h100", "a100-pcie"])
def test_experts_with_few_rows_are_slow(kind: str) -> None:
    """With 128 rows each, experts reach at most half the speed of 1024 rows each, for equal total rows."""

    def seconds(name: str, experts: int, rows: int, k: int = 7168, n: int = 4096) -> float:
        work = Operator(
            "o",
            name,
            flops=2.0 * experts * rows * k * n,
            bytes=2.0 * experts * (rows * k + k * n + rows * n),
            output_bytes=2 * experts * rows * n,
        )
        return operator_terms(work, find_device_kind(kind).device("d"), "bf16").seconds

    few, many = seconds("grouped_matmul", 256, 128), seconds("grouped_matmul", 32, 1024)
    assert few > 1.5 * many
    assert few > seconds("matmul", 256, 128)
    assert many < seconds("grouped_matmul", 64, 512) < seconds("grouped_matmul", 128, 256) < few


@cache
def _line() -> tuple[np.ndarray, np.ndarray]:
    at = np.linspace(0, 4, 40)
    values = 3 * np.exp(-0.5 * at)
    values[7] *= 20  # an outlier
    return at, np.log(values)


def test_the_robust_fit_finds_parameters_despite_an_outlier():
    at, values = _line()
    found = minimize(lambda x: x[0] + x[1] * at - values, np.array([0.0, 0.0]))
    assert found == pytest.approx([np.log(3), -0.5], abs=0.02)
