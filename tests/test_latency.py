"""Placements for latency: all splits of small graphs, published figures, and laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from threading import Timer

import pytest
from helpers.graphs import random_graph, random_pool
from helpers.latency import every_split, latency_of, least_latency
from helpers.seeds import reaching, seeds

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import (
    CPU,
    LATENCY,
    Allowance,
    Communication,
    Device,
    DeviceMesh,
    DevicePool,
    DeviceTime,
    Edge,
    Latency,
    Link,
    Operator,
    OperatorGraph,
    PlacementReport,
    Status,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.latency.placers import LatencyConfig
from tessel_core.rules import check_placement

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement" / "latency"
GREEDY = {
    "LayerGraphs/bert24_inference": 100.2185,
    "LayerGraphs/resnet50_inference": 4197.05546875,
    "LayerGraphs/inceptionv3_inference": 2485.2396298828126,
    "OperatorGraphs/bert_l-3_inference": 416.20437558696733,
    "OperatorGraphs/bert_l-12_inference": 867.8394712360762,
    "OperatorGraphs/resnet50_inference": 839.5362863359463,
}
"""Latency in ms of the published greedy algorithm by its own evaluator."""
BEST_KNOWN = {
    "LayerGraphs/resnet50_inference": 1156.8813,
    "OperatorGraphs/bert_l-12_inference": 765.3005,
    "OperatorGraphs/resnet50_inference": 651.1209,
}
published = pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")


def asked(graph: OperatorGraph, pool: DevicePool) -> PlacementProblem:
    return replace(PlacementProblem.on_pool(graph, pool), objective=LATENCY)


def placed(
    graph: OperatorGraph, pool: DevicePool, placer: str = "latency-cp-sat", subgraphs: int = 1
) -> PlacementReport | None:
    """Return the placement, or None if an operator runs on no device."""
    config = PLACERS[placer].config(subgraphs=subgraphs)
    try:
        return solve_placement(placer, asked(graph, pool), config)
    except InputError:
        return None


def placeable(seed: int, subgraphs: int, most: int = 5) -> tuple[OperatorGraph, DevicePool]:
    """Return a random graph, and devices on which it can be placed."""

    def fits(each: int) -> bool:
        return least_latency(random_graph(each, most), random_pool(each), subgraphs) is not None

    seed = reaching(seed, fits)
    return random_graph(seed, most), random_pool(seed)


@pytest.mark.parametrize("subgraphs", [1, 2])
@pytest.mark.parametrize("seed", seeds(20))
def test_where_nothing_fits_the_placer_says_so(seed: int, subgraphs: int) -> None:
    seed = reaching(seed, lambda each: least_latency(random_graph(each, 5), random_pool(each), subgraphs) is None)
    report = placed(random_graph(seed, 5), random_pool(seed), subgraphs=subgraphs)
    assert report is None or report.status is Status.INFEASIBLE


@pytest.mark.parametrize("subgraphs", [1, 2])
@pytest.mark.parametrize("seed", seeds(40))
def test_nothing_is_better_than_what_is_proved(seed: int, subgraphs: int) -> None:
    graph, pool = placeable(seed, subgraphs, most=6 if subgraphs == 1 else 5)
    best, report = least_latency(graph, pool, subgraphs), placed(graph, pool, subgraphs=subgraphs)
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    assert report.objective == report.bound
    assert float(report.objective or 0) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("placer", [name for name, each in PLACERS.items() if LATENCY in each.objectives])
@pytest.mark.parametrize("seed", seeds(40, 70))
def test_every_placer_claims_what_it_does(placer: str, seed: int) -> None:
    subgraphs = 1 + seed % 2

    def finds(each: int) -> bool:
        report = placed(random_graph(each, most=5), random_pool(each), placer, subgraphs)
        assert report is None or report.solution is not None or report.reason
        return report is not None and report.solution is not None

    seed = reaching(seed, finds)
    graph, pool = random_graph(seed, most=5), random_pool(seed)
    report = placed(graph, pool, placer, subgraphs)
    best = least_latency(graph, pool, subgraphs)
    assert report is not None
    assert report.solution is not None
    assert check_placement(report.solution) == []
    assert report.solution.subgraphs is not None
    assert max(report.solution.subgraphs) < subgraphs
    places = [(on[0], index) for on, index in zip(report.solution.assignment, report.solution.subgraphs, strict=True)]
    assert best is not None
    assert report.bound is not None
    assert float(report.objective or 0) == pytest.approx(latency_of(graph, pool, places), abs=1e-9)
    assert float(report.bound) <= best + 1e-9 <= float(report.objective or 0) + 2e-9


@pytest.mark.parametrize("seed", seeds(12))
def test_more_never_hurts_and_names_do_not_matter(seed: int) -> None:
    pool = DevicePool(2, 1, 6)
    seed = reaching(seed, lambda each: least_latency(random_graph(each, most=6), pool, 1) is not None)
    graph = random_graph(seed, most=6)
    base = placed(graph, pool)
    assert base is not None
    for more in (replace(pool, accelerators=3), replace(pool, memory=7), DevicePool(2, 1)):
        report = placed(graph, more)
        assert report is not None
        assert float(report.objective or 0) <= float(base.objective or 0) + 1e-9
    twice = placed(graph, pool, subgraphs=2)
    assert twice is not None
    assert float(twice.objective or 0) <= float(base.objective or 0) + 1e-9
    order = Random(seed).sample(range(len(graph.operators)), len(graph.operators))
    other = placed(replace(graph, operators=tuple(graph.operators[i] for i in order)), pool)
    assert other is not None
    assert float(other.objective or 0) == pytest.approx(float(base.objective or 0))


@pytest.mark.parametrize("seed", seeds(30))
@pytest.mark.parametrize("subgraphs", [1, 2])
def test_links_of_a_mesh_are_searched_exactly_where_they_are_equal(seed: int, subgraphs: int) -> None:
    """Any communication, three devices of two kinds and a host, against every split timed by the evaluator."""
    graph, choose = random_forward_graph(seed, 4), Random(seed)
    link = Link(8.0, choose.choice((0.0, 0.25)))
    far = choose.choice((link, Link(2.0, 0.5)))
    communication = choose.choice(tuple(Communication))
    problem = PlacementProblem.on_mesh(graph, small_mesh(link, far), communication)
    problem = replace(problem, objective=LATENCY)
    report = solve_placement("latency-cp-sat", problem, LatencyConfig(subgraphs=subgraphs))
    best = min(
        Latency.of(placement).total
        for places in product(range(4), repeat=len(graph.operators))
        for indices in product(range(subgraphs), repeat=len(graph.operators))
        if not check_placement(
            placement := replace(problem.placement([(place,) for place in places]), subgraphs=indices)
        )
    )
    assert report.bound is not None
    assert float(report.bound) <= best + 1e-9 <= float(report.objective or 0) + 2e-9
    if link == far:
        assert report.status is Status.PROVED_OPTIMAL
        assert float(report.objective or 0) == pytest.approx(best)


def small_mesh(near: Link, far: Link) -> DeviceMesh:
    devices = (
        Device("g0", "gpu"),
        Device("g1", "gpu"),
        Device("g2", "tpu", node=1, memory_capacity=4),
        Device("c", CPU),
    )
    return DeviceMesh("small", devices, same_node_link=near, default_link=far)


def random_forward_graph(seed: int, count: int) -> OperatorGraph:
    choose = Random(seed)
    operators = tuple(
        Operator(
            f"o{i}",
            times=tuple(DeviceTime(kind, choose.choice((0.5, 1, 3))) for kind in ("gpu", "tpu", CPU)),
            size=float(choose.choice((0, 1, 3))),
            output_bytes=choose.choice((0, 2, 8)),
        )
        for i in range(count)
    )
    edges = tuple(Edge(f"o{i}", f"o{j}") for j in range(count) for i in range(j) if choose.random() < 0.5)
    return OperatorGraph("random", operators, edges)


@pytest.mark.parametrize("seed", seeds(30))
def test_what_may_go_to_few_devices_only_goes_there(seed: int) -> None:
    graph, pool, choose = random_graph(seed, most=5), DevicePool(2, 1, 6), Random(seed)
    names = ("acc0", "acc1", "cpu0")
    allowances = tuple(
        Allowance(each, tuple(choose.sample(names, choose.choice((1, 2)))))
        for each in choose.sample(list(graph.names), min(2, len(graph.operators)))
    )
    only = {each.operator: each.devices for each in allowances}
    keeps = [
        latency_of(graph, pool, split)
        for split in every_split(graph, pool, 1)
        if all(names[split[graph.operator_index(o)][0]] in on for o, on in only.items())
    ]
    best = min((each for each in keeps if each is not None), default=None)
    try:
        report = solve_placement("latency-cp-sat", replace(asked(graph, pool), allowances=allowances))
    except InputError as refused:
        assert best is None
        pytest.skip(f"an operator has no device that it may go to: {refused}")
    assert report.status is (Status.INFEASIBLE if best is None else Status.PROVED_OPTIMAL)
    assert best is None or float(report.objective or 0) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", seeds(100, 140))
def test_what_would_do_instead_does_and_less_does_not(seed: int) -> None:
    pool, subgraphs = DevicePool(2, 0, 2), 1 + seed % 2

    def lacks_memory(each: int) -> bool:
        """Return whether only memory is missing, so that every operator has a device that can run it."""
        graph = random_graph(each, most=5)
        whole = least_latency(graph, replace(pool, memory=None), subgraphs)
        return whole is not None and least_latency(graph, pool, subgraphs) is None

    graph = random_graph(reaching(seed, lacks_memory), most=5)
    report = placed(graph, pool, subgraphs=subgraphs)
    assert report is not None
    assert report.status is Status.INFEASIBLE
    assert report.reason
    assert report.least_memory is not None
    assert least_latency(graph, replace(pool, memory=report.least_memory), subgraphs) is not None
    assert least_latency(graph, replace(pool, memory=report.least_memory - 1), subgraphs) is None


def long_graph(count: int) -> OperatorGraph:
    """Return two chains that meet, too large for a proof in a second."""
    choose = Random(count)
    operators = tuple(
        Operator(f"o{i}", times=(DeviceTime("gpu", choose.random()), DeviceTime(CPU, 4.0)), size=1.0)
        for i in range(count)
    )
    edges = {(i, i + 2) for i in range(count - 2)} | {(i, i + choose.randint(1, 9)) for i in range(0, count - 9, 3)}
    costs = [choose.random() for _ in range(count)]
    return OperatorGraph("long", operators, tuple(Edge(f"o{i}", f"o{j}", cost=costs[i]) for i, j in sorted(edges)))


def test_a_search_that_is_cancelled_keeps_the_best_so_far() -> None:
    control = Control()
    timer = Timer(0.7, control.cancel)
    timer.start()
    pool = DevicePool(6, 1, 12)
    report = solve_placement("latency-cp-sat", asked(long_graph(80), pool), LatencyConfig(time_limit=40), control)
    assert report.wall_s < 1.7
    assert report.status is Status.CANCELLED
    assert report.solution is not None
    assert report.bound is not None
    assert report.objective is not None
    assert report.bound <= report.objective


def test_one_worker_and_a_seed_give_the_same_answer() -> None:
    config = LatencyConfig(time_limit=3, workers=1, seed=4, subgraphs=2)
    graph, pool = random_graph(3, most=7), DevicePool(2, 1, 6)
    first, second = (solve_placement("latency-cp-sat", asked(graph, pool), config) for _ in range(2))
    assert first.solution is not None
    assert second.solution is not None
    assert first.solution.assignment == second.solution.assignment
    assert first.solution.subgraphs == second.solution.subgraphs


@published
@pytest.mark.parametrize("name", GREEDY)
def test_the_greedy_and_the_evaluator_are_the_published_ones(name: str) -> None:
    file = read_graph_file(DATA / f"{name}.json")
    assert file.pool is not None
    report = placed(file.graph, file.pool, "latency-greedy")
    assert report is not None
    assert float(report.objective or 0) == pytest.approx(GREEDY[name], abs=1e-6)


@published
@pytest.mark.parametrize("name", BEST_KNOWN)
def test_the_sequential_program_reaches_the_best_known(name: str) -> None:
    file = read_graph_file(DATA / f"{name}.json")
    assert file.pool is not None
    report = placed(file.graph, file.pool, "latency-dp")
    assert report is not None
    assert float(report.objective or 0) <= BEST_KNOWN[name]


@published
def test_the_latency_of_bert_24_is_proved() -> None:
    file = read_graph_file(DATA / "LayerGraphs" / "bert24_inference.json")
    assert file.pool is not None
    report = placed(file.graph, file.pool)
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(100.2185, abs=1e-6)
