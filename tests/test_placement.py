"""Placements: the dynamic program against brute force, published optima, and laws."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
from helpers.graphs import is_chain, least_load, loads_of, random_graph, random_pool
from helpers.seeds import reaching, seeds

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats.files import read_any
from tessel_core.formats.graph_file import split_placement
from tessel_core.model import (
    CPU,
    Allowance,
    Communication,
    Device,
    DeviceMesh,
    DevicePool,
    DeviceTime,
    Edge,
    Link,
    Operator,
    OperatorGraph,
    Placement,
    PlacementLoads,
    PlacementReport,
    Status,
    Transfers,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.chain import best_chain
from tessel_core.placement.dp import DpConfig
from tessel_core.placement.groups import coarse_pipeline
from tessel_core.rules import check_placement

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement"
OPTIMA = {
    "LayerGraphs/bert24_inference": 17.789906,
    "LayerGraphs/bert24_training": 41.745813,
    "LayerGraphs/resnet50_inference": 33.774666,
    "LayerGraphs/resnet50_training": 78.631813,
    "LayerGraphs/gnmt_inference": 32.910658,
    "LayerGraphs/inceptionv3_inference": 51.551864,
    "OperatorGraphs/bert_l-3_inference": 27.918568,
    "OperatorGraphs/bert_l-3_training": 65.303149,
    "OperatorGraphs/bert_l-6_inference": 29.579506,
    "OperatorGraphs/resnet50_inference": 124.348850,
    "OperatorGraphs/bert_l-12_inference": 147.477984,
}
EXPERTS = {
    "bert24_inference": 20.084,
    "bert24_training": 49.405,
    "resnet50_inference": 43.918,
    "gnmt_inference": 46.209,
    "inceptionv3_inference": 102.482,
}
BLOCKING = Communication.BLOCKING
SERVING = [
    name
    for name, each in PLACERS.items()
    if not each.why_not(PlacementProblem.on_pool(random_graph(0), DevicePool(2, 1))) and name != "expert"
]
published = pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")


def placed(graph: OperatorGraph, pool: DevicePool, placer: str = "dp") -> PlacementReport | None:
    """Return the placement, or None if an operator runs on no device."""
    try:
        return solve_placement(placer, PlacementProblem.on_pool(graph, pool))
    except InputError:
        return None


def placeable(seed: int) -> tuple[OperatorGraph, DevicePool]:
    """Return a random graph, and devices on which it can be placed."""
    seed = reaching(seed, lambda each: least_load(random_graph(each), random_pool(each)) is not None)
    return random_graph(seed), random_pool(seed)


@pytest.mark.parametrize("placer", SERVING)
@pytest.mark.parametrize("seed", seeds(60))
def test_where_nothing_fits_every_placer_says_so(placer: str, seed: int) -> None:
    seed = reaching(seed, lambda each: least_load(random_graph(each), random_pool(each)) is None)
    report = placed(random_graph(seed), random_pool(seed), placer)
    assert report is None or report.status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", seeds(400))
def test_nothing_is_better_than_the_dynamic_program(seed: int) -> None:
    graph, pool = placeable(seed)
    best, report = least_load(graph, pool), placed(graph, pool)
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    assert report.objective is not None
    assert report.objective == report.bound
    assert float(report.objective) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", seeds(400, 440))
def test_what_would_do_instead_does_and_less_does_not(seed: int) -> None:
    pool = DevicePool(2, 0, 1)
    unlimited = replace(pool, memory=None)

    def lacks_memory(each: int) -> bool:
        """Return whether only memory is missing, so that every operator has a device that can run it."""
        graph = random_graph(each)
        return least_load(graph, pool) is None and least_load(graph, unlimited) is not None

    graph = random_graph(reaching(seed, lacks_memory))
    report = placed(graph, pool)
    assert report is not None
    assert report.status is Status.INFEASIBLE
    if report.least_memory is not None:
        assert least_load(graph, replace(pool, memory=report.least_memory)) is not None
        assert least_load(graph, replace(pool, memory=report.least_memory - 1)) is None
    if report.least_accelerators == 3:
        assert least_load(graph, replace(pool, accelerators=3)) is not None


@pytest.mark.parametrize("placer", SERVING)
@pytest.mark.parametrize("seed", seeds(60))
def test_every_placer_claims_what_it_does(placer: str, seed: int) -> None:

    def finds(each: int) -> bool:
        report = placed(random_graph(each), random_pool(each), placer)
        assert report is None or report.solution is not None or report.reason
        return report is not None and report.solution is not None

    seed = reaching(seed, finds)
    graph, pool = random_graph(seed), random_pool(seed)
    report, best = placed(graph, pool, placer), least_load(graph, pool)
    assert report is not None
    assert report.solution is not None
    assert check_placement(report.solution) == []
    assert best is not None
    on = tuple(device for (device,) in report.solution.assignment)
    assert report.objective is not None
    assert report.bound is not None
    assert float(report.objective) == pytest.approx(max(loads_of(graph, pool, on)))
    assert report.bound <= report.objective
    assert float(report.bound) <= best + 1e-9 <= float(report.objective) + 2e-9
    if report.status is Status.PROVED_OPTIMAL:
        assert float(report.objective) == pytest.approx(best)


@pytest.mark.parametrize("seed", seeds(40))
def test_more_never_hurts_and_names_do_not_matter(seed: int) -> None:
    pool = DevicePool(2, 1, 6)

    def fits(each: int) -> bool:
        report = placed(random_graph(each, most=14), pool)
        return report is not None and report.solution is not None

    graph = random_graph(reaching(seed, fits), most=14)
    base = placed(graph, pool)
    assert base is not None
    assert base.objective is not None
    for more in (replace(pool, accelerators=3), replace(pool, cpus=2), replace(pool, memory=7), DevicePool(2, 1)):
        report = placed(graph, more)
        assert report is not None
        assert report.objective is not None
        assert float(report.objective) <= float(base.objective) + 1e-9
    order = Random(seed).sample(range(len(graph.operators)), len(graph.operators))
    other = placed(replace(graph, operators=tuple(graph.operators[i] for i in order)), pool)
    assert other is not None
    assert other.objective is not None
    assert float(other.objective) == pytest.approx(float(base.objective))


@pytest.mark.parametrize("pinned", ["acc0", "acc1"])
def test_a_device_that_differs_by_what_is_pinned_to_it_is_worth_no_less(pinned: str) -> None:
    """Operators of ten and eight ms with a transfer of 0.2. The other devices stay in use."""
    operators = [Operator(f"o{i}", times=(DeviceTime("accelerator", time),)) for i, time in enumerate((10, 8))]
    graph = OperatorGraph("pair", tuple(operators), (Edge("o0", "o1", cost=0.2),), "ms")
    problem = PlacementProblem.on_pool(graph, DevicePool(2, 0), [Allowance("o0", (pinned,))])
    report = solve_placement("dp", problem)
    assert (report.status, float(report.objective or 0)) == (Status.PROVED_OPTIMAL, pytest.approx(10.2))


@pytest.mark.parametrize("seed", seeds(240))
def test_what_may_go_to_few_devices_only_goes_there(seed: int) -> None:
    """An operator pinned to one device, or excluded from one. Nothing that keeps the pins is better."""
    seed = reaching(seed, lambda each: least_pinned(pinned_problem(each)) is not None)
    report = solve_placement("dp", pinned_problem(seed))
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(least_pinned(pinned_problem(seed)), abs=1e-9)


@pytest.mark.parametrize("seed", seeds(60))
def test_where_pins_leave_no_placement_the_placer_says_so(seed: int) -> None:
    seed = reaching(seed, lambda each: least_pinned(pinned_problem(each)) is None)
    with suppress(InputError):  # an operator fits on no device
        assert solve_placement("dp", pinned_problem(seed)).status is Status.INFEASIBLE


def least_pinned(problem: PlacementProblem) -> float | None:
    pool = DevicePool(len(problem.accelerators), len(problem.devices) - len(problem.accelerators))
    pool = replace(pool, memory=problem.devices[0].memory_capacity)
    return least_load(problem.graph, pool, {each.operator: each.devices for each in problem.allowances})


def pinned_problem(seed: int) -> PlacementProblem:
    """Return a problem in which two operators of a random graph may only use one or two of the devices."""
    pools = DevicePool(2, 1), DevicePool(2, 0), DevicePool(3, 0), DevicePool(3, 0, 4)
    graph, pool = random_graph(seed), pools[seed % 4]
    choose, names = Random(seed), [device.name for device in PlacementProblem.on_pool(graph, pool).devices]
    operators = choose.sample(list(graph.names), min(2, len(graph.operators)))
    pins = [Allowance(each, tuple(choose.sample(names, choose.choice((1, 2))))) for each in operators]
    return PlacementProblem.on_pool(graph, pool, pins)


def _mesh(links: tuple[Link, Link]) -> DeviceMesh:
    devices = tuple(Device(f"gpu{i}", "gpu", node=i // 2) for i in range(4))
    return DeviceMesh("two-nodes", devices, same_node_link=links[0], default_link=links[1])


def _chain(times: Sequence[float]) -> OperatorGraph:
    operators = [Operator(f"o{i}", times=(DeviceTime("gpu", time),), output_bytes=8) for i, time in enumerate(times)]
    return OperatorGraph("chain", tuple(operators), tuple(Edge(f"o{i}", f"o{i + 1}") for i in range(len(times) - 1)))


def test_loads_on_a_mesh_by_hand() -> None:
    """8 bytes take 1 + 8/8 s inside a node and 3 + 8/2 s between nodes. A sender pays once, for its slowest link."""
    mesh = _mesh((Link(8.0, 1.0), Link(2.0, 3.0)))
    graph = OperatorGraph(
        "fan",
        tuple(Operator(name, times=(DeviceTime("gpu", 1.0),), output_bytes=8) for name in "abc"),
        (Edge("a", "b"), Edge("a", "c")),
    )
    on = ((0,), (1,), (2,))
    blocking = Placement(graph, mesh.placement_devices, on, Transfers(mesh))
    assert PlacementLoads.of(blocking).communication == (7.0, 2.0, 7.0, 0.0)
    overlapped = Placement(graph, mesh.placement_devices, on, Transfers(mesh, Communication.OVERLAPPED))
    assert PlacementLoads.of(overlapped).communication == (0.0, 0.0, 0.0, 0.0)


def test_equal_links_are_proved_and_unequal_ones_bounded() -> None:
    graph = _chain([1.0, 2.0, 3.0, 1.0, 2.0])
    equal = solve_placement("dp", PlacementProblem.on_mesh(graph, _mesh((Link(8.0), Link(8.0))), BLOCKING))
    assert equal.status is Status.PROVED_OPTIMAL
    unequal = PlacementProblem.on_mesh(graph, _mesh((Link(80.0), Link(8.0))), BLOCKING)
    report = solve_placement("dp", unequal)
    every = [
        PlacementLoads.of(unequal.placement(tuple((device,) for device in on))).largest
        for on in product(range(4), repeat=5)
        if is_chain(graph, on)
    ]
    assert report.bound is not None
    assert report.objective is not None
    assert float(report.bound) <= min(every) <= float(report.objective)
    assert report.status is (Status.PROVED_OPTIMAL if report.bound == report.objective else Status.FEASIBLE)


def test_a_mesh_needs_the_sizes_of_outputs() -> None:
    bare = OperatorGraph("pair", tuple(Operator(n, times=(DeviceTime("gpu", 1.0),)) for n in "ab"), (Edge("a", "b"),))
    with pytest.raises(InputError, match=r"^edge a -> b: has no bytes"):
        solve_placement("dp", PlacementProblem.on_mesh(bare, _mesh((Link(8.0), Link(8.0))), BLOCKING))


def test_loads_by_hand() -> None:
    """a feeds b and c on two other devices. a's device pays once, each receiver once, the host never."""
    both = (DeviceTime("accelerator", 1.0), DeviceTime(CPU, 10.0))
    graph = OperatorGraph(
        "fan",
        tuple(Operator(name, times=both, size=4.0) for name in "abcd"),
        tuple(Edge("a", name, cost=0.25) for name in "bcd"),
    )
    placement = Placement(graph, DevicePool(3, 1).devices(graph), ((0,), (1,), (1,), (3,)))
    loads = PlacementLoads.of(placement)
    assert loads.work == (1.0, 2.0, 0.0, 10.0)
    assert loads.communication == (0.25, 0.25, 0.0, 0.0)
    assert loads.memory == (4.0, 8.0, 0.0, 4.0)
    assert loads.largest == 10.0


