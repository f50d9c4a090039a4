"""Recommendations: blocks agree with every operation, bounds with times, and the optimum with every candidate."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.control import Control
from tessel_core.costs.meshes import find_mesh, mixed_mesh, uniform_mesh
from tessel_core.errors import InputError
from tessel_core.exports.launch import LAUNCHERS, Job
from tessel_core.formats.megatron_layout import read_layout
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.condensed import condensed
from tessel_core.ir.verify import verify
from tessel_core.model import DeviceMesh
from tessel_core.rules import check_schedule
from tessel_core.samples import WORKED_ANSWER
from tessel_core.scheduling import solve_schedule
from tessel_core.strategies.block_engine import BlockEngine
from tessel_core.strategies.blocks import BlockTable
from tessel_core.strategies.closely import look_at
from tessel_core.strategies.evaluation import Configuration
from tessel_core.strategies.families import find_family
from tessel_core.strategies.layouts import balanced, sums
from tessel_core.strategies.naming import preset_names, preset_network
from tessel_core.strategies.order_times import StageTimes, counts_for, extrapolated, order_of
from tessel_core.strategies.recommendation import (
    Candidate,
    Question,
    SearchRanges,
    asked_strategies,
    in_rounds,
    judge,
    promising,
    recommend,
)
from tessel_core.strategies.searched_order import SEARCHED_PIPELINES, search_order, searched_orders
from tessel_core.strategies.strategy import Semantics, Strategy, simulate_places, why_not
from tessel_core.workbench.messages.recommendation import order_sentences, refusal


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


EIGHT = uniform_mesh("h100", 1, 8)
SMALL = {"layers": 8, "sequence": 1024}


def question(name: str, mesh: DeviceMesh, batch: int, ranges: SearchRanges | None = None, **sizes: int) -> Question:
    """Return a question about a preset in training with other sizes."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    return Question(
        family, family.spec(**{**said, **sizes, "batch": batch, "dtype": "bf16"}), mesh, ranges or SearchRanges()
    )


@pytest.mark.parametrize("name", preset_names())
def test_a_network_without_its_repeated_layers_has_the_same_layers(name: str) -> None:
    """Each remaining layer is repeated as often as it stands for others. The result has all weights and operations."""
    found = preset_network(name)
    assert found is not None
    family, said = found
    model = family.forward(family.with_batch(family.spec(**said), 1))
    short = condensed(model)
    verify(short.model.program)
    ops, again = ({i: [] for i in range(len(short.stands_for))} for _ in range(2))
    for op in model.program.ops:
        ops[op.tag.stage or 0].append((op.kind, model.program.types_of(op.outputs)))
    of_short: dict[int, list[object]] = {}
    for op in short.model.program.ops:
        of_short.setdefault(op.tag.stage or 0, []).append((op.kind, short.model.program.types_of(op.outputs)))
    for layer, stands in enumerate(short.stands_for):
        again[layer] = of_short[stands]
    assert again == ops
    assert len(short.model.program.ops) <= len(model.program.ops)


def test_repeated_layers_stand_for_each_other() -> None:
    family, said = preset_network("llama-3-70b") or pytest.fail("a preset is missing")
    short = condensed(family.forward(family.with_batch(family.spec(**said), 1)))
    assert short.stands_for == (0, *([1] * 78), 2)


def test_the_slowest_stage_is_as_fast_as_it_can_be() -> None:
    rng = random.Random(5)
    for _ in range(150):
        layers = rng.randint(1, 8)
        stages = rng.randint(1, layers)
        cost = np.array([rng.randint(1, 9) for _ in range(layers)], float)
        found = balanced([sums(cost)] * stages)
        assert found is not None
        cuts = itertools.combinations(range(1, layers), stages - 1)
        splits = [[sum(cost[a:b]) for a, b in itertools.pairwise((0, *cut, layers))] for cut in cuts]
        bounds = np.cumsum([0, *found])
        assert max(cost[a:b].sum() for a, b in itertools.pairwise(bounds)) == min(map(max, splits))
        assert min(found) >= 1


