"""Strategies in words and as points: cards, tables and axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessel_core.charts.pareto import pareto_chart
from tessel_core.charts.timeline import timeline_frames
from tessel_core.charts.trace_bars import peak_chart
from tessel_core.charts.trace_timeline import trace_data
from tessel_core.costs.meshes import find_mesh
from tessel_core.exports.sweep_table import shown_rows
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.simulation import Trace, memory_shares
from tessel_core.simulation.attribution import CACHE, GIVEN, STATE, holdings
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import OBJECTIVES, Grid, GridResult, doubling, evaluate_grid, ranges
from tessel_core.strategies.strategy import Simulated, Strategy, count_operations, equal_devices, simulate_strategy
from tessel_core.units import show_memory
from tessel_core.workbench.messages.strategy import bottleneck

GPT, MLP = find_family("gpt"), find_family("mlp")
MESH = find_mesh("h200-16")


def simulated(strategy: Strategy, **sizes: object) -> Simulated:
    spec = GPT.spec(**{"size": "gpt2", "layers": 2, "batch": 8, "vocabulary": 512, **sizes})
    return simulate_strategy(GPT, spec, strategy, MESH)


def test_strategies_that_differ_have_other_names() -> None:
    """The names are used in the chooser, the table and titles."""
    ways: list[dict[str, Any]] = [
        *({}, {"context": 2}, {"context": 2, "context_method": ContextMethod.ALL_TO_ALL}, {"expert": 2}),
        *({"sequence_parallel": True}, {"zero": 3}, {"zero": 3, "reshard": False}, {"grad_dtype": "fp32"}),
        *(
            {"attention": AttentionKernel.UNFUSED},
            {"attention": AttentionKernel.FLASH2},
            {"fp8": True},
            {"compiled": True},
        ),
    ]
    assert len({str(Strategy(2, 2, **way)) for way in ways}) == len(ways)
    assert str(Strategy(2, 2, context=2, expert=2)) == "2/2/1/1 pipedream, sequences over 2 (ring), experts over 2"


def held_up(strategy: Strategy) -> str:
    found = simulated(strategy)
    return bottleneck(found.trace, found.ranks, MESH)


@pytest.fixture(scope="module")
def swept() -> GridResult:
    sizes = ranges(layers=(4,), width=(4096, 65536), batch=(96,))
    grid = Grid(sizes, doubling(4), (1, 2), (1, 2), (1, 5), recompute=(Recompute.NONE, Recompute.FULL))
    return evaluate_grid(MLP, grid, find_mesh("v100-8"))


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (Strategy(), "one device"),
        (Strategy(micro_batches=4, recompute=Recompute.FULL), "one device, 4 micro-batches, recomputing"),
        (Strategy(recompute=Recompute.SELECTIVE, zero=1), "one device, recomputing selectively, ZeRO-1"),
        (Strategy(8, zero=3, reshard=False), "8 replicas, ZeRO-3 keeping weights"),
        (
            Strategy(2, 2, sequence_parallel=True, context=2, expert=4, fp8=True),
            "2 replicas, tensors over 2 (sequence parallel), sequences over 2 (ring), experts over 4, FP8",
        ),
        (Strategy(2, 4, 3, 6, "1f1b"), "2 replicas, 3 stages, tensors over 4, 6 micro-batches, 1f1b"),
    ],
)
def test_a_strategy_in_words(strategy: Strategy, words: str) -> None:
    assert strategy.summary == words


def test_a_card_says_what_is_waited_for_and_what_fills_the_memory() -> None:
    strategy = Strategy(pipeline=2, micro_batches=2)
    told = held_up(strategy)
    assert told.startswith("Stage ")
    assert "% of the time" in told
    assert "Memory is less than 1% full, most is " in told
    alone = held_up(Strategy())
    assert alone.startswith("No device waits: all compute all the time.")
    shared = held_up(Strategy(tensor=2))
    assert "for allreduce" in shared, "of one stage, no stage is named"


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_the_cache_is_told_from_the_weights(mode: str) -> None:
    trace = simulated(Strategy(1, 2, 2, 2), mode=mode).trace
    network = GPT.spec(size="gpt2", layers=2, batch=8).network
    for device in trace.devices:
        found = holdings(trace, device)
        cache = sum(each.bytes for each in found if each.what == CACHE)
        # Keys and values of one of two layers, in bf16, half of the heads, at every position.
        assert cache == 2 * 2 * 8 * network.sequence * network.hidden // 2
        assert not any(each.what == STATE for each in found)
        assert {each.what for each in found} <= {CACHE, GIVEN, "activations"}, "inference has no gradients"


def test_optimizer_state_is_told_from_the_weights() -> None:
    trace = simulated(Strategy(), mode="training").trace
    by_what = {each.what: each for each in memory_shares(trace, 1)}
    weights = sum(each.bytes for each in holdings(trace, 1) if each.what == GIVEN and "token" not in each.name)
    # bf16 weights, and a master, a mean and a variance in fp32.
    assert by_what[STATE].bytes == pytest.approx(6 * weights, rel=0.01)
    mlp = simulate_strategy(MLP, MLP.spec(2, 64, 32, "fp16"), Strategy(), MESH).trace
    assert STATE not in {each.what for each in memory_shares(mlp, 1)}, "plain gradient descent has none"


def test_operations_are_counted_before_they_are_built() -> None:
    for strategy in (Strategy(), Strategy(2, 2, 1, 3), Strategy(1, 1, 2, 4)):
        spec = GPT.spec(size="gpt2", layers=4, batch=24)
        there = len(simulate_strategy(GPT, spec, strategy, MESH).program.ops)
        assert there / 3 <= count_operations(GPT, spec, strategy) <= there


def test_reasons_are_of_few_kinds(swept: GridResult) -> None:
    kinds = swept.reason_kinds
    assert sorted(i for some in kinds.values() for i in some) == np.flatnonzero(~swept.feasible).tolist()
    assert [len(some) for some in kinds.values()] == sorted(map(len, kinds.values()), reverse=True)
    divides = kinds["a batch of … does not divide into … x … parts (replicas x micro-batches)"]
    assert {swept.configurations[i].strategy.micro_batches for i in divides} == {5}
    for i in kinds["not enough memory"]:
        assert " more than it has" in swept.outcomes[i].reason


def test_a_table_has_no_column_of_equal_things(swept: GridResult) -> None:
    rows = shown_rows(swept, range(len(swept)))
    headings = {heading for row in rows for heading in row}
    assert {"D", "H", "P", "K", "Devices", "Width", "Recomputes", "Why not"} <= headings
    assert headings.isdisjoint({"Layers", "Batch", "Dtype", "Order", "ZeRO"})
    assert all(("Why not" in row) != swept.feasible[i] for i, row in enumerate(rows))


@pytest.mark.parametrize("x", OBJECTIVES)
@pytest.mark.parametrize("y", OBJECTIVES)
def test_points_over_any_two_objectives(swept: GridResult, x: str, y: str) -> None:
    figure = pareto_chart(swept, x, y, chosen=swept.front[0])
    drawn = {trace.name: trace for trace in figure.data}
    front = list(swept.front_of((x, y)))
    assert list(drawn["on the front"].x) == swept.columns[x][front].tolist()
    assert [told[0] for told in drawn["on the front"].customdata] == front
    assert len(drawn["does not fit"].x) == len(swept.reason_kinds["not enough memory"])
    for axis, name in ((figure.layout.xaxis, x), (figure.layout.yaxis, y)):
        known = swept.columns[name][np.isfinite(swept.columns["latency"])]
        inside = [
            text for at, text in zip(axis.tickvals, axis.ticktext, strict=True) if known.min() <= at <= known.max()
        ]
        assert 2 <= len(inside) <= 8
        if name == "peak_memory":
            assert all(text.split()[1] in {"MB", "GB", "TB"} for text in inside), "numbers with their units"


def test_many_micro_batches_share_a_bar() -> None:
    trace = simulated(Strategy(1, 1, 2, 16, "gpipe"), batch=32).trace
    shares = memory_shares(trace, 1)
    assert sum(each.what == "activations" and each.stage == 0 for each in shares) == 16
    (bars,) = peak_chart(trace, 1).data
    assert "activations, stage 0" in bars.y
    assert len(bars.y) < 12
    assert sum(values for _, values in bars.customdata) == sum(each.values for each in shares)
    few = simulated(Strategy()).trace
    (bars,) = peak_chart(few, 1).data
    assert [told for told, _ in bars.customdata] == [show_memory(each.bytes, "B") for each in memory_shares(few, 1)]


def test_few_points_between_two_ticks_have_ticks_of_their_own() -> None:
    found = evaluate_grid(MLP, Grid(ranges(layers=(4,), width=(512,)), pipeline=(2,), micro_batches=(16, 32)), MESH)
    figure = pareto_chart(found)
    assert sorted(figure.layout.xaxis.tickvals) == sorted(set(found.columns["peak_memory"].tolist()))
    assert all(text.endswith("B") for text in figure.layout.xaxis.ticktext)


def test_the_legend_names_what_the_optimizer_does() -> None:
    def called(trace: Trace) -> set[str]:
        ((header, columns),) = timeline_frames(trace_data(trace))
        return {header["kinds"][header["blocks"][b]["kind"]][0] for b in columns["block"].tolist()}

    assert called(simulated(Strategy()).trace) == {"forward", "backward", "update"}
    assert called(simulated(Strategy(1, 1, 2, 2), mode="decode").trace) == {"forward"}


def test_nothing_feasible_is_a_picture_without_points() -> None:
    found = evaluate_grid(MLP, Grid(ranges(layers=(1,)), pipeline=(2,)), equal_devices(4, 1e12, 9e11, 25))
    assert len(pareto_chart(found).data) == 0
    assert (
        shown_rows(found, range(len(found)))[0]["Why not"] == "2 stages need at least 2 layers, but the network has 1"
    )
