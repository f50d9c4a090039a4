"""Operator graphs as views of programs: costs and kept bytes by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.model import Operator, OperatorGraph
from tessel_core.networks.modules import Network, swept
from tessel_core.networks.program_graph import graph_of

Build = Callable[[Network], int]


def trained(build: Build, dtype: str = "bf16") -> OperatorGraph:
    """Return the training graph of a squared loss of the output of `build`."""
    net = Network("one", dtype)
    loss = net.squared_loss(build(net))
    return graph_of(Gradients()(net.finish({"loss": loss})), "one", 1)


def shared(build: Build, devices: int) -> OperatorGraph:
    """Return the inference graph of one of several devices."""
    net = Network("one", "bf16")
    return graph_of(TensorParallel(devices)(net.finish({"y": build(net)})), "one", 1)


def amounts(operator: Operator) -> tuple[float | int | None, ...]:
    return operator.flops, operator.bytes, operator.weight_bytes, operator.activation_bytes, operator.output_bytes


def pooled(net: Network) -> int:
    x = net.conv("x", net.input("images", "bf16", (1, 3, 8, 8)), 2, 1)
    return net("one", "max_pool", x, kernel=(3, 3), **swept(3, 2))


def attended(net: Network) -> int:
    packed = net.linear("qkv", net.input("x", "bf16", (2, 6, 8)), 24)
    q, k, v = net.all("qkv", "unpack_qkv", packed, head_size=4)
    return net("one", "attention", q, k, v, causal=1, head_size=4)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda net: net.linear("one", net.input("x", "bf16", (5, 3)), 7),
            (2 * 5 * 3 * 7, 2 * (15 + 21 + 7 + 35), 2 * 28, 2 * 15, 2 * 35),
        ),
        (
            lambda net: net.conv("one", net.input("x", "bf16", (1, 3, 8, 8)), 4, 3, 2, bias=True),
            (2 * 64 * 27 + 64, 2 * (192 + 108 + 4 + 64), 2 * 112, 2 * 192, 2 * 64),  # and a sum with the bias
        ),
        (
            lambda net: net.embedding("one", net.ids("ids", 10), 1000, 4),
            (0, 40 + 2 * 2 * 40, 2 * 4000, 40, 2 * 40),
        ),
        (pooled, (9 * 32, 2 * (128 + 32), 0, 2 * 128 + 8 * 32, 2 * 32)),  # the input, and indices of 8 bytes
        # Each query sees itself and earlier ones. Queries, keys and values are one tensor, kept with a number per head.
        (attended, (4 * 2 * 21 * 8, 2 * (288 + 96), 0, 2 * 288 + 4 * 2 * 12, 2 * 96)),
    ],
    ids=["linear", "conv", "embedding", "max_pool", "attention"],
)
def test_an_operator_by_hand(build: Build, expected: tuple[float, ...]) -> None:
    """FLOPs, moved bytes, weights, kept bytes and output."""
    assert amounts(trained(build).operator("one")) == expected


def test_collectives_take_the_time_of_their_links() -> None:
    """Four H200s over NVLink: six steps of a quarter each, or three steps of the share."""

    def summed(net: Network) -> int:
        weight = net.parameter("weight", 4, 10**6, cut=0)
        return net("one", "matmul", net.input("x", "bf16", (450, 4)), weight)

    def gathered(net: Network) -> int:
        x = net.linear("x", net.input("x", "bf16", (450, 4)), 4 * 10**6, bias=False, cut=True)
        return net.rms_norm("norm", x)

    (reduce,) = (each for each in shared(summed, 4).operators if each.kind == "all_reduce")
    assert reduce.time_on("h200") == pytest.approx(6 * (2e-6 + 225e6 / 450e9))
    assert reduce.bytes == 1.5 * 900e6
    (gather,) = (each for each in shared(gathered, 4).operators if each.kind == "all_gather")
    assert gather.time_on("a100") == pytest.approx(3 * (2e-6 + 900e6 / 300e9))
    assert gather.output_bytes == 4 * 900e6


def test_a_tensor_is_kept_once() -> None:
    def twice(net: Network) -> int:
        x = net.input("x", "fp32", (4, 4))
        one, other = net.linear("first", x, 4), net.linear("second", x, 4)
        return net("both", "add", one, other)

    graph = trained(twice, "fp32")
    assert [graph.operator(name).activation_bytes for name in ("first", "second")] == [64, 0]


def test_a_relu_keeps_its_output_where_that_is_kept_anyway() -> None:
    def kept(keeps_output: int) -> list[int | None]:
        def build(net: Network) -> int:
            y = net("relu", "relu", net.linear("up", net.input("x", "bf16", (5, 3)), 7), keeps_output=keeps_output)
            return net.linear("down", y, 3)

        graph = trained(build)
        return [graph.operator(name).activation_bytes for name in ("up", "relu", "down")]

    assert kept(0) == [30, 70, 70]
    assert kept(1) == [30, 70, 0]