def test_no_layout_where_nothing_fits() -> None:
    assert balanced([np.full((4, 4), np.inf)] * 2) is None


STRATEGIES = (
    Strategy(8, micro_batches=4, zero=1),
    Strategy(8, micro_batches=4, zero=3, grad_dtype="fp32"),
    Strategy(4, 2, micro_batches=4, zero=2, sequence_parallel=True),
    Strategy(2, 2, 2, 8, "1f1b", zero=1, sequence_parallel=True, recompute=Recompute.SELECTIVE),
    Strategy(2, 1, 4, 16, "1f1b", zero=1, layout=(3, 2, 2, 1)),
    Strategy(1, 2, 4, 8, "interleaved", stages_per_device=2),
    Strategy(2, 1, 4, 16, "gpipe", recompute=Recompute.FULL),
    Strategy(4, 1, 2, 8, "zb-h1", zero=1),
    Strategy(2, 2, 1, 8, zero=3, context=2, sequence_parallel=True),
)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-6.7b", "mixtral-8x7b"])
def test_blocks_are_near_the_simulation_of_every_operation(name: str, strategy: Strategy) -> None:
    """Within 2 % in time and 20 % in memory; the benchmark of blocks prints how near most are."""
    asked = question(name, EIGHT, 2 * strategy.data * strategy.micro_batches, **SMALL)
    trace = simulate_places(asked.family, asked.spec, strategy, EIGHT)
    engine = BlockEngine(BlockTable(asked.family, asked.spec, EIGHT))
    outcome = engine.evaluate([Configuration(asked.spec, strategy)])[0]
    assert outcome.latency == pytest.approx(trace.latency, rel=0.02)
    assert max(outcome.peaks) == pytest.approx(max(trace.peak_memory), rel=0.2)


def test_many_micro_batches_follow_from_few() -> None:
    """The extrapolated time of a number of micro-batches equals the simulated one."""
    strategy = Strategy(1, 1, 4, 40, "1f1b")
    asked = question("llama-3-8b", EIGHT, 40, **SMALL)
    engine = BlockEngine(BlockTable(asked.family, asked.spec, EIGHT))
    outcome = engine.evaluate([Configuration(asked.spec, strategy)])[0]
    trace = simulate_places(asked.family, asked.spec, strategy, EIGHT)
    assert outcome.latency == pytest.approx(trace.latency, rel=0.01)


@pytest.mark.parametrize(("schedule", "devices", "several"), [("1f1b", 4, 1), ("1f1b", 8, 1), ("interleaved", 2, 2)])
def test_uneven_stages_take_as_long_for_many_micro_batches_as_counted(
    schedule: str, devices: int, several: int
) -> None:
    """Within 0.5 %, also if the busiest device is not the one that limits the first micro-batches."""
    rng = np.random.default_rng(3)
    stages = devices * several
    seconds = np.zeros((stages, 5, 50))
    seconds[:, 0] = 1 + 0.06 * rng.random(seconds[:, 0].shape)
    seconds[:, 1] = seconds[:, 0] * (2 + 0.1 * rng.random(seconds[:, 0].shape))
    seconds[:, 3] = 0.05 * seconds[:, 0]
    none, sends, count = np.zeros((stages, 2, 50)), np.full((stages - 1, 2, 50), 0.02), 40 * devices
    times = StageTimes(seconds, none, sends, none)
    known = counts_for(devices, several, count, repeats=True)
    orders = [order_of(schedule, devices, few, several) for few in known.few]
    fewer, more = (order.ends(times) for order in orders)
    least = (known.few[1] - known.few[0]) * orders[-1].busiest(seconds)
    found = extrapolated(fewer, more, np.full(50, known.weights[-1] - 1), least)
    exact = order_of(schedule, devices, count, several).ends(times)
    assert found.max(axis=0) == pytest.approx(exact.max(axis=0), rel=0.005)


