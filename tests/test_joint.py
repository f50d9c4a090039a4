"""The joint search is never worse than the best placement alone, and better if its memory limits the schedule."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from helpers.seeds import one_in
from helpers.training_graphs import NS, random_mesh, training_graph

from tessel_core.control import Control
from tessel_core.costs.costed import CostOptions, costed
from tessel_core.model import (
    PERIOD,
    Communication,
    Device,
    DeviceMesh,
    DeviceTime,
    Edge,
    InFlight,
    Link,
    Operator,
    OperatorGraph,
    PlacementLoads,
    StageLayout,
    Status,
)
from tessel_core.placement import PlacementProblem
from tessel_core.planning import JointConfig, JointQuestion, plan_of, search_jointly
from tessel_core.rules import check_placement
from tessel_core.scheduling import solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.messages.placement import Tone
from tessel_core.workbench.messages.plan import joint_rows, joint_verdict

QUICK = JointConfig(placements=4, micro_batches=8, time_limit=20.0, workers=1)


def random_problem(seed: int) -> PlacementProblem:
    choose = Random(seed)
    graph, mesh = training_graph(choose), random_mesh(choose)
    return PlacementProblem.on_mesh(costed(graph, mesh, CostOptions()), mesh, Communication.BLOCKING)


def test_without_a_placement_nothing_is_scheduled() -> None:
    problem = random_problem(0)
    full = replace(problem, devices=tuple(replace(each, memory_capacity=0.0) for each in problem.devices))
    assert search_jointly(full, QUICK).entries == ()


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_never_worse_than_the_best_placement_alone(seed: int) -> None:
    report = search_jointly(random_problem(seed), QUICK)
    assert report.placement.solution is not None
    alone = solve_schedule("tessel", plan_of(report.placement.solution), 8, TesselConfig(time_limit=5, workers=1))
    if alone.period_per_micro_batch is None:
        pytest.skip("one micro-batch of the best placement does not fit, so it has no period")
    assert report.best is not None
    assert report.best.period is not None
    assert report.best.period <= alone.period_per_micro_batch
    assert report.bound is not None
    assert report.best.period >= report.bound - len(report.best.plan.blocks)
    assert len({entry.candidate.placement.assignment for entry in report.entries}) == len(report.entries)
    for entry in report.entries:
        assert check_placement(entry.candidate.placement) == []
        assert entry.candidate.load == PlacementLoads.of(entry.candidate.placement).largest
        if entry.period is not None:
            assert (entry.report.objective_name, entry.report.objective) == (PERIOD, entry.period)
            if entry.report.steady is None:  # then a sequential schedule takes no longer than the repetend
                one_by_one = solve_schedule("sequential", entry.plan, QUICK.micro_batches).makespan
                assert entry.report.repetend.expand(QUICK.micro_batches).makespan >= one_by_one
                continue
            assert entry.report.makespan == entry.report.repetend_makespan, "the schedule that keeps the period"


def test_less_memory_on_the_first_stage_gives_a_shorter_period() -> None:
    """Equal stages leave the first device room for one micro-batch in flight; a smaller first stage has room for two.

    Six layers, each 10 ns forward and 20 backward, holding 10 bytes; 35 bytes a device.
    """
    layers = range(6)
    forward = [
        Operator(f"f{i}", times=(DeviceTime("gpu", 10 * NS),), output_bytes=1, activation_bytes=10) for i in layers
    ]
    backward = [
        Operator(f"b{i}", times=(DeviceTime("gpu", 20 * NS),), output_bytes=1, backward=True, forward_of=f"f{i}")
        for i in layers
    ]
    edges = [Edge(f"f{i}", f"f{i + 1}") for i in layers[:-1]] + [Edge("f5", "b5")]
    edges += [Edge(f"b{i + 1}", f"b{i}") for i in layers[:-1]]
    graph = OperatorGraph("six", (*forward, *backward), tuple(edges))
    devices = tuple(Device(f"gpu{i}", "gpu", memory_capacity=45) for i in range(2))
    mesh = DeviceMesh("pair", devices, same_node_link=Link(1e12))
    problem = replace(PlacementProblem.on_mesh(costed(graph, mesh, CostOptions()), mesh), in_flight=InFlight(1))
    report = search_jointly(problem, JointConfig(placements=8, micro_batches=16, workers=1))
    assert report.best is not None
    first = next(entry for entry in report.entries if entry.candidate.origin == "least largest load")
    assert first.candidate.load == pytest.approx(90 * NS)
    assert report.best.period is not None
    assert first.period is not None
    assert report.best.period < first.period
    assert not report.proved


def test_cancelled_it_keeps_the_best_so_far() -> None:
    graph, mesh = training_graph(Random(5)), random_mesh(Random(5))
    problem = PlacementProblem.on_mesh(costed(graph, mesh, CostOptions()), mesh)
    control = Control()
    control.cancel()
    report = search_jointly(problem, QUICK, control=control)
    assert report.placement.status is Status.CANCELLED or len(report.entries) <= 1


def test_in_words_the_best_is_marked_and_held_against_the_first() -> None:
    graph, mesh = training_graph(Random(5)), random_mesh(Random(5))
    problem = PlacementProblem.on_mesh(costed(graph, mesh, CostOptions()), mesh)
    control = Control()
    report = JointQuestion(problem, QUICK).solve(control)
    assert report.best is not None
    assert sorted(control.parts, key=lambda entry: entry.rank) == list(report.entries)
    rows = joint_rows(control.parts, graph.time_unit)
    (best,) = (row for row in rows if row["rank"] == "best")
    assert best["placement"] == report.best.candidate.origin
    assert [row["rank"] for row in rows] == ["best", *map(str, range(2, len(rows) + 1))]
    (first,) = (row for row in rows if row["placement"] == "least largest load")
    assert first["against the first"] == "1.000 ×"
    ratio = report.best.period / control.parts[0].period
    assert best["against the first"] == f"{float(ratio):.3f} ×"
    gaps = [news.gap for news in control.history if news.gap is not None]
    assert gaps
    assert min(gaps) >= 0
    assert joint_verdict(report).tone is (Tone.PROVED if report.proved else Tone.FOUND)
    alone = report.placement_report(report.best)
    assert alone.solution == report.best.candidate.placement
    assert (alone.status is Status.PROVED_OPTIMAL) == (alone.objective <= report.placement.bound)


def test_nothing_found_is_told_with_the_reason() -> None:
    graph, mesh = training_graph(Random(5)), random_mesh(Random(5))
    tiny = replace(mesh, devices=tuple(replace(each, memory_capacity=1) for each in mesh.devices))
    report = search_jointly(PlacementProblem.on_mesh(costed(graph, tiny, CostOptions()), tiny), QUICK)
    verdict = joint_verdict(report)
    assert verdict.tone is Tone.BROKEN
    assert verdict.text[:-1].lower() == report.placement.reason.rstrip(".").lower()


def test_layouts_are_scheduled_and_ranked_by_makespan() -> None:
    """Twelve equal layers on two devices. Stages in a loop have a shorter warmup and cooldown."""
    operators, edges = list[Operator](), list[Edge]()
    for i in range(12):
        took = (DeviceTime("gpu", 1e-3),)
        operators.append(Operator(f"layer{i}", times=took, output_bytes=8))
        operators.append(Operator(f"layer{i}b", times=took, output_bytes=8, backward=True, forward_of=f"layer{i}"))
        if i:
            edges += [Edge(f"layer{i - 1}", f"layer{i}"), Edge(f"layer{i}b", f"layer{i - 1}b")]
    mesh = DeviceMesh("pair", (Device("gpu0", "gpu"), Device("gpu1", "gpu")), same_node_link=Link(1e12, 0.0))
    graph = OperatorGraph("layers", tuple(operators), tuple(edges))
    problem = PlacementProblem.on_mesh(graph, mesh, Communication.OVERLAPPED)
    problem = replace(problem, layout=StageLayout(3))
    report = search_jointly(problem, JointConfig(placements=6, micro_batches=8, time_limit=20.0, workers=1))
    makespans = [entry.report.makespan for entry in report.entries]
    assert makespans == sorted(makespans, key=lambda each: each or 0)
    origins = [entry.candidate.origin for entry in report.entries]
    assert sorted(origins) == [
        "loop of 2 stages per device",
        "loop of 3 stages per device",
        "one stage per device",
        "v of 2 stages per device",
        "v of 3 stages per device",
    ]
    assert origins[-1] == "one stage per device"
    assert report.proved
    for entry in report.entries:
        assert check_placement(entry.candidate.placement) == []
        assert report.placement_report(entry).status is Status.PROVED_OPTIMAL
