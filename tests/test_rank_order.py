"""Rank order: groups of each dimension, meaning of a renumbered program, streams of groups, and bad input."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from helpers.programs import stream_by_hand
from helpers.seeds import seeds
from helpers.terminal import Tessel, terminal

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.types import TensorType
from tessel_core.simulation import simulate
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import Grid, evaluate_grid, ranges
from tessel_core.strategies.ranks import (
    CUT_DIMENSIONS,
    DEFAULT_RANK_ORDER,
    DISTIR_RANK_ORDER,
    Ranks,
    distinct_orders,
    every_rank_order,
    read_rank_order,
)
from tessel_core.strategies.strategy import Strategy, build_program, simulate_strategy
from tessel_core.workbench.messages.ranks import groups_of

MLP, GPT = find_family("mlp"), find_family("gpt")


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


@pytest.mark.parametrize("seed", seeds(20))
def test_groups_are_what_an_array_of_ranks_says(seed: int) -> None:
    """The expected groups come from NumPy: ranks reshaped with the outermost dimension first."""
    choose = random.Random(seed)
    degrees = {name: choose.choice((1, 2, 3, 4, 5)) for name in CUT_DIMENSIONS}
    order = choose.choice((*every_rank_order(), ("data", "expert", "pipeline", "context", "tensor")))
    ranks = Ranks(**degrees, order=order)
    outer_first = [name for name in reversed(order) if name in degrees]
    grid = np.arange(1, ranks.count + 1).reshape([degrees[name] for name in outer_first])
    for dimension in CUT_DIMENSIONS:
        axis = outer_first.index(dimension)
        wanted = np.moveaxis(grid, axis, -1).reshape(-1, degrees[dimension])
        assert sorted(ranks.groups(dimension)) == sorted(map(tuple, wanted.tolist()))
    for at in product(*(range(degrees[name]) for name in CUT_DIMENSIONS)):
        place = dict(zip(CUT_DIMENSIONS, at, strict=True))
        worker = ranks.worker(**place)
        assert worker == grid[tuple(place[name] for name in outer_first)]
        assert {name: ranks.coordinate(worker, name) for name in CUT_DIMENSIONS} == place


def test_the_default_keeps_tensor_groups_inside_a_node_and_distirs_order_spreads_them() -> None:
    assert Ranks(2, 8, 4).groups("tensor")[0] == tuple(range(1, 9))
    assert Ranks(2, 8, 4).groups("data")[0] == (1, 9)
    assert Ranks(2, 8, 4).groups("pipeline")[0] == (1, 17, 33, 49)
    assert Ranks(2, 8, 4, DISTIR_RANK_ORDER).groups("pipeline")[0] == (1, 2, 3, 4)
    said = {each.dimension: each for each in groups_of(Ranks(2, 8, 4), find_mesh("h100-64"))}
    assert list(said) == ["tensor", "data", "pipeline"]
    assert said["tensor"].groups == "8 groups of 8 devices"
    assert said["tensor"].links == "inside a node, 450 GB/s"
    assert said["data"].devices == "gpu0, gpu8"
    assert said["data"].links == "across 2 nodes, 50 GB/s per device"
    whole = groups_of(Ranks(64, 1, 1), find_mesh("h100-64"))[0]
    assert whole.links == "across 8 nodes, on 8 rails, 400 GB/s together"
    # On nodes of eight, six groups of four in a row all lie inside a node. Of four groups of six, only some do.
    uneven = groups_of(Ranks(4, 6, 1), find_mesh("h100-32"))[0]
    assert uneven.links == "2 inside a node, 450 GB/s; 2 across 2 nodes, on 2 rails, 100 GB/s together"


@pytest.mark.parametrize("order", every_rank_order(), ids=",".join)
def test_a_rank_order_changes_who_does_it_and_nothing_else(order: tuple[str, ...]) -> None:
    """Outputs, gradients and updated weights equal those of the undistributed network."""
    spec, random_numbers = MLP.spec(4, 8, 16, "fp32"), np.random.default_rng(3)
    whole = build_program(MLP, spec, Strategy(), gradients=True)
    given = {
        piece.name: random_numbers.standard_normal(whole.program.types[value].shape).astype(np.float32)
        for value, piece in whole.piece_of.items()
    }
    given["n"] = np.array(16 * 8, np.float32)
    wanted = whole.joined(whole.run(given))
    assert all(np.isfinite(array).all() for array in wanted.values())
    strategy = Strategy(2, 2, 2, 2, rank_order=order)
    spread = build_program(MLP, spec, strategy, gradients=True)
    found = whole.joined(spread.run(given))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-5, atol=2e-5)
    # Collectives and sends use the given groups.
    ranks, groups = Ranks(2, 2, 2, order), defaultdict[str, set[tuple[int, ...]]](set)
    for op in spread.program.ops:
        stream = stream_by_hand(spread.program, op)
        if stream:
            groups[op.kind].add(tuple(sorted(spread.program.devices_of(op))))
    assert groups["allreduce"] <= {*ranks.groups("tensor"), *map(tuple, map(sorted, ranks.groups("data")))}
    chains = {pair for chain in ranks.groups("pipeline") for pair in pairwise(chain)}
    assert groups["send"] == {tuple(sorted(pair)) for pair in chains}


def test_only_orders_that_differ_on_the_mesh_are_tried() -> None:
    every = every_rank_order()
    assert len(set(every)) == 6
    assert distinct_orders(every, 1, 1, 8, range(8)) == [DEFAULT_RANK_ORDER]
    assert distinct_orders(every, 2, 2, 2, [0] * 8) == [DEFAULT_RANK_ORDER]
    # On nodes of two, the innermost dimension matters.
    assert len({order[0] for order in distinct_orders(every, 2, 2, 2, [0, 0, 1, 1, 2, 2, 3, 3])}) == 3
    # On nodes of eight with T = 8, it only matters whether tensor groups are inside a node.
    nodes = [i // 8 for i in range(64)]
    assert len(distinct_orders(every, 1, 8, 8, nodes)) == 2
    sizes, degrees = ranges(layers=(4,), batch=(64,)), (1, 2, 4)
    grid = Grid(sizes, degrees, degrees, degrees, rank_order=every)
    found = evaluate_grid(MLP, grid, find_mesh("h200-8"))
    usual = evaluate_grid(MLP, Grid(sizes, degrees, degrees, degrees), find_mesh("h200-8"))
    assert len(found) == len(usual)
    assert found.outcomes == usual.outcomes
    two = evaluate_grid(MLP, grid, find_mesh("h200-16"))
    assert len(two) > len(found)
    names = [(each.spec, each.strategy) for each in two.configurations]
    assert len(set(names)) == len(names)


def test_tensor_parallelism_inside_the_node_wins_on_several_nodes() -> None:
    """GPT-3 175B on 64 A100s: no configuration of the grid is faster in any rank order.

    DistIR's order costs 80 % more.
    """
    sizes = ranges(size=("gpt3-175b",), batch=(64,))
    asked = {"tensor": (2, 4, 8, 16), "pipeline": (4, 8, 16, 32), "micro_batches": (16, 32, 64)}
    grid = Grid(sizes, **asked, recompute=(Recompute.FULL,), rank_order=every_rank_order())
    found = evaluate_grid(GPT, grid, find_mesh("a100-64"))
    best = found.configurations[found.ranked("latency")[0]].strategy
    assert best.tensor == 8
    times = {
        order: simulated
        for each, simulated in zip(found.configurations, (each.latency for each in found.outcomes), strict=True)
        if (each.strategy.tensor, each.strategy.pipeline, each.strategy.micro_batches) == (8, 8, 64)
        for order in [each.strategy.rank_order]
    }
    assert max(times.values()) > 1.6 * min(times.values())


def test_each_process_group_and_each_direction_has_a_stream_of_its_own() -> None:
    """Two collectives of different groups overlap on the device that they share. Two of one group do not."""
    build = ProgramBuilder("streams")
    x = [build.input(f"x{i}", TensorType("fp32", (1 << 22,), device)) for i, device in enumerate((1, 2, 1, 3, 1, 2))]
    build.add("allreduce", x[:2])
    build.add("allreduce", x[2:4])
    build.add("allreduce", x[4:])
    sent = build.one("send", [x[0]], to=4)
    build.one("send", [build.input("y", TensorType("fp32", (1 << 22,), 4))], to=1)
    build.one("send", [x[2]], to=4)
    trace = simulate(build.finish([sent]), find_mesh("h200-4"))
    start = {int(op): float(begins) for op, begins in zip(trace.op, trace.start, strict=True)}
    first, sending = trace.seconds[trace.op == 0][0], trace.seconds[trace.op == 3][0]
    assert (start[0], start[1], start[2]) == (0, 0, pytest.approx(first))
    assert (start[3], start[4], start[5]) == (0, 0, pytest.approx(sending))
    assert simulate(trace.program, find_mesh("h200-4"), overlap=False).latency > trace.latency
    # A picture draws concurrent operations in different lanes.
    on_one = trace.device == 1
    for lane in set(trace.lane[on_one].tolist()):
        mine = np.flatnonzero(on_one & (trace.lane == lane))
        mine = mine[np.argsort(trace.start[mine])]
        ends = trace.start[mine] + trace.seconds[mine]
        assert (trace.start[mine][1:] >= ends[:-1] * (1 - 1e-9)).all()
    assert set(trace.lane[on_one].tolist()) == {1, 2, 3, 4}


def test_buckets_pay_the_latency_once() -> None:
    """An MLP of 8 layers with 2 MB of gradients each, which are reduced one by one, in pairs, and all together."""
    spec, mesh = MLP.spec(8, 1024, 64, "fp16"), find_mesh("h100-16")
    counts, times = [], []
    for bucket in (0, 4 << 20, 1 << 30):
        found = simulate_strategy(MLP, spec, Strategy(16, bucket_bytes=bucket), mesh)
        counts.append(sum(op.kind == "allreduce" for op in found.program.ops))
        last = [i for i, op in enumerate(found.program.ops) if op.kind == "allreduce"]
        busy = np.isin(found.trace.op, last) & (found.trace.device == 1)
        times.append(float(found.trace.seconds[busy].sum()))
    assert counts == [8, 4, 1]
    latency = 2 * (find_mesh("h100-16").default_link.latency + 7 * 2e-6)  # type: ignore[union-attr]
    assert times[0] - times[1] == pytest.approx(4 * latency)
    assert times[1] - times[2] == pytest.approx(3 * latency)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tensor,data", "must name each of tensor, data, pipeline once, but misses pipeline"),
        ("tensor,tensor,data,pipeline", "names tensor 2 times"),
        ("tensor,data,pipe", "'pipe' is not a dimension; dimensions are tensor, context, expert, data, pipeline"),
        ("", "'' is not a dimension"),
    ],
)
def test_orders_that_make_no_sense(tessel: Tessel, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why.replace("(", r"\(")):
        read_rank_order(text)
    for verb in (("simulate", "mlp"), ("sweep", "mlp")):
        code, out, err = tessel(*verb, "--rank-order", text)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: --rank-order: {why}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "--layers 4 --pipeline 2 --stages-per-device 3 --micro-batches 2",
            "6 stages need at least 6 layers, but the network has 4",
        ),
        ("--layers 9 --pipeline 4 --stages-per-device 2 --micro-batches 6 --batch 24", "6 is not a multiple of 4"),
        ("--stages-per-device 2", "several stages per device need a pipeline over at least 2 devices"),
        ("--stages-per-device 0", "stages-per-device: must be a whole number of at least 1, got 0"),
        ("--compat distir --data 2 --rank-order tensor,data,pipeline", "DistIR numbers its devices by the rank order"),
        ("--micro-batch-size 3 --batch 8", "a batch of 8 does not divide among 1 replica into micro-batches of 3"),
        ("--micro-batch-size 3 --micro-batches 2 --batch 8", "1 replica of 2 micro-batches of 3 make 6, got 8"),
        ("--bucket inf", "--bucket: must be a finite number of MiB, got inf"),
    ],
)
def test_strategies_that_make_no_sense(tessel: Tessel, words: str, why: str) -> None:
    code, out, err = tessel("simulate", "mlp", *words.split())
    assert (code, out) == (2, "")
    assert why in err


def test_the_batch_follows_from_micro_batches_and_their_size(tessel: Tessel) -> None:
    sizes = ("--layers", "4", "--width", "64", "--data", "2", "--pipeline", "2", "--json")
    by_size = tessel("simulate", "mlp", *sizes, "--micro-batches", "4", "--micro-batch-size", "3").document
    by_batch = tessel("simulate", "mlp", *sizes, "--micro-batches", "4", "--batch", "24").document
    counted = tessel("simulate", "mlp", *sizes, "--micro-batch-size", "3", "--batch", "24").document
    assert by_size == by_batch == counted
    assert by_size["samples_per_s"] * by_size["latency_s"] == pytest.approx(24)


def test_the_terminal_says_the_groups_and_the_rates(tessel: Tessel) -> None:
    words = "--size gpt2 --layers 4 --batch 8 --data 2 --tensor 2 --pipeline 2 --micro-batches 2 --mesh h100-8"
    found = tessel("simulate", "gpt", *words.split(), "--json").document
    assert found["rank_order"] == "tensor,context,expert,data,pipeline"
    assert found["groups"]["tensor"][0] == ["gpu0", "gpu1"]
    assert found["groups"]["pipeline"][1] == ["gpu1", "gpu5"]
    rate = 8 * 1024 / (found["latency_s"] * 8)
    assert found["tokens_per_s_per_device"] == pytest.approx(rate)
    h, s = 768, 1024
    flops = 3 * 8 * s * (4 * 2 * 12 * h * h + 4 * 2 * (s + 1) * h + 2 * h * 50_257)
    assert found["model_flops_utilization"] == pytest.approx(flops / (found["latency_s"] * 8 * 989e12), rel=1e-6)
    assert sum(found["memory_parts"].values()) == max(found["peak_memory"])
    shown = tessel("simulate", "gpt", *words.split()).out
    assert "tensor: 4 groups of 2 devices (first: gpu0, gpu1), inside a node, 450 GB/s" in shown
    assert f"{rate:,.0f} tokens per second and device" in shown


def test_sweeps_try_rank_orders_and_stages_per_device(tessel: Tessel) -> None:
    words = "--layers 8 --batch 64 --data 1,2 --tensor 1,8 --pipeline 2,4 --micro-batches 8 --stages-per-device 1,2"
    code, out, _ = tessel("sweep", "mlp", *words.split(), "--rank-order", "all", "--mesh", "h200-32", "--out", "s.json")
    assert code == 0
    assert "of h200-32" in out or "on h200-32" in out
    rows = json.loads(Path("s.json").read_text())["rows"]
    assert {row["schedule"] for row in rows if row["stages_per_device"] == 2} == {"interleaved"}
    assert {row["schedule"] for row in rows if row["stages_per_device"] == 1} == {"pipedream"}
    orders = {row["rank_order"] for row in rows if (row["tensor"], row["pipeline"]) == (8, 4)}
    assert len(orders) == 2
    assert {row["rank_order"] for row in rows if (row["data"], row["tensor"]) == (1, 1)} == {
        "tensor,context,expert,data,pipeline"
    }


def test_a_program_of_millions_of_operations_is_timed_run_by_run(tessel: Tessel) -> None:
    words = "--size gpt3-175b --tensor 8 --pipeline 8 --stages-per-device 3 --micro-batches 64 --micro-batch-size 1"
    ended = tessel("simulate", "gpt", *words.split(), "--recompute", "full", "--mesh", "a100-64", "--json")
    assert ended.code == 0
    assert "operations are timed block by block, not one by one" in ended.err
    found = ended.document
    assert len(found["peak_memory"]) == len(found["device_end_s"]) == 64
    assert found["latency_s"] == max(found["device_end_s"])
    assert (found["events"], found["memory_parts"], found["idle_rate"]) == (None, None, None)