def test_a_search_that_is_cancelled_says_so() -> None:
    control = Control()
    control.cancel()
    report = solve_placement("dp", PlacementProblem.on_pool(random_graph(3), DevicePool(2, 1)), DpConfig(), control)
    assert report.status is Status.CANCELLED
    assert report.solution is None


def test_beyond_the_most_ideals_cp_sat_takes_over() -> None:
    """Forty independent operators have 2^40 ideals."""
    graph = OperatorGraph("wide", tuple(Operator(f"o{i}", times=(DeviceTime("gpu", 1.0 + i / 7),)) for i in range(40)))
    report = solve_placement("dp", PlacementProblem.on_pool(graph, DevicePool(3)), DpConfig(1.0, most_ideals=1000))
    assert report.status is Status.FEASIBLE
    assert report.bound is not None
    assert report.objective is not None
    even = sum(1 + i / 7 for i in range(40)) / 3
    assert float(report.bound) == pytest.approx(even)
    assert float(report.objective) <= even + 1 / 7
    assert "1,000 possible cuts" in report.reason


@pytest.mark.parametrize("seed", seeds(100))
def test_contracting_groups_without_cost_bounds_from_both_sides(seed: int) -> None:
    graph, pool = placeable(seed)
    best = least_load(graph, pool)
    problem = PlacementProblem.on_pool(graph, pool)
    light, heavy = (best_chain(coarse_pipeline(problem, keep_memory=hold), 1000, Control()) for hold in (False, True))
    assert best is not None
    assert light.split is not None
    assert light.split.load <= best + 1e-9
    assert heavy.split is None or heavy.split.load >= best - 1e-9


