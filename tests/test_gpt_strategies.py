"""GPT strategies: the program written by hand, the simulation and the blocks agree. Refusals give a reason."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import pytest
from helpers.blocks import near_every_operation
from helpers.programs import gpt_parameters, optimizer_inputs, same_meaning
from helpers.seeds import one_in
from helpers.terminal import Tessel, terminal
from helpers.training import gpt_training

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Checkpoint, Recompute
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.expansion import expanded
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import AdamUpdate, ShardedOptimizer
from tessel_core.networks.gpt import GptSpec, gpt_decode, gpt_spec
from tessel_core.simulation import simulate
from tessel_core.strategies.evaluation import Configuration, evaluate
from tessel_core.strategies.families import find_family
from tessel_core.strategies.grid import Grid, evaluate_grid, ranges
from tessel_core.strategies.orders import chain_schedulers, stage_form, stage_order
from tessel_core.strategies.pipeline_plan import pipeline_plan
from tessel_core.strategies.ranks import Ranks, every_rank_order
from tessel_core.strategies.strategy import (
    BUCKET_BYTES,
    Semantics,
    Strategy,
    build_program,
    equal_devices,
    simulate_strategy,
    why_not,
)

GPT = find_family("gpt")
MESHES = (find_mesh("h200-16"), equal_devices(64, 1.4e13, 9e11, 25))
DEGREES = [degrees for degrees in product((1, 2, 3, 4), repeat=3) if prod(degrees) <= 16]
ORDERS = ("pipedream", "1f1b", "gpipe", "sequential")


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


@pytest.mark.parametrize("order", chain_schedulers())
@pytest.mark.parametrize(("data", "tensor", "recompute", "zero"), [(1, 1, "selective", False), (2, 2, "full", True)])
def test_every_order_means_the_same(order: str, data: int, tensor: int, recompute: str, zero: bool) -> None:
    """Losses, all gradients and all updated weights equal those of the network on one device."""
    several = next(each for each in (1, 2) if stage_form(order, 2, 4, each))
    spec = GPT.spec(layers=5, hidden=24, heads=4, vocabulary=17, sequence=5, batch=4 * data, dtype="fp64")
    whole = build_program(GPT, spec, Strategy(), gradients=True)
    form = stage_form(order, 2, 4, several)
    assert form is not None
    strategy = Strategy(data, tensor, 2, 4, order, Recompute(recompute), zero and form.copies == 1, several)
    changed = build_program(GPT, spec, strategy, gradients=True)
    weights = {op.tag.phase for op in changed.program.ops} & {"weight"}
    assert bool(weights) == form.split
    same_meaning(whole, changed, optimizer_inputs(whole, spec.network, 7), 1e-9)


def test_zero_bubble_orders_leave_less_idle() -> None:
    """The split backward fills time that is idle in 1F1B. The V does so with half of 1F1B's memory."""
    mesh, spec = find_mesh("h200-16"), GPT.spec(size="gpt2-medium", batch=64)
    times, peaks = {}, {}
    for order, several in (("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1), ("zb-v", 2), ("tessel", 1), ("v-min", 2)):
        found = simulate_strategy(GPT, spec, Strategy(1, 1, 4, 16, order, stages_per_device=several), mesh)
        times[order], peaks[order] = found.trace.latency, max(found.trace.peak_memory)
    assert times["zb-h2"] < times["zb-h1"] < times["1f1b"]
    assert times["tessel"] <= times["zb-h1"]
    assert times["zb-v"] < times["zb-h1"]
    assert peaks["v-min"] < peaks["zb-v"] < peaks["zb-h1"] < peaks["zb-h2"]


def test_pipelines_that_run_both_ways_balance_the_head() -> None:
    """Both copies have their last stage on an outer device. Each device holds the weights of two stages."""
    mesh, spec = find_mesh("h200-4"), GPT.spec(size="gpt2-medium", batch=16)
    latency = {}
    for order in ("1f1b", "chimera", "dualpipe"):
        found = simulate_strategy(GPT, spec, Strategy(1, 1, 4, 16, order), mesh)
        latency[order] = found.trace.latency
        inputs = {found.program.value_name(value) for value in found.program.inputs}
        assert ("head" in inputs) == (order == "1f1b") != ({"head.d", "head.u"} <= inputs)
    assert latency["dualpipe"] < latency["chimera"] < latency["1f1b"]
    for strategy, why in (
        (
            Strategy(1, 1, 4, 15, "chimera"),
            "runs half of the micro-batches in each direction, so their number must be even, got 15",
        ),
        (Strategy(2, 1, 2, 2, "dualpipe", zero=True), "keeps two copies of the network"),
    ):
        assert why in why_not(GPT, GPT.spec(layers=4, batch=60), strategy, None, Semantics.DEFAULT)
    with pytest.raises(InputError, match="runs two copies of the network, which one plan cannot describe"):
        pipeline_plan(found, Strategy(1, 1, 4, 16, "dualpipe"), mesh)


@pytest.mark.parametrize(
    ("order", "several", "sentence"),
    [
        ("zb-v", 1, "zb-v"),
        ("zb-h1", 2, "zb-h1"),
        ("1f1b+", 1, "1f1b+"),
    ],
)
def test_an_order_that_does_not_suit_says_why(order: str, several: int, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build_program(GPT, GPT.spec(layers=4, batch=4), Strategy(1, 1, 2, 4, order, stages_per_device=several))
    assert sentence in str(error.value)
    assert why_not(
        GPT,
        GPT.spec(layers=4, batch=4),
        Strategy(1, 1, 2, 4, order, stages_per_device=several),
        None,
        Semantics.DEFAULT,
    )


def drawn(choose: random.Random) -> Configuration:
    """Draw every mode, stages of unequal depth and odd numbers, on at most 16 devices."""
    data, tensor, pipeline = choose.choice(DEGREES)
    several = choose.choice((1, 1, 2, 3)) if pipeline > 1 else 1
    micro_batches = choose.choice((1, 2)) * pipeline if several > 1 else choose.choice((1, 2, 3, 5))
    mode = choose.choice(("training", "training", "prefill", "decode"))
    head, sequence = choose.choice((2, 16, 64)), choose.choice((6, 33, 512))
    spec = GPT.spec(
        layers=choose.randint(pipeline * several, pipeline * several + 2),
        hidden=12 * head,
        heads=12,
        vocabulary=choose.choice((17, 5003)),
        sequence=sequence,
        batch=data * micro_batches * choose.choice((1, 3)),
        dtype=choose.choice(("bf16", "fp16", "fp32")),
        mode=mode,
        **({} if mode == "training" else {"context": choose.randint(1, sequence - 1)}),
    )
    recompute = choose.choice(list(Recompute)) if mode == "training" else Recompute.NONE
    zero = mode == "training" and choose.random() < 0.5
    zero = zero and not 12 * head // tensor % data
    order = choose.choice(ORDERS) if several == 1 else choose.choice(("interleaved", "interleaved", "gpipe"))
    ranks, bucket = choose.choice((None, *every_rank_order())), choose.choice((0, 3000, 1 << 20))
    strategy = Strategy(data, tensor, pipeline, micro_batches, order, recompute, zero, several, ranks, bucket)
    return Configuration(spec, strategy)


@pytest.mark.parametrize("seed", one_in(5, range(20)))
def test_blocks_are_near_the_simulation_of_every_operation(seed: int) -> None:
    choose = random.Random(seed)
    mesh, some = MESHES[seed % 2], [drawn(choose) for _ in range(12)]
    near_every_operation(GPT, some, mesh, latency=0.08, memory=0.23)


def deep(choose: random.Random) -> Configuration:
    """Draw more layers than blocks simulate, in every mode, on at most 8 devices."""
    data, tensor, pipeline = choose.choice([degrees for degrees in DEGREES if prod(degrees) <= 8])
    micro_batches, mode = choose.choice((1, 2, 4)), choose.choice(("training", "training", "training", "decode"))
    layers = choose.randint(9, 15)
    several = choose.choice((1, 2)) if pipeline in (2, 3, 4) else 1
    micro_batches *= pipeline if several > 1 else 1
    sizes = {"hidden": 24, "heads": 12, "vocabulary": 17, "sequence": 6, "dtype": choose.choice(("bf16", "fp32"))}
    sizes |= {} if mode == "training" else {"context": 4}
    recompute = choose.choice(list(Recompute)) if mode == "training" else Recompute.NONE
    zero = mode == "training" and choose.random() < 0.5
    spec = GPT.spec(layers=layers, batch=data * micro_batches * 2, mode=mode, **sizes)
    order = choose.choice(ORDERS) if several == 1 else "interleaved"
    ranks, bucket = choose.choice(every_rank_order()), choose.choice((0, 3000))
    strategy = Strategy(data, tensor, pipeline, micro_batches, order, recompute, zero, several, ranks, bucket)
    return Configuration(spec, strategy)


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_deep_networks_are_near_the_simulation_of_every_operation(seed: int) -> None:
    """One inner layer stands for all."""
    choose = random.Random(1000 + seed)
    near_every_operation(GPT, [deep(choose) for _ in range(12)], MESHES[1], latency=0.01, memory=0.01)


@pytest.mark.parametrize("zero", [False, True])
def test_training_is_what_is_built_by_hand(tessel: Tessel, zero: bool) -> None:
    words = "--size gpt2 --layers 3 --sequence 64 --batch 8 --data 2 --tensor 2 --pipeline 2 --micro-batches 2"
    flags = ("--recompute", "full", "--zero", str(int(zero)))
    code, out, _ = tessel("simulate", "gpt", *words.split(), *flags, "--schedule", "1f1b", "--json")
    spec = _gpt2(3, 64, 8)
    ranks = Ranks(2, 2, 2)
    model = Pipeline(stage_order("1f1b", 2, 2))(TensorParallel(2).of_one(Checkpoint()(gpt_training(spec))))
    step = ShardedOptimizer(AdamUpdate()) if zero else AdamUpdate()
    model = step(DataParallel(2, bucket_bytes=BUCKET_BYTES).of_one(model, ranks.degrees))
    trace = simulate(ranks.numbered(expanded(model, ranks.degrees)).program, find_mesh("h200-8"))
    document = json.loads(out)
    assert (code, document["latency_s"], document["events"]) == (0, trace.latency, trace.events)
    assert document["peak_memory"] == list(trace.peak_memory)


def test_decoding_is_what_is_built_by_hand(tessel: Tessel) -> None:
    words = "--size gpt2 --layers 2 --sequence 64 --batch 4 --mode decode --tokens-before 40 --tensor 2 --dtype fp16"
    code, out, _ = tessel("simulate", "gpt", *words.split(), "--mesh", "h200-2", "--json")
    model = TensorParallel(2)(gpt_decode(_gpt2(2, 64, 4, "fp16"), 40))
    trace = simulate(model.program, find_mesh("h200-2"))
    assert (code, json.loads(out)["peak_memory"]) == (0, list(trace.peak_memory))
    assert json.loads(out)["latency_s"] == pytest.approx(trace.latency, rel=1e-12)


def _gpt2(layers: int, sequence: int, batch: int, dtype: str = "bf16") -> GptSpec:
    return replace(gpt_spec("gpt2"), layers=layers, sequence=sequence, batch=batch, dtype=dtype)


def test_sharing_the_optimizers_state_saves_memory() -> None:
    spec = GPT.spec(layers=2, sequence=64, batch=4)
    alone, shared = (simulate_strategy(GPT, spec, Strategy(data=4, zero=zero), MESHES[0]) for zero in (False, True))
    saved = alone.trace.peak_memory[0] - shared.trace.peak_memory[0]
    # A quarter remains of three fp32 numbers and a bf16 gradient per parameter.
    assert saved == pytest.approx((12 + 2) * gpt_parameters(spec.network) * 3 / 4, rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "strategy", "reason"),
    [
        ({}, Strategy(tensor=5), "12 heads do not divide among 5 devices"),
        ({}, Strategy(data=3), "a batch of 32 does not divide into 3 x 1 parts"),
        ({}, Strategy(pipeline=13), "13 stages need at least 13 layers, but the network has 12"),
        ({"mode": "decode"}, Strategy(recompute=Recompute.FULL), "inference has no backward pass and no optimizer"),
        ({"mode": "prefill"}, Strategy(zero=True), "inference has no backward pass and no optimizer"),
        ({"size": "gpt3-175b"}, Strategy(), "gpu0 needs 4.97 TB of memory, "),
    ],
)
def test_what_cannot_be_says_why(sizes: dict[str, str], strategy: Strategy, reason: str) -> None:
    (found,) = evaluate(GPT, [Configuration(GPT.spec(**sizes), strategy)], MESHES[0], control=Control())
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--size gpt5", "--size: 'gpt5' is not known, choose from gpt2, "),
        ("--width 512", "--width: is not a size of gpt, which has size, layers, hidden"),
        ("--heads 7", "heads: hidden size 768 does not divide into 7 equal heads"),
        ("--tensor 5", "12 heads do not divide among 5 devices"),
        ("--mode dreaming", "mode: must be one of training, prefill, decode, got 'dreaming'"),
        ("--mode decode --tokens-before 1024", "--tokens-before: decode takes 1 to 1023 tokens, got 1024"),
        ("--tokens-before 5", "--tokens-before: training uses whole sequences, got 5"),
        ("--recompute some", "'some' is not one of 'none', 'selective', 'full'"),
        (
            "--recompute",
            "error: --recompute: needs a value; the earlier meaning of a bare --recompute is --recompute full",
        ),
        (
            "--recompute --zero",
            "error: --recompute: needs a value; the earlier meaning of a bare --recompute is --recompute full",
        ),
        ("--mode decode --recompute full", "inference has no backward pass and no optimizer"),
    ],
)
def test_bad_words_are_one_sentence(tessel: Tessel, words: str, error: str) -> None:
    code, out, err = tessel("simulate", "gpt", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert error in err


def test_a_grid_of_gpts_is_swept(tessel: Tessel) -> None:
    words = "--devices 4 --size gpt2,gpt2-medium --batch 8 --micro-batches 1..2 --mode training,decode"
    code, out, _ = tessel("sweep", "gpt", *words.split(), "--json")
    document = json.loads(out)
    grid = Grid(
        ranges(size=("gpt2", "gpt2-medium"), batch=(8,), mode=("training", "decode")),
        *[(1, 2, 4)] * 3,
        micro_batches=(1, 2),
    )
    found = evaluate_grid(GPT, grid, find_mesh("h200-4"))
    assert (code, document["configurations"]) == (0, len(found)) == (0, 2 * 2 * 10 * 2)
    assert document["feasible"] == found.feasible.sum()
    best = document["best"]["latency"]
    assert (best["mode"], best["hidden"], best["context"]) == ("decode", 768, 1023)
    assert best["latency_s"] == found.columns["latency"][found.ranked("latency")[0]]


def test_sizes_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match="choose from gpt2"):
        Grid(ranges(size=("gpt9",))).configurations(GPT)
    assert GPT.spec(size="gpt3-6.7b").network.hidden == gpt_spec("gpt3-6.7b").hidden
