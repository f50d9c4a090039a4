"""A graph on a mesh: derived times, and memory in training and inference."""

from __future__ import annotations

import pytest

from tessel_core.costs.costed import CostOptions, costed, operator_terms
from tessel_core.costs.devices import DEVICE_KINDS, H200
from tessel_core.errors import InputError
from tessel_core.model import DeviceMesh, DeviceTime, Edge, Link, Operator, OperatorGraph

MESH = DeviceMesh("pair", tuple(H200.device(f"gpu{i}") for i in range(2)), same_node_link=Link(450e9, 2e-6))


def training() -> OperatorGraph:
    forward = Operator("f", flops=1e12, bytes=1e9, weight_bytes=1000, activation_bytes=64, output_bytes=8)
    backward = Operator("b", flops=2e12, bytes=2e9, backward=True, forward_of="f", output_bytes=8)
    return OperatorGraph("pair", (forward, backward), (Edge("f", "b", 8),))


def test_training_holds_sixteen_bytes_a_parameter_and_what_is_in_flight() -> None:
    """500 bf16 parameters have 2 bytes of weight, 2 of gradient and 12 of Adam.

    Three micro-batches have 64 bytes each.
    """
    graph = costed(training(), MESH, CostOptions(in_flight=3))
    assert graph.operator("f").memory == 500 * 16 + 3 * 64
    assert graph.operator("b").memory == 0


def test_inference_holds_weights_alone() -> None:
    graph = training()
    graph = OperatorGraph("one", graph.operators[:1])
    assert costed(graph, MESH, CostOptions()).operator("f").memory == 1000 + 64


def test_given_times_and_sizes_are_kept() -> None:
    one = Operator("f", flops=1.0, times=(DeviceTime("h200", 5.0),), size=7.0, weight_bytes=100)
    kept = costed(OperatorGraph("one", (one,)), MESH, CostOptions()).operators[0]
    assert (kept.time_on("h200"), kept.memory) == (5.0, 7.0)


@pytest.mark.parametrize("kind", DEVICE_KINDS.values(), ids=lambda each: each.kind)
def test_no_device_is_faster_than_its_data_sheet(kind) -> None:  # type: ignore[no-untyped-def]
    for flops, moved in ((1e6, 1e3), (1e12, 1e6), (1e9, 1e10)):
        seconds = operator_terms(Operator("o", "matmul", flops=flops, bytes=moved), kind.device("d"), "fp32").seconds
        assert seconds >= max(flops / kind.device("d").peak("fp32"), moved / kind.memory_bandwidth)
        assert seconds > 0
    assert operator_terms(Operator("view", flops=0, bytes=0), kind.device("d"), "fp32").seconds == 0


def test_a_device_without_bf16_computes_in_fp32() -> None:
    one = Operator("o", "matmul", flops=1e13, bytes=1.0)
    assert operator_terms(one, DEVICE_KINDS["v100"].device("d"), "bf16").seconds >= 1e13 / 15.7e12


def test_what_cannot_be_derived_is_named() -> None:
    with pytest.raises(InputError, match=r"^operator o: has no time, and no flops or bytes from which"):
        costed(OperatorGraph("one", (Operator("o"),)), MESH, CostOptions())
    with pytest.raises(InputError, match=r"^graph one: its times are in ms"):
        costed(OperatorGraph("one", (Operator("o"),), time_unit="ms"), MESH, CostOptions())
