"""Recommendations for operator graphs: as good as brute force, and never worse than simple strategies."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.graph_strategies import random_graph, simple_steps
from helpers.terminal import Tessel, terminal

from tessel_core.api import load
from tessel_core.control import Control, Progress
from tessel_core.costs.meshes import mixed_mesh, uniform_mesh
from tessel_core.costs.reductions import MeshReductions, ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.formats.graph_file import graph_text
from tessel_core.model import DeviceMesh, DeviceTime, MemoryProfile, OperatorGraph, Schedule
from tessel_core.placement.problem import placement_problem
from tessel_core.rules import check_schedule
from tessel_core.samples import load_graph
from tessel_core.strategies.graphs.pipelines import Pipeline
from tessel_core.strategies.graphs.question import LIST_ORDER, GraphConfiguration, GraphQuestion, GraphRanges
from tessel_core.strategies.graphs.search import UNEQUAL, placed_candidates, recommend_graph, searched_steps
from tessel_core.strategies.graphs.timing import PlacedCandidate, StepTimer
from tessel_core.strategies.recommendation import divisors

THREE, FOUR = uniform_mesh("h100", 1, 3), uniform_mesh("h100", 1, 4)
ONE_STAGE_EACH = GraphRanges(stages_per_device=(1,))
STATIC_BYTES = 8
"""Bytes that training holds per byte of weights: the weight, its gradient, and six bytes of optimizer state."""


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def tight(graph: OperatorGraph, mesh: DeviceMesh, share: float) -> DeviceMesh:
    """Return the mesh with devices that hold this share of what training holds without activations."""
    weights = sum(each.weight_bytes or 0 for each in graph.operators)
    return mesh.with_capacity(round(share * STATIC_BYTES * weights))


def every_step(question: GraphQuestion) -> Iterator[PlacedCandidate]:
    """Yield the step of every contiguous placement with one stage per device, with and without replicas."""
    for data in divisors(question.micro_batches):
        room, most = question.devices // data, question.micro_batches // data * question.graph.batch_size
        for stages in range(1, room + 1):
            for sizes in itertools.product(range(1, min(room, most) + 1), repeat=stages):
                if sum(sizes) <= room:
                    yield from steps_of(question, data, sizes)


def steps_of(question: GraphQuestion, data: int, sizes: tuple[int, ...]) -> Iterator[PlacedCandidate]:
    """Yield the steps of all placements in stages with these numbers of devices."""
    graph, count, total = question.graph, question.micro_batches // data, sum(sizes)
    asked = GraphConfiguration(data, total, 0, None, "1f1b")
    ends = itertools.accumulate(sizes)
    sets = [tuple(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    once = ReplicaOptions(reduce_every=count)
    problem = placement_problem(graph, question.mesh.part(range(total)), question.costs, replicas=once)
    problem = problem.for_micro_batches(count)
    for stage_of in itertools.product(range(len(sizes)), repeat=len(graph.colocated)):
        placement = problem.placement([sets[stage_of[group]] for group in graph.group_of])
        if len(set(stage_of)) == len(sizes) and not problem.violations(placement):
            yield from in_first_order(question, asked, Pipeline(problem, placement, question.costs, once, 0.0))


def in_first_order(question: GraphQuestion, asked: GraphConfiguration, pipeline: Pipeline) -> Iterator[PlacedCandidate]:
    """Yield the step with 1F1B, or with list schedules if 1F1B does not suit the stages or exceeds the memory."""
    placed = StepTimer(question).placed(asked, pipeline)
    try:
        timed = placed.timed("1f1b", Control())
    except InputError:
        timed = None
    timed = timed or placed.timed(LIST_ORDER, Control())
    if timed is not None:
        yield timed


@pytest.mark.parametrize(("seed", "batch"), [(3, 4), (5, 6), (10, 4), (14, 1), (15, 2)])
def test_fastest_and_leanest_equal_brute_force(seed: int, batch: int) -> None:
    graph = random_graph(seed, 4 + seed % 2)
    mesh = tight(graph, THREE, 0.45 + 0.1 * (seed % 4))
    found = recommend_graph(GraphQuestion(graph, mesh, batch, ONE_STAGE_EACH))
    every = list(every_step(found.question))
    assert found.best is not None
    assert found.leanest is not None
    assert found.bound_s is not None
    assert found.best.outcome.latency == pytest.approx(min(each.outcome.latency for each in every), rel=1e-9)
    assert found.leanest.peak == min(each.peak for each in every)
    assert found.bound_s <= found.best.outcome.latency


@pytest.mark.parametrize("name", ["mlp-8-training", "mt5-base-training", "gpt-6.7b-training", 1, 2, 3])
def test_never_worse_than_simple_strategies(name: str | int) -> None:
    graph = load_graph(name) if isinstance(name, str) else random_graph(name, 12)
    mesh = FOUR.with_capacity(85 * 10**9) if isinstance(name, str) else tight(graph, FOUR, 0.6)
    found = recommend_graph(GraphQuestion(graph, mesh, 16, ONE_STAGE_EACH))
    assert found.best is not None
    simple = simple_steps(graph, mesh, 16)
    assert simple
    assert found.best.outcome.latency <= min(simple.values()) * (1 + 1e-6)


def test_steps_and_memory_come_from_valid_schedules() -> None:
    graph = random_graph(2, 6)
    found = recommend_graph(GraphQuestion(graph, tight(graph, FOUR, 0.6), 8))
    steps = searched_steps(found, Control(20), seconds=0.5)
    assert found.best is not None
    assert found.bound_s is not None
    assert steps
    assert any(each.strategy.stages_per_device > 1 for each in found.candidates)
    assert steps[0].latency <= found.best.outcome.latency
    for each in (*placed_candidates(found), *(step.found for step in steps)):
        assert not check_schedule(each.schedule)
        assert list(each.outcome.peaks) == list(MemoryProfile.of(each.schedule).peaks)
        assert max(each.outcome.peaks) <= found.question.mesh.devices[0].memory_capacity
        assert each.schedule.makespan / 1e9 <= each.outcome.latency
        assert found.bound_s <= each.outcome.latency * (1 + 1e-9)
        assert each.step_bound <= each.outcome.latency * (1 + 1e-9)
        assert each.strategy.devices <= 4
        assert each.strategy.data * each.strategy.micro_batches == 8


@pytest.mark.parametrize("weights", [10**6, 10**10])
def test_a_step_of_replicas_is_work_and_the_exposed_reduction(weights: int) -> None:
    """The reduction overlaps the work on one micro-batch. More of it follows the last run."""
    graph = random_graph(2, 1)
    first = replace(graph.operators[0], weight_bytes=weights, times=(DeviceTime("h100", 0.004),))
    second = replace(graph.operators[1], times=(DeviceTime("h100", 0.008),))
    graph = replace(graph, operators=(first, second))
    ranges = GraphRanges(data=(3,), pipeline=(1,))
    found = recommend_graph(GraphQuestion(graph, THREE.with_capacity(10**12), 6, ranges))
    reduction = MeshReductions(THREE).seconds((0, 1, 2), weights)
    assert found.best is not None
    assert found.best.outcome.latency == pytest.approx(2 * 0.012 + max(0.0, reduction - 0.012), rel=1e-9)
    assert (reduction > 0.012) == (weights == 10**10)


def test_replicas_that_are_linked_otherwise_have_their_own_plans() -> None:
    """The second of two pipelines over two devices each crosses nodes of three and one devices."""
    mesh = uniform_mesh("h100", 2, 3)
    question = GraphQuestion(random_graph(2, 4), mesh, 4, GraphRanges((3,), (2,), (1,)))
    found = placed_candidates(recommend_graph(replace(question, micro_batches=6)))
    near = next(each for each in found if not each.placed.configuration.strided)
    assert near.placed.devices == ((0, 1), (2, 3), (4, 5))
    assert len(near.placed.plans) == 2
    lags = [max(arc.lag for arc in plan.dependencies) for plan in near.placed.plans]
    assert lags[0] < lags[1]


def test_replicas_take_equal_devices_of_a_mixed_mesh() -> None:
    """Neighbouring devices are of one kind, so that only strided pipelines are replicas of each other."""
    mesh = mixed_mesh("h100", "a100").part((0, 1, 8, 9))
    found = recommend_graph(GraphQuestion(random_graph(2, 4), mesh, 4, GraphRanges((2,), (2,), (1,))))
    assert found.infeasible == {UNEQUAL: 1}
    assert [each.placed.devices for each in placed_candidates(found)] == [((0, 2), (1, 3))]


def test_the_closest_strategy_fits_into_the_memory_that_it_needs() -> None:
    graph = random_graph(4, 6)
    question = GraphQuestion(graph, tight(graph, FOUR, 0.1), 4)
    found = recommend_graph(question)
    assert (found.best, found.complete) == (None, True)
    assert found.nearest is not None
    strategy, needed = found.nearest
    assert needed > tight(graph, FOUR, 0.1).devices[0].memory_capacity
    ranges = GraphRanges((strategy.data,), (strategy.pipeline,), (strategy.stages_per_device,))
    enough = replace(question, mesh=FOUR.with_capacity(round(needed)), ranges=ranges)
    assert recommend_graph(enough).best is not None
    assert recommend_graph(replace(enough, mesh=FOUR.with_capacity(round(needed) - 1))).best is None


def test_a_stopped_search_keeps_its_best() -> None:
    control = Control()

    def stop(news: Progress) -> None:
        if news.objective is not None:
            control.cancel()

    control = Control(on_progress=stop)
    found = recommend_graph(GraphQuestion(random_graph(2, 12), FOUR, 8), control)
    assert found.best is not None
    assert (found.complete, found.bound_s) == (False, None)


def written(graph: OperatorGraph, name: str = "graph.json") -> str:
    """Write the graph to a file and return its name."""
    Path(name).write_text(graph_text(graph))
    return name


def test_the_command_writes_files_that_other_commands_read(tessel: Tessel) -> None:
    graph = random_graph(2, 8)
    asked = ("recommend", written(graph), "--mesh", "h100-4", "--global-batch", "8", "--stages-per-device", "1")
    room = tight(graph, FOUR, 0.6).devices[0].memory_capacity
    outs = ("--placement-out", "placed.json", "--plan-out", "plan.json", "--schedule-out", "best.schedule.json")
    code, text, _ = tessel(*asked, "--memory", str(room), "--order-seconds", "0.5", *outs, "--json")
    found = json.loads(text)
    assert (code, found["proved"]) == (0, True)
    assert sum(found["best"]["replicas"]) * found["best"]["data"] <= 4
    assert found["bound_s"] <= found["best"]["latency_s"] <= found["half_the_devices"]["latency_s"]
    assert found["leanest"]["peak_memory"] == found["front"][-1]["peak_memory"]
    assert tessel("check", "graph.json", "placed.json")[0] == 0
    assert tessel("plan", "graph.json", "placed.json", "--mesh", "h100-4", "--out", "again.json")[0] == 0
    again, plan = (json.loads(Path(name).read_text()) for name in ("again.json", "plan.json"))
    assert [again[key] for key in ("blocks", "dependencies")] == [plan[key] for key in ("blocks", "dependencies")]
    assert tessel("check", "best.schedule.json")[0] == 0
    fastest = min([found["best"]["latency_s"], *(each["latency_s"] for each in found["searched_orders"])])
    schedule = load("best.schedule.json")
    assert isinstance(schedule, Schedule)
    assert schedule.makespan / 1e9 <= fastest * (1 + 1e-9)
    code, shown, _ = tessel(*asked, "--order-seconds", "0")
    assert code == 0
    assert "The largest load of a device is" in shown
    assert "samples/s" in shown
    assert "tokens/s" not in shown


def test_a_graph_of_a_known_network_is_placed_on_request(tessel: Tessel) -> None:
    asked = ("recommend", "mlp-8-training", "--mesh", "h100-2", "--global-batch", "4", "--order-seconds", "0", "--json")
    code, text, _ = tessel(*asked, "--as-graph", "--stages-per-device", "1")
    assert code == 0
    assert json.loads(text)["best"]["replicas"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--sequence", "8"), "--sequence: does not apply, because an operator graph has fixed sizes"),
        (("--tensor", "1,2"), "--tensor: does not apply, because an operator graph has no tensors to cut"),
        (
            ("--micro-batch-size", "2"),
            "--micro-batch-size: does not apply, because an operator graph is the work of one",
        ),
        (("--compiled",), "--compiled: does not apply"),
        (("--grad-dtype", "fp32"), "--grad-dtype: does not apply"),
        (("--set", "mode=inference"), "--set: does not apply"),
        (("--launch", "torch", "--out", "x.py"), "--launch: does not apply, because frameworks build networks"),
        (("--workers", "2"), "--workers: does not apply"),
        (("--dtype", "fp8"), "--dtype: fp8 does not apply"),
        (("--schedule", "tessel"), "--schedule: 'tessel' is not known"),
        (("--data", "3"), "the nearest numbers that do: 6 and 9"),
        (("--data", "8"), "ranges: have no pipeline on 4 devices"),
        (("--pipeline", "1", "--stages-per-device", "2"), "ranges: have no pipeline"),
        (("--pipeline", "0"), "--pipeline: must be at least 1"),
        (("--plan-out", "a.json", "--placement-out", "a.json"), "a.json: is named by several options"),
        (("--plan-out", "graph.json"), "graph.json: is the input file and would be overwritten"),
    ],
)
def test_options_without_meaning_get_one_sentence(tessel: Tessel, more: tuple[str, ...], why: str) -> None:
    graph = written(random_graph(2, 4))
    code, out, error = tessel("recommend", graph, "--mesh", "h100-4", "--global-batch", "8", *more)
    assert (code, out) == (2, "")
    assert why in error.splitlines()[-1]


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        ("gpt2-small", ("--data", "2"), "--data: applies only to an operator graph, but gpt2-small is a network"),
        ("gpt2-small", ("--plan-out", "plan.json"), "--plan-out: applies only to an operator graph"),
        ("gpt2-small", ("--as-graph",), "--as-graph: is for an operator graph"),
    ],
)
def test_networks_have_no_options_of_graphs(tessel: Tessel, model: str, more: tuple[str, ...], why: str) -> None:
    code, _, error = tessel("recommend", model, "--mesh", "h100-4", "--global-batch", "8", *more)
    assert code == 2
    assert why in error.splitlines()[-1]


def test_a_graph_that_fits_nowhere_says_how_much_it_lacks(tessel: Tessel) -> None:
    asked = ("recommend", written(random_graph(2, 4)), "--mesh", "h100-2", "--global-batch", "4")
    code, out, _ = tessel(*asked, "--memory", "1e9")
    assert code == 1
    assert "The closest is " in out
    assert "more than a device has" in out