@pytest.mark.parametrize(
    ("name", "batch", "sizes"), [("llama-3-8b", 16, SMALL), ("mixtral-8x7b", 16, {"layers": 4, "sequence": 1024})]
)
def test_the_fastest_is_the_fastest_of_all(name: str, batch: int, sizes: dict[str, int]) -> None:
    """Configurations ruled out by bounds are no faster: every configuration is timed."""
    ranges = SearchRanges(micro_batch_size=(1, 2), stages_per_device=(1, 2))
    asked = question(name, EIGHT, batch, ranges, **sizes)
    found = recommend(asked)
    engine = BlockEngine(BlockTable(asked.family, asked.spec, EIGHT))
    best, leanest = np.inf, np.inf
    for strategy in asked.strategies():
        if why_not(asked.family, asked.spec, strategy, EIGHT, Semantics.DEFAULT):
            continue
        configuration = engine.with_layout(Configuration(asked.spec, strategy))
        outcome = engine.evaluate([configuration])[0]
        staged = engine.staged(configuration)
        assert staged.least_seconds <= outcome.latency * (1 + 1e-9)
        assert staged.least_bytes <= max(outcome.peaks) * (1 + 1e-9)
        if not outcome.reason:
            best, leanest = min(best, outcome.latency), min(leanest, max(outcome.peaks))
    assert found.best is not None
    assert found.leanest is not None
    assert found.complete
    assert (found.best.outcome.latency, found.leanest.peak) == (pytest.approx(best), leanest)
    assert found.bound_s <= best * (1 + 1e-9)
    assert found.simulated + found.ruled_out + sum(found.infeasible.values()) == found.configurations


def test_a_bound_holds_where_a_late_stage_has_most_to_update() -> None:
    """Its optimizer step runs beside the last backward passes of earlier stages."""
    mesh = find_mesh("h100-2048")
    asked = question("deepseek-v3", mesh, 15360, sequence=4096)
    engine = BlockEngine(BlockTable(asked.family, asked.spec, mesh))
    how = {"recompute": Recompute.FULL, "zero": 2, "expert": 8, "grad_dtype": "fp32"}
    strategy = Strategy(512, 1, 4, 15, "1f1b", **how)  # type: ignore[arg-type]
    staged = engine.staged(engine.with_layout(Configuration(asked.spec, strategy)))
    assert staged.least_seconds <= engine.timed([staged])[0].latency


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "zb-h2", "gpipe"])
def test_a_bound_holds_for_every_order(schedule: str) -> None:
    asked = question("llama-3-8b", EIGHT, 16, **SMALL)
    engine = BlockEngine(BlockTable(asked.family, asked.spec, EIGHT))
    for layout in ((), (5, 1, 1, 1), (1, 1, 1, 5)):
        staged = engine.staged(Configuration(asked.spec, Strategy(2, 1, 4, 8, schedule, zero=1, layout=layout)))
        assert staged.least_seconds <= engine.timed([staged])[0].latency


def test_the_front_gets_slower_and_leaner() -> None:
    front = recommend(question("llama-3-8b", EIGHT, 16, **SMALL)).front
    assert len(front) > 1
    for one, other in itertools.pairwise(front):
        assert one.outcome.latency <= other.outcome.latency
        assert one.peak > other.peak


def test_the_worked_answer_is_what_the_search_says() -> None:
    """The best strategy in the file takes as long as the file says. tools/make_recommended.py searches all."""
    known = json.loads(WORKED_ANSWER.read_bytes())
    asked, best = known["asked"], known["best"]
    of = question(asked["model"], find_mesh(asked["mesh"]), asked["global_batch"], sequence=asked["sequence"])
    alone = {name: (best[name],) for name in ("tensor", "context", "pipeline", "expert", "zero")}
    size = of.spec.batch // (best["data"] * best["micro_batches"])
    ranges = SearchRanges(
        **alone, micro_batch_size=(size,), stages_per_device=(best["stages_per_device"],),
        recompute=(Recompute(best["recompute"]),),
    )  # fmt: skip
    found = recommend(replace(of, ranges=ranges)).best
    assert found is not None
    assert found.outcome.latency == pytest.approx(best["latency_s"])
    assert list(found.outcome.peaks) == best["peak_memory"]


