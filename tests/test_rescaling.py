"""Times of any magnitude and mixture: proofs agree with brute force, and no search runs for ever."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest
from helpers.graphs import least_load
from helpers.latency import least_latency
from helpers.replicas import Costs, least_replicated_load
from helpers.seeds import examples, one_in

from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.model import CPU, LATENCY, DevicePool, DeviceTime, Edge, Operator, OperatorGraph, Status
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.problem import placement_problem

VALUES = {
    "none": (0.0,),
    "least": (5e-324, 1e-323, 4e-323),
    "denormal": (1e-310, 3e-310, 7e-320),
    "tiny": (1e-300, 3e-300),
    "wide": (1e-300, 3e-300, 1e3),
    "widest": (5e-324, 2e-323, 1e-10, 9e15),
    "unlike": (1e-20, 3e-20, 1.0, 7.0, 1e12),
}
POOLS = (DevicePool(2, 0), DevicePool(2, 1), DevicePool(3, 0))
PROVERS = ("dp", "cp-sat", "latency-cp-sat")


def random_times(values: tuple[float, ...], seed: int, count: int) -> OperatorGraph:
    choose = Random(seed)
    kinds = ("accelerator", CPU)
    operators = tuple(
        Operator(f"o{i}", times=tuple(DeviceTime(kind, choose.choice(values)) for kind in kinds)) for i in range(count)
    )
    costs = [choose.choice((*values, 0.0)) for _ in operators]
    pairs = [(i, j) for j in range(count) for i in range(j) if choose.random() < 0.4]
    return OperatorGraph("times", operators, tuple(Edge(f"o{i}", f"o{j}", cost=costs[i]) for i, j in pairs), "ms")


ONE_DEVICE_PER_STAGE = [
    name for name, each in PLACERS.items() if not each.judges and not each.several_stages and False in each.replicates
]


@pytest.mark.parametrize("placer", ONE_DEVICE_PER_STAGE)
@pytest.mark.parametrize("magnitude", one_in(2, VALUES))
def test_times_of_any_magnitude(placer: str, magnitude: str) -> None:
    kind = PLACERS[placer]
    contiguous, latency = True in kind.contiguous, LATENCY in kind.objectives
    for seed in range(examples(15)):
        graph, pool = random_times(VALUES[magnitude], seed, 5), POOLS[seed % 3]
        best = least_latency(graph, pool, 1) if latency else least_load(graph, pool, contiguous=contiguous)
        assert best is not None
        problem = replace(PlacementProblem.on_pool(graph, pool), contiguous=contiguous, objective=kind.objectives[0])
        begun = time.process_time()
        report = solve_placement(placer, problem)
        assert time.process_time() - begun < 5, "a search of moments does not go on until the time is up"
        if report.objective is None or report.bound is None:
            assert placer == "latency-dp", report.reason
            continue
        assert float(report.bound) <= best * (1 + 1e-8)
        assert best <= float(report.objective) * (1 + 1e-9)
        if placer in PROVERS:
            assert report.status is Status.PROVED_OPTIMAL
            assert float(report.objective) <= best * (1 + 1e-8)


@pytest.mark.parametrize("seed", one_in(3, range(3)))
@pytest.mark.parametrize("magnitude", one_in(3, VALUES))
def test_any_sets_of_times_of_any_magnitude(magnitude: str, seed: int) -> None:
    graph, pool = random_times(VALUES[magnitude], seed, 5), POOLS[seed % 3]
    problem = replace(PlacementProblem.on_pool(graph, pool), contiguous=False)
    report = solve_placement("cp-sat", problem)
    best = least_load(graph, pool, contiguous=False)
    assert report.status is Status.PROVED_OPTIMAL
    assert best is not None
    assert best <= float(report.objective or 0) * (1 + 1e-9)
    assert float(report.objective or 0) <= best * (1 + 1e-8)


@pytest.mark.parametrize("magnitude", [each for each in VALUES if min(VALUES[each]) == 0 or min(VALUES[each]) > 1e-307])
def test_replicas_of_times_of_any_magnitude(magnitude: str) -> None:
    """Without gradients, and with times whose halves and thirds are floats too."""
    for seed in range(examples(15)):
        graph, pool = random_times(VALUES[magnitude], seed, 4), POOLS[seed % 3]

        def move(operator: Operator, one: int, other: int, parts: int, graph: OperatorGraph = graph) -> float:
            return next(edge.cost or 0.0 for edge in graph.edges if edge.source == operator.name) / parts

        best = least_replicated_load(graph, pool.devices(graph), Costs(move, lambda devices, amount: 0.0))
        report = solve_placement("dp", placement_problem(graph, pool, replicas=ReplicaOptions()))
        assert best is not None
        assert report.status is Status.PROVED_OPTIMAL
        assert best * (1 - 1e-8) <= float(report.objective or 0) <= best * (1 + 1e-8)
