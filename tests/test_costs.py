"""Measured rows, interpolated curves, and links."""

from __future__ import annotations

import csv
import json
from statistics import median

import pytest
from helpers.layer_sizes import layer_activation_bytes, layer_flops
from hypothesis import given
from hypothesis import strategies as st

from tessel_core.costs.meshes import INFINIBAND, NVLINK, all_gather_seconds, all_reduce_seconds, hop_seconds
from tools.h200_rows import FILE, Curve, layer_parameters, rows

with FILE.open(encoding="utf-8") as _file:
    ROWS = [row for row in csv.DictReader(_file) if row["op"] != "op"]


def measured(operator: str) -> list[tuple[tuple[int, ...], float]]:
    """Return (shape, median seconds) of one operator's rows, read without the code under test."""
    shapes = dict.fromkeys(row["shape"] for row in ROWS if row["op"] == operator)
    return [
        (
            tuple(map(int, shape.split("x"))),
            median(float(row["us"]) for row in ROWS if row["op"] == operator and row["shape"] == shape) * 1e-6,
        )
        for shape in shapes
    ]


@pytest.mark.parametrize(
    ("operator", "count"),
    [
        ("matmul", 175),
        ("attention_fwd", 12),
        ("attention_bwd", 12),
        ("layernorm", 7),
        ("add", 7),
        ("embedding", 4),
        ("cross_entropy", 3),
        ("layer_fwd", 84),
        ("layer_bwd", 84),
        ("layer_bwd_input", 84),
    ],
)
def test_a_row_has_the_median_of_what_was_measured(operator, count):
    found = measured(operator)
    assert len(found) == count
    assert {shape: row.seconds for shape, row in rows(operator).items()} == pytest.approx(dict(found), rel=1e-12)


def test_sizes_of_layers_follow_their_formulas():
    for row in ROWS:
        if row["op"] == "layer_fwd":
            batch, sequence, hidden, heads, split = map(int, row["shape"].split("x"))
            extra = json.loads(row["extra"])
            assert layer_parameters(hidden, split) == extra["params"]
            kept = layer_activation_bytes(batch, sequence, hidden, heads, split)
            assert 0.93 <= kept / extra["activation_bytes"] <= 1
            assert layer_flops(batch, sequence, hidden, heads, split) == int(row["flops"])


points = st.lists(st.tuples(st.floats(1, 1e15), st.floats(1e-6, 1)), min_size=1, max_size=12)


@given(points, st.floats(1e-3, 1e18), st.floats(1, 100))
def test_more_work_never_takes_less_time(through, work, factor):
    curve = Curve.through(through)
    assert curve(work * factor) >= curve(work) * (1 - 1e-9)


@given(st.lists(st.floats(1, 1e12), min_size=2, max_size=8, unique=True))
def test_a_rising_curve_passes_its_points(work):
    """The rate is constant between the points and beyond them."""
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
    """A stage of 8 devices is a node: 1 GB leaves through 8 ports in 2.5 ms, and 7/8 of it then crosses NVLink."""
    assert hop_seconds(1e9, 0, 1, group=8) == pytest.approx(5e-6 + 1 / 400 + 7 * (2e-6 + 1 / 8 / 450))
    assert hop_seconds(1e9, 0, 1, group=4) == pytest.approx(2e-6 + 1 / 4 / 450 + 3 * (2e-6 + 1 / 4 / 450))
    assert hop_seconds(1e9, 1, 2, group=4) > hop_seconds(1e9, 0, 1, group=4)