def test_half_of_the_devices_take_longer() -> None:
    asked = question("llama-3-8b", EIGHT, 16, **SMALL)
    assert asked.halved is not None
    assert replace(asked, first=7).halved is None
    whole, half = recommend(asked).best, recommend(asked.halved).best
    assert whole is not None
    assert half is not None
    assert half.strategy.devices == 4
    assert half.outcome.latency > whole.outcome.latency


@pytest.mark.parametrize("order", ["dualpipe", "zb-v", "unknown"])
def test_an_order_that_needs_other_stages_is_refused(order: str) -> None:
    with pytest.raises(InputError, match=f"schedule: {order} is none of these orders: .*zb-h1"):
        SearchRanges(schedule=("zb-h1", order))


def test_a_batch_that_nothing_divides_names_the_nearest() -> None:
    ranges = SearchRanges(tensor=(1,), pipeline=(1,), context=(1,))
    with pytest.raises(InputError, match="the nearest batches that do: 8 and 16"):
        recommend(question("llama-3-8b", EIGHT, 12, ranges, **SMALL))


def test_a_million_configurations_are_counted_and_refused() -> None:
    """The count is exact, but no configuration is built."""
    few = question("llama-3-8b", EIGHT, 64, **SMALL)
    assert few.size == len(list(few.strategies()))
    ranges = SearchRanges(stages_per_device=tuple(range(1, 2000)), micro_batch_size=tuple(range(1, 65)))
    with pytest.raises(InputError, match=r"configurations, more than the 200,000 .* per second they would take"):
        recommend(question("llama-3-8b", EIGHT, 64, ranges, **SMALL))


def test_a_model_that_does_not_fit_names_the_closest() -> None:
    found = recommend(question("llama-3-70b", EIGHT.with_capacity(10**9), 8, SearchRanges(micro_batch_size=(1,))))
    assert found.best is None
    assert found.bound_s is None
    assert sum(found.infeasible.values()) == found.configurations
    assert found.nearest is not None
    assert found.nearest[1] > 10**9
    assert f"The closest is {found.nearest[0].summary}." in refusal(found)[1]


def test_a_stop_keeps_the_best_so_far() -> None:
    control = Control()
    control.cancel()
    found = recommend(question("llama-3-8b", EIGHT, 16, **SMALL), control)
    assert not found.complete
    assert found.best is None


@pytest.mark.parametrize(
    ("name", "batch", "sizes"),
    [
        ("llama-3-8b", 64, {"layers": 8}),
        ("mixtral-8x7b", 32, {"layers": 4}),
        ("gpt-6.7b", 64, {}),
        ("mt5-large", 64, {}),
    ],
)
def test_the_first_answer_is_a_good_one(name: str, batch: int, sizes: dict[str, int]) -> None:
    """The first reported step is within 3 % of the last, long before all configurations have bounds."""
    control = Control()
    found = recommend(question(name, EIGHT, batch, **sizes), control)
    news = [each for each in control.history if each.objective is not None]
    assert found.best is not None
    assert float(news[0].objective or 0) <= found.best.outcome.latency * 1.03
    assert float(news[-1].objective or 0) == found.best.outcome.latency
    assert "timed" in news[0].phase


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "deepseek-v2-lite"])
def test_a_search_of_many_experts_begins_with_a_good_strategy(name: str) -> None:
    """One of the first hundred strategies is within 5 % of the fastest, although exchanges of tokens take long."""
    asked = question(name, EIGHT, 64, layers=6)
    table = BlockTable(asked.family, asked.spec, asked.mesh)
    every = asked_strategies(asked)
    first = promising(asked, every, table)
    assert len(every) > 1000
    assert len(set(first)) == len(first)
    assert set(first) <= set(every)
    early = judge(asked, first[:100], table, Control())
    best = recommend(asked, table=table).best
    assert best is not None
    assert min(each.outcome.latency for each in early.candidates) <= 1.05 * best.outcome.latency


def test_rounds_have_every_strategy_once() -> None:
    """Rounds double, and the last one has the strategies that are not among the promising ones."""
    asked = asked_strategies(question("llama-3-8b", EIGHT, 64, layers=8))
    rounds = list(in_rounds(asked[::-1][:100], asked))
    assert [len(each) for each in rounds] == [16, 32, 52, len(asked) - 100]
    assert sorted(map(str, itertools.chain(*rounds))) == sorted(map(str, asked))


