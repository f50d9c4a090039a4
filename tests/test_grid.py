"""Grids: sizes before work, the front by brute force, and sentences with true figures."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh, uniform_mesh
from tessel_core.errors import InputError
from tessel_core.exports.sweep_table import sweep_csv, sweep_json
from tessel_core.formats import mesh_text
from tessel_core.inspection import Cause
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.simulation import device_times
from tessel_core.simulation.idle import idle_of
from tessel_core.strategies.evaluation import Configuration, StrategyResult
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import OBJECTIVES, Grid, GridResult, doubling, evaluate_grid, ranges, read_range
from tessel_core.strategies.strategy import (
    NO_EXPERTS,
    NO_SEQUENCE,
    Semantics,
    Strategy,
    build_program,
    equal_devices,
    simulate_strategy,
)
from tessel_core.units import show_time
from tessel_core.workbench.messages.program import idle_sentence
from tessel_core.workbench.messages.strategy import explain

MLP = find_family("mlp")
MESH = equal_devices(8, 1.4e13, 9e11, 25)


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def test_a_grid_is_refused_by_its_size_before_any_work() -> None:
    numbers = tuple(range(1, 1001))
    with pytest.raises(InputError, match=r"^grid: has 1,000,000,000 configurations, more than the 200,000"):
        Grid(data=numbers, tensor=numbers, pipeline=numbers)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("1..1000000000", r"--data: '1\.\.1000000000' has 1,000,000,000 values, more than the 200,000"),
        ("1..8x1", "--data: must multiply by 2 or more and begin at 1 or more"),
        ("0..8x2", "--data: must multiply by 2 or more and begin at 1 or more"),
        ("-1", "--data: must be numbers and ranges such as"),
        ("1..", "--data: must be numbers and ranges such as"),
        ("", "data: its range has no values"),
        ("0", "data: must be at least 1, got 0"),
        ("9..8", "data: its range has no values"),
    ],
)
def test_ranges_that_make_no_sense(words: str, why: str) -> None:
    with pytest.raises(InputError, match=f"^{why}"):
        Grid(data=read_range(words, "--data"))


def test_sizes_of_micro_batches_take_the_place_of_their_number() -> None:
    """A size that does not divide keeps its reason, also if another number would work: 100 = 4 x 25, but not 30s."""
    sizes = ranges(layers=(2,), width=(24,), batch=(100,))
    grid = Grid(sizes, data=(1, 2, 3), micro_batches=(7, 9), micro_batch_size=(5, 30, 50, 200))
    found = evaluate_grid(MLP, grid, MESH)
    assert len(found) == grid.size == 3 * 4
    rows = csv.DictReader(io.StringIO(sweep_csv(found)))
    told = {(int(row["data"]), int(row["micro_batch_size"])): (row["micro_batches"], row["reason"]) for row in rows}
    even = {(1, 5): "20", (1, 50): "2", (2, 5): "10", (2, 50): "1"}
    assert {key: number for key, (number, reason) in told.items() if not reason} == even
    assert told[1, 30] == ("", "a batch of 100 does not divide among 1 replicas into micro-batches of 30")
    assert told[3, 5] == ("", "a batch of 100 does not divide among 3 replicas into micro-batches of 5")
    counted = evaluate_grid(MLP, Grid(sizes, micro_batches=(20,)), MESH)
    assert counted.outcomes[0] == found.outcomes[0]
    assert next(csv.DictReader(io.StringIO(sweep_csv(counted))))["micro_batch_size"] == "5"


def test_what_takes_more_devices_than_there_are_is_counted(tessel: Tessel) -> None:
    code, out, _ = tessel(
        *["sweep", "mlp", "--data", "2,32", "--tensor", "1,4", "--pipeline", "1", "--mesh", "h200-8"], "--json"
    )
    assert (code, json.loads(out)["configurations"], json.loads(out)["too_large"]) == (0, 12, 12)
    assert Grid(data=(1, 2, 3), tensor=(1, 2), micro_batches=(1, 5)).too_large(3) == 2 * 2
    code, out, _ = tessel(*["sweep", "mlp", "--data", "32", "--mesh", "h200-16"])
    assert (code, out.splitlines()[-1]) == (1, "150 left out: they need more than 16 devices")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--micro-batch-size 4 --micro-batches 2", "replaces --micro-batches, so give only one of them"),
        ("--micro-batch-size 0", "micro_batch_size: must be at least 1, got 0"),
        ("--micro-batch-size x", "--micro-batch-size: must be numbers and ranges"),
    ],
)
def test_sizes_of_micro_batches_that_make_no_sense(tessel: Tessel, words: str, error: str) -> None:
    code, out, err = tessel("sweep", "mlp", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err


def test_a_grid_holds_every_combination_that_the_devices_allow() -> None:
    grid = Grid(data=(1, 2, 4), tensor=(1, 2), pipeline=(1, 3), micro_batches=(1, 2), sizes=ranges(batch=(12, 24)))
    assert grid.size == 3 * 2 * 2 * 2 * 2
    found = grid.configurations(MLP, devices=6)
    assert len(found) == len({(each.spec.batch, each.strategy) for each in found})
    fitting = [(d, h, p) for d in (1, 2, 4) for h in (1, 2) for p in (1, 3) if d * h * p <= 6]
    assert len(found) == len(fitting) * 4


def test_choices_without_effect_are_left_out_where_the_grid_has_the_others() -> None:
    """ZeRO needs replicas, a context method needs context parallelism, and a sequence cut needs tensor parallelism."""
    gpt = find_family("gpt")
    grid = Grid(tensor=(1, 2), context=(1, 2), zero=(0, 3), context_method=tuple(ContextMethod), sequence_parallel=True)
    found = [each.strategy for each in grid.configurations(gpt)]
    assert len(found) == len(set(found)) == 2 * (1 + 2 * 2)
    assert {(each.context, each.zero) for each in found} == {(1, 0), (2, 0), (2, 3)}
    assert all(each.sequence_parallel == (each.tensor > 1) for each in found)
    assert grid.too_large(2) == 2 * 2
    assert {each.strategy.devices for each in grid.configurations(gpt, 2)} == {1, 2}
    alone = Grid(zero=(3,)).configurations(gpt)
    assert [each.strategy.zero for each in alone] == [3], "what alone is asked for stays, to say why it cannot be"


def test_every_choice_costs_what_simulate_says(tessel: Tessel) -> None:
    """Each row equals the answer of `tessel simulate` with the same options, to the last digit."""
    network = "--layers 2 --sequence 256 --batch 8 --hidden 256 --heads 4 --vocabulary 512 --mesh h100-4"
    choices = "--context 2 --context-method ring,all-to-all --zero 0,1,2,3 --dtype bf16,fp8 --grad-dtype fp32"
    one = ("--data", 2, "--tensor", 1, "--pipeline", 1, "--micro-batches", 1, "--compiled")
    assert tessel("sweep", "gpt", *network.split(), *choices.split(), *one, "--out", "all.csv").code == 0
    rows = list(csv.DictReader(io.StringIO(Path("all.csv").read_text())))
    assert len(rows) == len({row["latency_s"] for row in rows}) == 2 * 4 * 2
    assert {(row["context_parallel"], row["grad_dtype"], row["compiled"]) for row in rows} == {("2", "fp32", "True")}
    assert "expert_parallel" not in rows[0], "what is as usual in all is no column"
    for row in rows[::3]:
        asked = [f"--{name}={row[column]}" for name, column in OPTIONS.items()]
        said = tessel("simulate", "gpt", *network.split(), *asked, "--compiled", "--json").document
        assert float(row["latency_s"]) == pytest.approx(said["latency_s"], rel=1e-12)
        assert int(row["peak_memory"]) == max(said["peak_memory"])


OPTIONS = {
    **{"data": "data", "context": "context_parallel", "context-method": "context_method", "zero": "zero"},
    **{"dtype": "dtype", "grad-dtype": "grad_dtype"},
}


def test_experts_are_shared_in_a_sweep(tessel: Tessel) -> None:
    words = "--set layers=2 --set experts=4 --set dense_layers=0 --sequence 128 --batch 4 --mesh h200-4"
    degrees = "--data 4 --tensor 1 --pipeline 1 --micro-batches 1 --expert 1,2,3,4"
    ended = tessel("sweep", "moe", *words.split(), *degrees.split(), "--out", "all.json")
    rows = {row["expert_parallel"]: row for row in json.loads(Path("all.json").read_text())["rows"]}
    assert (ended.code, list(rows)) == (0, [1, 2, 3, 4])
    assert rows[1]["peak_memory"] > rows[2]["peak_memory"] > rows[4]["peak_memory"]
    assert rows[3]["reason"] == "3 does not divide the 4 tensor, context and data ranks that share experts"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--zero 4", "--zero: must be one of 0, 1, 2, 3, got 4"),
        ("--zero", "--zero: needs a value; the earlier meaning of a bare --zero is --zero 0,1"),
        ("--attention flash", "--attention: 'flash' is not known, choose from fused, flash2, unfused"),
        ("--context-method star", "--context-method: 'star' is not known, choose from ring, all-to-all"),
        ("--grad-dtype int8", "--grad-dtype: must be one of fp32, bf16, fp16, got 'int8'"),
        ("--context 0", "--context: must be at least 1, got 0"),
        ("--tokens-before 5", "--tokens-before: training uses whole sequences, got 5"),
        (
            "--width 5",
            "--width: is not a size of gpt, which has size, layers, hidden, heads, vocabulary, sequence, batch, ",
        ),
    ],
)
def test_ways_to_cut_that_make_no_sense(tessel: Tessel, words: str, error: str) -> None:
    code, out, err = tessel("sweep", "gpt", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"context": (2,)}, NO_SEQUENCE),
        ({"expert": (2,)}, NO_EXPERTS),
        ({"zero": (3,)}, "ZeRO-3 needs several replicas, but there is only one"),
    ],
)
def test_what_a_network_has_not_is_not_shared(choice: dict[str, tuple[int, ...]], why: str) -> None:
    (outcome,) = evaluate_grid(MLP, Grid(**choice), MESH).outcomes
    assert outcome.reason == why


def random_sweep(seed: int) -> GridResult:
    """Return invented outcomes with many ties."""
    choose = random.Random(seed)
    some = [
        Configuration(MLP.spec(8, 8, choose.choice((4, 8)), "fp16"), Strategy(data=choose.randint(1, 4)))
        for _ in range(40)
    ]
    outcomes = [
        StrategyResult(float(choose.randint(1, 4)), (choose.randint(1, 4),), choose.choice(("", "", "no")))
        for _ in some
    ]
    return GridResult(MLP, MESH, Semantics.DEFAULT, tuple(some), tuple(outcomes))


@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_what_nothing_beats(seed: int) -> None:
    found = random_sweep(seed)
    costs = {n: -found.columns[n] if o.more_is_better else found.columns[n] for n, o in OBJECTIVES.items()}
    fits = np.flatnonzero(found.feasible)
    for objectives in (tuple(OBJECTIVES), *combinations(OBJECTIVES, 2), ("latency",)):
        less = np.array([costs[n] for n in objectives]).T
        beaten = {i for i in fits for j in fits if (less[j] <= less[i]).all() and (less[j] < less[i]).any()}
        assert set(found.front_of(objectives)) == set(fits) - beaten
    assert found.front == found.front_of(tuple(OBJECTIVES))
    for name, objective in OBJECTIVES.items():
        column = found.columns[name][fits]
        assert found.columns[name][found.ranked(name)[0]] == (
            column.max() if objective.more_is_better else column.min()
        )


def test_sentences_say_what_the_trace_says() -> None:
    strategy = Strategy(1, 1, 4, 8)
    known = simulate_strategy(MLP, MLP.spec(8, 2048, 2048, "fp16"), strategy, MESH)
    trace = known.trace
    idles, works, waits, memory = explain(trace, known.ranks, MESH)
    times = device_times(trace)
    busiest = max(times, key=lambda each: each.computing)
    mean = sum(each.computing for each in times) / len(times)
    assert idles.startswith(f"Devices are idle {1 - mean / trace.latency:.1%} of the time (imbalance ")
    assert works.startswith(f"Stage {busiest.device - 1} has the most work: it computes for ")
    assert f"{busiest.computing / trace.latency:.0%}" in works
    least = min(times, key=lambda each: each.computing)
    assert waits.startswith(f"Stage {least.device - 1} waits ")
    assert re.search(r"gpu0 holds .* at its peak: .*weights and inputs \d+%", memory)


def test_stages_are_those_of_the_ranks() -> None:
    """If replicas or tensors share a stage, the device after the first belongs to the same stage."""
    strategy = Strategy(2, 2, 2, 4)
    known = simulate_strategy(MLP, MLP.spec(9, 2048, 2048, "fp16"), strategy, MESH)
    first, second = (known.ranks.worker(0, 0, place) for place in range(2))
    times = {each.device: each.computing for each in device_times(known.trace)}
    assert (first, second) == (1, 5)
    busiest = max((times[first], 0), (times[second], 1))
    sentences = explain(known.trace, known.ranks, MESH)
    assert (
        f"Stage {busiest[1]} has the most work: it computes for {busiest[0] / known.trace.latency:.0%}" in sentences[1]
    )
    assert times[first] != times[second]
    assert sentences[2].startswith(f"Stage {1 - busiest[1]} waits ")


def test_tables_hold_every_configuration_with_its_reason() -> None:
    found = evaluate_grid(MLP, Grid(ranges(batch=(256,)), data=(1, 3), pipeline=(1, 2)), MESH)
    rows = list(csv.DictReader(io.StringIO(sweep_csv(found))))
    assert [row["reason"] == "" for row in rows] == [True, True, False, False]
    assert rows[1]["stage_peak_memory"] == " ".join(map(str, found.outcomes[1].peaks))
    document = json.loads(sweep_json(found))
    assert document["feasible"] == 2
    assert [row["latency_s"] for row in document["rows"]][2:] == [None, None]
    assert document["best"]["latency"]["latency_s"] == min(row["latency_s"] or 9e9 for row in document["rows"])


def test_simulate_says_exactly_what_is_agreed(tessel: Tessel) -> None:
    """The published example: stages 0 and 1 of 2/2/2/4, with worker number d·H·P + h·P + p."""
    degrees = ("--data", "2", "--tensor", "2", "--pipeline", "2", "--micro-batches", "4")
    code, out, _ = tessel("simulate", "mlp", *degrees, "--compat", "distir", "--json")
    document = json.loads(out)
    assert (code, list(document)) == (0, [*AGREED, *RATES, *IDLE])
    assert document["rank_order"] == "pipeline,tensor,data"
    assert document["groups"]["pipeline"] == [[f"gpu{i}", f"gpu{i + 1}"] for i in range(0, 8, 2)]
    assert sum(document["memory_parts"].values()) == max(document["peak_memory"])
    assert document["tokens_per_s_per_device"] is None
    assert document["device_end_s"] == pytest.approx([0.001980968673523809, 0.001781121316571428] * 4, rel=1e-9)
    assert document["latency_s"] == max(document["device_end_s"])
    assert document["peak_memory"] == [3244032, 3047428] * 4
    assert document["seconds_per_sample"] == document["latency_s"] / 256
    idle = document["idle_rate"]
    assert idle == pytest.approx(document["imbalance_rate"] + document["bubble_rate"])
    assert idle == pytest.approx(sum(document["idle_causes"].values()))
    assert list(document["idle_causes"]) == [str(cause) for cause in Cause]
    same = tessel("simulate", "mlp", *degrees, "--compat", "distir", "--uniform-mesh", "1.4e13,9e11,25", "--json")
    assert same == (0, out, "")


AGREED = ["latency_s", "device_end_s", "peak_memory", "events", "seconds_per_sample"]
RATES = ["samples_per_s", "tokens_per_s_per_device", "model_flops_utilization", "memory_parts", "rank_order", "groups"]
IDLE = ["idle_rate", "imbalance_rate", "bubble_rate", "idle_causes"]
OF_STRATEGIES = ("seconds_per_sample", *(name for name in RATES if name != "memory_parts"))
"""Keys that are null for a program from a file."""


def test_people_read_the_same_as_programs(tessel: Tessel) -> None:
    """Time per step and per sample, and idle time. The program of a file has no batch, so no time per sample."""
    words, strategy = ("--layers", "4", "--batch", "64", "--pipeline", "2"), Strategy(pipeline=2)
    known = simulate_strategy(MLP, MLP.spec(layers=4, batch=64), strategy, find_mesh("h200-2"))
    idle = idle_of(known.trace)
    assert idle is not None
    Path("p.txt").write_text(program_text(known.program))
    step = show_time(known.trace.latency, "s")
    for what, time in (
        (("mlp", *words), f"{step} per step, {show_time(known.trace.latency / 64, 's')} per sample"),
        (("p.txt", "--mesh", "h200-2"), step),
    ):
        code, out, _ = tessel("simulate", *what)
        assert code == 0
        assert out.splitlines()[1:3] == [f"{time}, {known.trace.events:,} events", idle_sentence(idle)]
        document = json.loads(tessel("simulate", *what, "--json").out)
        assert document["seconds_per_sample"] == (known.trace.latency / 64 if "sample" in time else None)
        for part in ("idle", "imbalance", "bubble"):
            assert document[f"{part}_rate"] == float(getattr(idle.split, part)) > 0
        assert document["idle_causes"] == {str(cause): float(share) for cause, share in idle.causes.shares.items()}


def test_a_program_of_the_host_alone_idles_nowhere(tessel: Tessel) -> None:
    Path("p.txt").write_text("program p\n%x: fp32[4]@0\nreturn %x\n")
    document = json.loads(tessel("simulate", "p.txt", "--json").out)
    assert {document[name] for name in IDLE} == {None}
    assert "idle" not in tessel("simulate", "p.txt").out


def test_a_mesh_file_holds_the_workers_alone(tessel: Tessel) -> None:
    Path("mesh.json").write_text(mesh_text(MESH))
    words = ("simulate", "mlp", "--data", "8", "--compat", "distir", "--json")
    assert tessel(*words, "--mesh", "mesh.json") == tessel(*words)


def test_a_program_from_its_text_is_simulated_as_the_strategy(tessel: Tessel) -> None:
    strategy = Strategy(2, 1, 2, 2)
    Path("p.txt").write_text(program_text(build_program(MLP, MLP.spec(4, 16, 16, "fp16"), strategy).program))
    sizes = (
        "--layers",
        "4",
        "--width",
        "16",
        "--batch",
        "16",
        "--data",
        "2",
        "--pipeline",
        "2",
        "--micro-batches",
        "2",
    )
    of_text, of_family = tessel("simulate", "p.txt", "--json"), tessel("simulate", "mlp", *sizes, "--json")
    document = of_family.document
    assert document["seconds_per_sample"] == document["latency_s"] / 16
    assert document["samples_per_s"] == pytest.approx(16 / document["latency_s"])
    assert (of_text.code, of_text.document) == (0, {**document, **dict.fromkeys(OF_STRATEGIES)})


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("mlp --data 3", "a batch of 256 does not divide into 3 x 1 parts"),
        ("mlp --tensor 3", "a width of 512 does not divide among 3 devices"),
        ("mlp --pipeline 9", "9 stages need at least 9 layers, but the network has 8"),
        ("mlp --data 0", "data: must be a whole number of at least 1, got 0"),
        ("mlp --data 8 --mesh h200-4", "it needs 8 devices, but the mesh has 4"),
        ("mlp --uniform-mesh 1e13,1e12,0 --data 2", "a link: bandwidth must be above 0, got 0"),
        ("mlp --uniform-mesh 1e13,1e12", "--uniform-mesh: must be FLOPS,BYTES_PER_S,GBPS, got '1e13,1e12'"),
        (
            "mlp --uniform-mesh 1,1,1 --mesh h200-4",
            "--mesh: already determines the devices, so leave out --uniform-mesh",
        ),
        ("mlp --compat other", "--compat: unknown semantics 'other'; the only one is distir"),
        ("mlp --schedule zb-v", "ZB-V needs two stages per device"),
        ("mlp --dtype fp7", "dtype: must be one of fp64, fp32, tf32, bf16, fp16, got 'fp7'"),
        ("nothing", "nothing: is neither a network nor a file, families are mlp, gpt"),
    ],
)
def test_bad_words_are_one_sentence(tessel: Tessel, words: str, error: str) -> None:
    code, out, err = tessel("simulate", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err


def test_what_does_not_fit_says_by_how_much(tessel: Tessel) -> None:
    code, out, err = tessel(*["simulate", "mlp", "--layers", "40", "--width", "65536", "--mesh", "h200-1", "--json"])
    assert code == 1
    assert json.loads(out)["peak_memory"][0] > 150e9
    assert re.match(r"does not fit: gpu0 needs 6\d\d GB of memory, 5\d\d GB more than it has", err)


def test_sweep_prints_the_best_and_writes_them_all(tessel: Tessel) -> None:
    code, out, _ = tessel(*["sweep", "mlp", "--devices", "4", "--micro-batches", "1..3", "--out", "all.csv"])
    rows = list(csv.DictReader(io.StringIO(Path("all.csv").read_text())))
    assert code == 0
    assert len(rows) == 3 * len([1 for d in doubling(4) for h in doubling(4) for p in doubling(4) if d * h * p <= 4])
    assert f"{len(rows)} configurations on h200-4, " in out
    assert "a batch of 256 does not divide into 1 x 3 parts" in out
    assert "Memory: gpu0 holds" in out
    code, out, _ = tessel(*["sweep", "mlp", "--devices", "4", "--micro-batches", "1..3", "--json"])
    document = json.loads(out)
    assert (code, document["configurations"]) == (0, len(rows))
    least = min(float(row["latency_s"]) for row in rows if not row["reason"])
    assert document["best"]["latency"]["latency_s"] == least


def test_a_sweep_in_which_nothing_is_feasible_exits_1(tessel: Tessel) -> None:
    code, out, _ = tessel(*["sweep", "mlp", "--batch", "7", "--data", "2"])
    assert code == 1
    assert "0 feasible" in out


def test_a_file_of_an_unknown_kind_is_refused_before_the_sweep(tessel: Tessel) -> None:
    assert tessel(*["sweep", "mlp", "--out", "all.xls"]) == (
        2,
        "",
        "error: --out: must end in .csv or .json, got 'all.xls'\n",
    )


def test_what_is_stopped_looks_at_nothing_more() -> None:
    """Not even the checks run, which take seconds for many strategies."""
    control = Control()
    control.cancel()
    found = evaluate_grid(find_family("gpt"), Grid(data=(1, 64)), uniform_mesh("h200", 1, 8), control=control, most=64)
    assert found.unreached == len(found) == 2
