"""Measured costs: exact where measured, monotone and close in between."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessel_core.costs
from tessel_core.costs import h200
from tessel_core.costs.h200 import Curve
from tessel_core.costs.meshes import INFINIBAND, NVLINK, all_gather_seconds, all_reduce_seconds, hop_seconds
from tessel_core.errors import InputError

CSV = Path(tessel_core.costs.__file__).parent / "data" / "h200_costs.csv"
with CSV.open(encoding="utf-8") as _file:
    ROWS = [row for row in csv.DictReader(_file) if row["op"] != "op"]


def measured(operator: str) -> list[tuple[tuple[int, ...], float]]:
    """(shape, median seconds) of one operator's rows, read without the code under test."""
    shapes = dict.fromkeys(row["shape"] for row in ROWS if row["op"] == operator)
    return [
        (
            tuple(map(int, shape.split("x"))),
            median(float(row["us"]) for row in ROWS if row["op"] == operator and row["shape"] == shape) * 1e-6,
        )
        for shape in shapes
    ]


@pytest.mark.parametrize(
    ("operator", "seconds", "count"),
    [
        ("matmul", h200.matmul_seconds, 175),
        ("attention_fwd", h200.attention_seconds, 12),
        ("attention_bwd", h200.attention_backward_seconds, 12),
        ("layernorm", h200.layer_norm_seconds, 7),
        ("add", h200.add_seconds, 7),
        ("embedding", h200.embedding_seconds, 4),
        ("cross_entropy", h200.cross_entropy_seconds, 3),
        ("layer_fwd", lambda *shape: h200.layer(*shape).forward, 84),
        ("layer_bwd", lambda *shape: h200.layer(*shape).backward, 84),
        ("layer_bwd_input", lambda *shape: h200.layer(*shape).input_gradient, 84),
    ],
)
def test_a_measured_shape_costs_what_was_measured(operator, seconds, count):
    rows = measured(operator)
    assert len(rows) == count
    for shape, expected in rows:
        assert seconds(*shape) == pytest.approx(expected, rel=1e-12)


def test_one_layer_by_hand():
    cost = h200.layer(1, 2048, 4096, 32, 1)
    assert cost.forward == pytest.approx(1228.672e-6)
    assert cost.backward == pytest.approx(2947.84e-6)
    assert (cost.parameters, cost.activation_bytes) == (201_379_840, 268_731_392)


def test_sizes_of_layers_follow_their_formulas():
    for row in ROWS:
        if row["op"] == "layer_fwd":
            batch, sequence, hidden, heads, split = map(int, row["shape"].split("x"))
            extra = json.loads(row["extra"])
            assert h200.layer_parameters(hidden, split) == extra["params"]
            kept = h200.layer_activation_bytes(batch, sequence, hidden, heads, split)
            assert 0.93 <= kept / extra["activation_bytes"] <= 1
            assert h200.layer_flops(batch, sequence, hidden, heads, split) == int(row["flops"])


def test_an_unmeasured_layer_lies_between_its_measured_neighbours():
    """Batch 3 was not measured, 2 and 4 were."""
    few, cost, many = (h200.layer(batch, 2048, 4096, 32, 1) for batch in (2, 3, 4))
    for part in ("forward", "backward", "input_gradient", "weight_gradient", "activation_bytes"):
        assert getattr(few, part) < getattr(cost, part) < getattr(many, part)
    assert cost.forward == pytest.approx(1.5 * few.forward, rel=0.15)
    assert cost.parameters == few.parameters


def test_more_of_a_measured_layer_runs_at_the_rate_of_its_largest_measured_batch():
    """Not at that of wider layers, whose larger matrices run faster."""
    half, cost = h200.layer(8, 2048, 4096, 32), h200.layer(16, 2048, 4096, 32)
    for part in ("forward", "backward", "input_gradient"):
        assert getattr(cost, part) == pytest.approx(2 * getattr(half, part), rel=1e-9)