def test_devices_of_one_stage_are_of_one_kind() -> None:
    mesh = mixed_mesh("h100", "a100")
    asked = question("llama-3-8b", mesh, 2 * len(mesh.devices), **SMALL)
    found = recommend(asked)
    assert found.best is not None
    assert found.best.strategy.pipeline > 1
    assert any("of several kinds" in reason for reason in found.infeasible)


def test_the_stages_of_an_answer_are_a_plan() -> None:
    ranges = SearchRanges(pipeline=(4,), micro_batch_size=(1,))
    asked = question("llama-3-8b", EIGHT, 32, ranges, **SMALL)
    best = recommend(asked).best
    assert best is not None
    look = look_at(asked, best)
    assert look.plan is not None
    assert look.schedule is not None
    assert look.schedule.makespan * 1e-9 == pytest.approx(best.outcome.latency, rel=0.2)
    assert sum(look.memory_parts.values()) == pytest.approx(best.peak, abs=4)


def test_a_searched_order_is_never_longer_than_the_named_one() -> None:
    """Steps differ by the difference of the pipelines. A proved order meets the bound of the plan."""
    ranges = SearchRanges(pipeline=(2, 4), micro_batch_size=(1, 2), schedule=("1f1b", "gpipe"))
    asked = question("llama-3-8b", EIGHT, 16, ranges, **SMALL)
    table = BlockTable(asked.family, asked.spec, EIGHT)
    orders = searched_orders(recommend(asked, table=table), table, Control(), 0.5)
    assert len(orders) == SEARCHED_PIPELINES
    assert [each.latency for each in orders] == sorted(each.latency for each in orders)
    for each in orders:
        strategy, schedule = each.candidate.strategy, each.schedule
        named = solve_schedule(strategy.schedule, schedule.plan, strategy.micro_batches).drawable
        assert named is not None
        assert schedule.micro_batches == strategy.micro_batches
        assert not check_schedule(schedule)
        assert schedule.makespan <= named.makespan
        saved = (named.makespan - schedule.makespan) * 1e-9
        assert each.latency == pytest.approx(each.candidate.outcome.latency - saved)
        assert each.bound <= each.latency
        assert each.proved == (each.bound == each.latency)


def test_an_order_that_is_not_the_shortest_is_shortened() -> None:
    """Interleaved 1F1B runs micro-batches in groups, which is not best if stages are uneven."""
    asked = question("llama-3-8b", EIGHT, 16, **SMALL)
    table = BlockTable(asked.family, asked.spec, EIGHT)
    strategy = Strategy(2, 1, 4, 8, "interleaved", zero=1, stages_per_device=2)
    outcome = BlockEngine(table).evaluate([Configuration(asked.spec, strategy)])[0]
    found = search_order(table, Candidate(strategy, outcome), 2.0, Control())
    assert found is not None
    assert found.is_shorter
    assert order_sentences([found])[0].startswith(f"{strategy.summary}: a step takes")


def job(strategy: Strategy, name: str = "llama-3.1-70b") -> Job:
    """Return the job of that strategy with 64 samples."""
    asked = question(name, EIGHT, 64)
    return Job(name, asked.family, asked.spec, strategy)


PIPELINED = Strategy(2, 2, 2, 8, "1f1b", zero=1, sequence_parallel=True, layout=(41, 39))


def test_a_torchtitan_configuration_is_python_that_sets_every_degree() -> None:
    written = LAUNCHERS["torchtitan"].write(job(PIPELINED))
    code = compile(written.text, "recommended.py", "exec")
    assert "recommended" in code.co_names
    assert "config.parallelism.tensor_parallel_degree = 2" in written.text
    assert "'layers.40'], ['layers.41'" in written.text
    assert any("ZeRO-1" in each for each in written.left_out)