def test_weights_beside_their_operators_do_not_multiply_ideals() -> None:
    """Six operators in a chain, each with three weights, have more than 7 * 8^6 ideals in all."""
    line = [Operator(f"o{i}", times=(DeviceTime("gpu", 1.0),)) for i in range(6)]
    weights = [Operator(f"w{i}", times=(DeviceTime("gpu", 0.0),), size=1.0) for i in range(18)]
    edges = [Edge(f"o{i}", f"o{i + 1}", cost=0.25) for i in range(5)]
    edges += [Edge(f"w{i}", f"o{i // 3}", cost=0.5) for i in range(18)]
    graph = OperatorGraph("weights", (*line, *weights), tuple(edges))
    report = solve_placement("dp", PlacementProblem.on_pool(graph, DevicePool(3, 0, 6)), DpConfig(most_ideals=1000))
    assert (report.status, report.objective) == (Status.PROVED_OPTIMAL, 2.5)


@published
@pytest.mark.parametrize("name", OPTIMA)
def test_published_optima(name: str) -> None:
    file = read_graph_file(DATA / "throughput" / f"{name}.json")
    assert file.pool is not None
    report = solve_placement("dp", PlacementProblem.on_pool(file.graph, file.pool))
    assert report.status is Status.PROVED_OPTIMAL
    assert report.objective is not None
    assert float(report.objective) == pytest.approx(OPTIMA[name], abs=1e-6)


@published
@pytest.mark.parametrize("name", EXPERTS)
def test_published_loads_of_human_experts(name: str) -> None:
    file = read_graph_file(DATA / "throughput" / "LayerGraphs" / f"{name}.json")
    split = read_any(DATA / "human-experts" / f"{name}_expert.json")
    assert file.pool is not None
    placement = split_placement(split, file.graph, file.pool)  # type: ignore[arg-type]
    assert PlacementLoads.of(placement).largest == pytest.approx(EXPERTS[name], abs=1e-3)