@pytest.mark.parametrize("tokens", [1024, 2048, 4096])
def test_a_vocabulary_twice_as_large_costs_about_twice(tokens):
    for vocabulary in (250_112, 500_000, 1_000_000):
        for seconds in (
            lambda tokens, size: h200.matmul_seconds(tokens, 4096, size),
            h200.cross_entropy_seconds,
            h200.cross_entropy_backward_seconds,
        ):
            assert 1.8 < seconds(tokens, 2 * vocabulary) / seconds(tokens, vocabulary) < 2.2


def test_large_matrix_products_run_at_a_credible_speed():
    """Between half of the dense bf16 peak of 989 TFLOP/s [NVIDIA H200 data sheet] and the peak."""
    speed = 2 * 2048 * 4096 * 1e6 / h200.matmul_seconds(2048, 4096, 1_000_000)
    assert 0.5 * 989e12 < speed < 989e12


def test_memory_bound_work_runs_at_a_credible_speed():
    """Below the 4.8 TB/s of HBM3e [NVIDIA H200 data sheet], above 3/4 of it."""
    for speed in (10e9 / h200.move_seconds(10e9), 6e9 / h200.add_seconds(10**9)):
        assert 0.75 * 4.8e12 < speed < 4.8e12


points = st.lists(st.tuples(st.floats(1, 1e15), st.floats(1e-6, 1)), min_size=1, max_size=12)


@given(points, st.floats(1e-3, 1e18), st.floats(1, 100))
def test_more_work_never_takes_less_time(through, work, factor):
    curve = Curve.through(through)
    assert curve(work * factor) >= curve(work) * (1 - 1e-9)


@given(st.lists(st.floats(1, 1e12), min_size=2, max_size=8, unique=True))
def test_a_rising_curve_passes_its_points(work):
    """A constant rate is kept between the points and beyond them."""
    curve = Curve.through((each, each * 3e-9) for each in work)
    for amount in (*work, (min(work) * max(work)) ** 0.5, max(work) * 7):
        assert curve(amount) == pytest.approx(amount * 3e-9, rel=1e-6)
    assert curve(min(work) / 2) == pytest.approx(min(work) * 3e-9)


def test_links_by_hand():
    assert NVLINK.seconds(450e6) == pytest.approx(1.002e-3)
    assert all_reduce_seconds(NVLINK, 450e6, 2) == pytest.approx(1e-3 + 4e-6)
    assert all_reduce_seconds(NVLINK, 450e6, 8) == pytest.approx(1.75e-3 + 28e-6)
    assert all_reduce_seconds(NVLINK, 450e6, 1) == 0
    assert INFINIBAND.seconds(450e6) == pytest.approx(9.005e-3)


def test_an_all_reduce_is_two_all_gathers():
    """A reduce-scatter takes as long as the all-gather after it."""
    for link in (NVLINK, INFINIBAND):
        for devices in (1, 2, 8):
            assert all_reduce_seconds(link, 1e6, devices) == pytest.approx(2 * all_gather_seconds(link, 1e6, devices))


def test_hops_inside_a_node_are_nvlink_and_between_nodes_infiniband():
    for sender, receiver in ((0, 1), (7, 0), (8, 15)):
        assert hop_seconds(1e9, sender, receiver) == NVLINK.seconds(1e9)
    for sender, receiver in ((7, 8), (8, 7), (15, 0)):
        assert hop_seconds(1e9, sender, receiver) == INFINIBAND.seconds(1e9)


def test_groups_send_shares_by_all_their_ports():
    """8 devices a stage are a node: 1 GB leaves by 8 ports in 2.5 ms, then 7/8 of it crosses NVLink."""
    assert hop_seconds(1e9, 0, 1, group=8) == pytest.approx(5e-6 + 1 / 400 + 7 * (2e-6 + 1 / 8 / 450))
    assert hop_seconds(1e9, 0, 1, group=4) == pytest.approx(2e-6 + 1 / 4 / 450 + 3 * (2e-6 + 1 / 4 / 450))
    assert hop_seconds(1e9, 1, 2, group=4) > hop_seconds(1e9, 0, 1, group=4)


@pytest.mark.parametrize("size", [0, -1, True, 2.0])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(InputError, match=r"k: must be an integer of at least 1, got"):
        h200.matmul_seconds(8, size, 8)