def test_megatron_arguments_have_the_layout() -> None:
    words = LAUNCHERS["megatron"].write(job(PIPELINED)).text.replace("\\\n", " ").split()
    given = dict(itertools.pairwise(words))
    stages = read_layout(given["--pipeline-model-parallel-layout"].strip("'"))
    assert [stage.count("t") for stage in stages] == [41, 39]
    assert given["--global-batch-size"] == "64"
    assert given["--num-query-groups"] == "8"
    assert "--use-distributed-optimizer" in words


def test_a_deepspeed_config_multiplies_to_the_batch() -> None:
    asked = job(Strategy(8, micro_batches=4, zero=2), "llama-3-8b")
    config = json.loads(LAUNCHERS["deepspeed"].write(asked).text)
    parts = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 8
    assert parts == config["train_batch_size"] == 64
    assert config["zero_optimization"]["stage"] == 2


def test_a_framework_that_cannot_says_why() -> None:
    assert "pipeline" in LAUNCHERS["deepspeed"].objection(job(PIPELINED))
    assert "zb-h1" in LAUNCHERS["megatron"].objection(job(replace(PIPELINED, schedule="zb-h1")))
    resnet = find_family("resnet")
    asked = Job("resnet50", resnet, resnet.spec(batch=64), Strategy(8))
    assert LAUNCHERS["torchtitan"].objection(asked)


def test_a_layout_must_have_all_layers(tessel: Tessel) -> None:
    asked = ("simulate", "gpt", "--layers", "4", "--pipeline", "2", "--batch", "4", "--micro-batches", "4")
    assert tessel(*asked, "--layout", "3,1")[0] == 0
    code, _, error = tessel(*asked, "--layout", "3,2")
    assert (code, "5 layers in total, but the network has 4" in error) == (2, True)


def test_the_command_answers_in_json(tessel: Tessel, tmp_path: Path) -> None:
    asked = ("recommend", "llama-3-8b", "--mesh", "h100-8", "--global-batch", "16", "--set", "layers=4")
    out = tmp_path / "run.py"
    code, text, _ = tessel(*asked, "--micro-batch-size", "1", "--json", "--launch", "torchtitan", "--out", str(out))
    found = json.loads(text)
    assert code == 0
    assert found["proved"] is True
    assert found["best"] == found["front"][0]
    assert found["best"]["latency_s"] >= found["bound_s"]
    assert out.read_text().startswith('"""')


def test_the_command_writes_the_searched_order(tessel: Tessel, tmp_path: Path) -> None:
    asked = ("recommend", "llama-3-8b", "--mesh", "h100-8", "--global-batch", "16", "--set", "layers=4")
    more = ("--pipeline", "2", "--micro-batch-size", "1", "--order-seconds", ".3", "--json")
    code, text, _ = tessel(*asked, *more, "--schedule-out", "order.schedule.json")
    found = json.loads(text)
    assert code == 0
    for each in found["searched_orders"]:
        assert each["bound_s"] <= each["latency_s"] <= each["strategy"]["latency_s"]
    code, text, _ = tessel("check", "order.schedule.json")
    assert code == 0
    assert tessel(*asked, *more, "--schedule-out", "order.nothing")[0] == 2
    code, text, error = tessel(*asked, *more, "--order-seconds", "0", "--schedule-out", "none.schedule.json")
    assert json.loads(text)["searched_orders"] == []
    assert "no order of a pipeline was searched" in error


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--global-batch", "12", "--pipeline", "1", "--tensor", "1", "--context", "1"), "the nearest batches that do"),
        (("--global-batch", "16", "--recompute", "some"), "is not known"),
        (("--global-batch", "16", "--tensor", "two"), "must be numbers and ranges"),
        (("--global-batch", "16", "--launch", "torchtitan"), "go together"),
        (("--global-batch", "16", "--set", "wheels=4"), "is not a size of llama"),
    ],
)
def test_bad_questions_get_one_sentence(tessel: Tessel, more: tuple[str, ...], why: str) -> None:
    code, out, error = tessel("recommend", "llama-3-8b", "--mesh", "h100-8", *more)
    assert (code, out) == (2, "")
    assert why in error
    assert error.count("\n") == 1
