"""Placers on every kind of question, contiguous or not, one load or both passes, against brute force."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from helpers.graphs import least_load, objective_of, random_graph, random_pool
from helpers.seeds import reaching, seeds

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict
from tessel_core.errors import InputError
from tessel_core.model import (
    FORWARD_BACKWARD,
    THROUGHPUT,
    DevicePool,
    DeviceTime,
    Edge,
    Operator,
    OperatorGraph,
    Placement,
    PlacementLoads,
    PlacementReport,
    Status,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.options import options_of
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.bounds import cut_bound, highest_load, priced_work
from tessel_core.placement.cp_sat import CpSatConfig
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.moves import Moves, devices_for
from tessel_core.placement.pipeline import has_unplaceable, within_memory
from tessel_core.placement.split_model import Resolution, SplitModel
from tessel_core.rules import check_placement

DEMANDS = tuple(product((THROUGHPUT, FORWARD_BACKWARD), (True, False)))
EXACT = "cp-sat"
DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement"


def asked(seed: int, objective: str, contiguous: bool, most: int = 6) -> tuple[PlacementProblem, DevicePool]:
    """Draw a random question, with a random split."""
    graph, pool = random_graph(seed, most), random_pool(seed)
    choose, count = Random(seed), pool.accelerators + pool.cpus
    device_of = {group: choose.randrange(count) for group in graph.colocated}
    by_hand = [(0,)] * len(graph.operators)
    for group, device in device_of.items():
        for operator in group:
            by_hand[operator] = (device,)
    problem = PlacementProblem.on_pool(graph, pool)
    return replace(problem, objective=objective, contiguous=contiguous, by_hand=tuple(by_hand)), pool


SERVED = [(name, *demand) for name in PLACERS for demand in DEMANDS if not PLACERS[name].why_not(asked(0, *demand)[0])]
OF_THROUGHPUT = [
    (name, contiguous) for name, objective, contiguous in SERVED if objective == THROUGHPUT and name != "expert"
]


@cache
def best_of(seed: int, objective: str, contiguous: bool) -> float | None:
    problem, pool = asked(seed, objective, contiguous)
    return least_load(problem.graph, pool, contiguous=contiguous, passes=objective == FORWARD_BACKWARD)


def placed(placer: str, problem: PlacementProblem, **options: Any) -> PlacementReport | None:
    """Return the placement, with little time, few restarts and one worker. None if an operator runs on no device."""
    kind = PLACERS[placer].config
    known = {"time_limit": 10.0, "workers": 1, "restarts": 3, **options}
    try:
        return solve_placement(placer, problem, kind(**{k: v for k, v in known.items() if k in options_of(kind)}))
    except InputError:
        return None


def placeable(seed: int, objective: str, contiguous: bool) -> int:
    """Draw the seed of a question that has an answer."""
    return reaching(seed, lambda each: best_of(each, objective, contiguous) is not None)


def unplaceable(seed: int, objective: str, contiguous: bool) -> int:
    """Draw the seed of a question that has none."""
    return reaching(seed, lambda each: best_of(each, objective, contiguous) is None)


@pytest.mark.parametrize(("placer", "objective", "contiguous"), SERVED)
@pytest.mark.parametrize("seed", seeds(15))
def test_where_nothing_fits_every_placer_says_why(seed: int, objective: str, contiguous: bool, placer: str) -> None:
    report = placed(placer, asked(unplaceable(seed, objective, contiguous), objective, contiguous)[0])
    assert report is None or (report.solution is None and report.reason)
    assert placer != EXACT or report is None or report.status is Status.INFEASIBLE


@pytest.mark.parametrize(("objective", "contiguous"), DEMANDS)
@pytest.mark.parametrize("seed", seeds(60))
def test_cp_sat_finds_and_proves_what_trying_all_finds(seed: int, objective: str, contiguous: bool) -> None:
    seed = placeable(seed, objective, contiguous)
    problem, _ = asked(seed, objective, contiguous)
    best, report = best_of(seed, objective, contiguous), placed(EXACT, problem)
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    assert report.objective == report.bound
    assert float(report.objective or 0) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize(
    ("seed", "most", "objective", "contiguous"),
    [
        (142, 8, THROUGHPUT, False),
        (263, 9, THROUGHPUT, True),
        (814, 8, THROUGHPUT, True),
        (286, 8, FORWARD_BACKWARD, True),
        (417, 7, FORWARD_BACKWARD, False),
        (722, 8, FORWARD_BACKWARD, False),
    ],
)
def test_what_presolve_of_large_numbers_loses_is_found(seed: int, most: int, objective: str, contiguous: bool) -> None:
    """With presolve and fine units, CP-SAT 9.15 proves a worse optimum of these, or that there is none."""
    problem, pool = asked(seed, objective, contiguous, most)
    report = placed(EXACT, problem, seed=seed + 1)
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    best = least_load(problem.graph, pool, contiguous=contiguous, passes=objective == FORWARD_BACKWARD)
    assert float(report.objective or 0) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize(("objective", "contiguous"), DEMANDS)
def test_coarse_units_bound_every_split(seed: int, objective: str, contiguous: bool) -> None:
    """Times and bytes are rounded down, so a bound of the coarse model holds for every split."""
    seed = placeable(seed, objective, contiguous)
    problem, _ = asked(seed, objective, contiguous)
    best = best_of(seed, objective, contiguous)
    pipeline = within_memory(pipeline_of(problem))
    assert best is not None
    assert not has_unplaceable(pipeline)
    upper = highest_load(pipeline)
    model = SplitModel(
        pipeline.parts(objective),
        contiguous=contiguous,
        ordered=True,
        resolution=Resolution.COARSE,
        upper=upper,
        control=Control(),
    )
    verdict, _, bound, _ = model.solve(Effort(10.0, 1, seed, repeatable=True))
    assert verdict is Verdict.PROVED
    terms = len(problem.graph.operators) + len(pipeline.nets)
    assert bound <= best + 1e-9
    if problem.devices[0].memory_capacity is None:
        assert best <= bound + 2 * terms * upper / Resolution.COARSE.units(pipeline.parts(objective), upper)


def test_a_placer_that_does_not_serve_a_demand_says_so() -> None:
    refused = [(name, demand) for name in PLACERS for demand in DEMANDS if (name, *demand) not in SERVED]
    assert {name for name, _ in refused} > {"dp", "local-search"}
    for name, demand in refused:
        with pytest.raises(InputError, match=rf"^placer {name}: "):
            solve_placement(name, asked(0, *demand)[0])


@pytest.mark.parametrize(("placer", "objective", "contiguous"), SERVED)
@pytest.mark.parametrize("seed", seeds(15))
def test_every_placer_claims_what_it_does(seed: int, objective: str, contiguous: bool, placer: str) -> None:

    def finds(each: int) -> bool:
        report = placed(placer, asked(each, objective, contiguous)[0])
        assert report is None or report.solution is not None or report.reason
        return report is not None and report.solution is not None

    seed = reaching(seed, finds)
    problem, pool = asked(seed, objective, contiguous)
    best, report = best_of(seed, objective, contiguous), placed(placer, problem)
    assert report is not None
    assert report.solution is not None
    assert check_placement(report.solution, without=problem.waived_rules) == []
    assert best is not None
    assert report.objective is not None
    assert report.bound is not None
    on = tuple(device for (device,) in report.solution.assignment)
    measured = objective_of(problem.graph, pool, on, passes=objective == FORWARD_BACKWARD)
    assert float(report.objective) == pytest.approx(measured)
    assert float(report.bound) <= best + 1e-9 <= float(report.objective) + 2e-9
    if report.status is Status.PROVED_OPTIMAL:
        assert float(report.objective) == pytest.approx(best)


@pytest.mark.parametrize("seed", seeds(500))
def test_dynamic_program_and_cp_sat_agree_on_chains_of_ideals(seed: int) -> None:

    def problem_of(each: int) -> PlacementProblem:
        return PlacementProblem.on_pool(random_graph(each + 1000, 12), random_pool(each))

    problem = problem_of(reaching(seed, lambda each: placed("dp", problem_of(each)) is not None))
    one, other = placed("dp", problem), placed(EXACT, problem)
    assert one is not None
    assert other is not None
    assert one.status is other.status
    assert float(one.objective or 0) == pytest.approx(float(other.objective or 0), rel=1e-8)


def test_convex_sets_that_run_in_a_circle_are_no_chain() -> None:
    """a1 -> b1 and b2 -> a2: {a1, a2} and {b1, b2} are convex, but each would wait for the other."""
    time = (DeviceTime("accelerator", 1.0),)
    graph = OperatorGraph(
        "circle",
        tuple(Operator(name, times=time, colour="a" if name[0] == "a" else None) for name in ("a1", "a2", "b1", "b2")),
        (Edge("a1", "b1", cost=0.0), Edge("b2", "a2", cost=0.0)),
    )
    problem = PlacementProblem.on_pool(graph, DevicePool(2))
    assert solve_placement("cp-sat", problem).objective == solve_placement("dp", problem).objective == 3
    assert solve_placement("cp-sat", replace(problem, contiguous=False)).objective == 2


@pytest.mark.parametrize(("placer", "contiguous"), OF_THROUGHPUT)
def test_one_seed_gives_one_answer(placer: str, contiguous: bool) -> None:
    problem = replace(PlacementProblem.on_pool(random_graph(7, 14), DevicePool(3, 1, 9)), contiguous=contiguous)
    one, other = (placed(placer, problem, seed=5) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.solution == other.solution
    assert (one.status, one.objective, one.bound) == (other.status, other.objective, other.bound)


def wide(count: int) -> OperatorGraph:
    """Return layers of parallel operators, which have many ideals and no easy proof."""
    choose = Random(3)
    operators = [Operator(f"o{i}", times=(DeviceTime("gpu", choose.uniform(1, 2)),)) for i in range(count)]
    edges = [
        Edge(f"o{i}", f"o{j}", cost=0.01 * (i % 7 + 1))
        for j in range(20, count)
        for i in choose.sample(range(j // 20 * 20 - 20, j // 20 * 20), 2)
    ]
    return OperatorGraph("wide", tuple(operators), tuple(edges))


@pytest.mark.parametrize(
    ("placer", "contiguous"), [each for each in OF_THROUGHPUT if each[0] in ("dp", "cp-sat", "local-search")]
)
def test_a_cancel_answers_within_a_second_and_keeps_the_best(placer: str, contiguous: bool) -> None:
    problem = replace(PlacementProblem.on_pool(wide(300), DevicePool(6)), contiguous=contiguous)
    control = Control()
    cancelled = list[float]()

    def cancel() -> None:
        cancelled.append(time.monotonic())
        control.cancel()

    timer = threading.Timer(0.6, cancel)
    timer.start()
    report = solve_placement(placer, problem, control=control)
    timer.cancel()
    assert report.solution is not None
    if cancelled:
        assert time.monotonic() - cancelled[0] < 1.0
        assert report.status in (Status.CANCELLED, Status.FEASIBLE)


@pytest.mark.parametrize("seed", seeds(100))
def test_moves_keep_loads_and_memory(seed: int) -> None:

    def problem_of(each: int) -> PlacementProblem:
        return replace(PlacementProblem.on_pool(random_graph(each, 12), DevicePool(3, 1)), contiguous=False)

    problem = problem_of(reaching(seed, lambda each: placed("local-search", problem_of(each)) is not None))
    pipeline, choose = pipeline_of(problem), Random(seed)
    moves = Moves(pipeline.parts(FORWARD_BACKWARD), [choose.choice(on) for on in devices_for(pipeline)])
    for _ in range(30):
        group = choose.randrange(len(moves.on))
        others = [device for device in moves.allowed[group] if device != moves.on[group]]
        if others:
            moves.shift(group, choose.choice(others))
    loads = PlacementLoads.of(pipeline.placement(problem, moves.on))
    assert moves.load[0] == pytest.approx(list(loads.forward.load))
    assert moves.load[1] == pytest.approx(list(loads.backward.load))
    assert moves.memory == pytest.approx(list(loads.memory))


@pytest.mark.parametrize("seed", seeds(100))
def test_cuts_bound_every_split(seed: int) -> None:
    seed = placeable(seed, THROUGHPUT, contiguous=False)
    problem, _ = asked(seed, THROUGHPUT, contiguous=False)
    best = best_of(seed, THROUGHPUT, contiguous=False)
    pipeline = pipeline_of(problem)
    averaged = priced_work(pipeline).bound
    bound = cut_bound(pipeline, averaged, Control())
    assert averaged <= bound
    assert best is not None
    assert bound <= best + 1e-9


def test_a_tensor_that_no_split_can_keep_whole_bounds_by_its_cut() -> None:
    """b alone takes 1 s but moves 3 s of tensors to each side. With a and c it takes 5 s without transfers."""
    times = {"a": 2.0, "b": 1.0, "c": 2.0}
    graph = OperatorGraph(
        "line",
        tuple(Operator(name, times=(DeviceTime("accelerator", time),)) for name, time in times.items()),
        (Edge("a", "b", cost=3.0), Edge("b", "c", cost=3.0)),
    )
    problem = replace(PlacementProblem.on_pool(graph, DevicePool(3)), contiguous=False)
    assert cut_bound(pipeline_of(problem), 0.0, Control()) == pytest.approx(5.0)


def test_passes_are_counted_apart() -> None:
    """The devices of a and b take 3 and 1 forward, 1 and 3 backward: 4 each, but 3 + 3 for both passes. a sends 0.5."""

    def operator(name: str, time: float, *, backward: bool = False) -> Operator:
        mate = name.lower() if backward else None
        return Operator(name, times=(DeviceTime("gpu", time),), backward=backward, forward_of=mate)

    graph = OperatorGraph(
        "two",
        (operator("a", 3.0), operator("b", 1.0), operator("B", 3.0, backward=True), operator("A", 1.0, backward=True)),
        (Edge("a", "b", cost=0.5), Edge("b", "B", cost=9.0), Edge("B", "A", cost=0.25)),
    )
    placement = Placement(graph, DevicePool(2).devices(graph), ((0,), (1,), (1,), (0,)))
    loads = PlacementLoads.of(placement)
    assert (loads.forward.load, loads.backward.load) == ((3.5, 1.5), (1.25, 3.25))
    assert (loads.load, loads.largest, loads.largest_passes) == ((4.75, 4.75), 4.75, 6.75)
    problem = replace(PlacementProblem.on_pool(graph, DevicePool(2)), objective=FORWARD_BACKWARD)
    report = solve_placement("cp-sat", problem, CpSatConfig(time_limit=5.0))
    assert (report.status, float(report.objective or 0)) == (Status.PROVED_OPTIMAL, 6.75)


@pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")
@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("OperatorGraphs/bert_l-3_inference", 21.908376),
        pytest.param("OperatorGraphs/bert_l-3_training", 54.207399, marks=pytest.mark.more),
        pytest.param("OperatorGraphs/bert_l-12_inference", 130.038095, marks=pytest.mark.more),
        pytest.param("LayerGraphs/bert24_training", 39.789539, marks=pytest.mark.more),
    ],
)
def test_published_optima_of_any_sets(name: str, optimum: float) -> None:
    file = read_graph_file(DATA / "throughput" / f"{name}.json")
    assert file.pool is not None
    problem = replace(PlacementProblem.on_pool(file.graph, file.pool), contiguous=False)
    report = solve_placement("cp-sat", problem, CpSatConfig(time_limit=120.0))  # ten seconds, or more on a busy machine
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(optimum, abs=1e-6)
