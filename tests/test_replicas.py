"""Replicated stages: the dynamic program against every placement there is, and laws."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.graphs import random_graph
from helpers.replicas import Costs, least_replicated_load
from helpers.seeds import seeds

from tessel_core.costs.collectives import ALL_REDUCE, collective, measured_fraction, wires_of
from tessel_core.costs.reductions import ReplicaOptions
from tessel_core.errors import InputError
from tessel_core.model import (
    Communication,
    Device,
    DeviceMesh,
    DevicePool,
    DeviceTime,
    Edge,
    Link,
    Operator,
    OperatorGraph,
    PlacementReport,
    Status,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.rules import check_placement

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement" / "throughput"
published = pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")
FREE = ReplicaOptions(bandwidth=1e9)


def solved(problem: PlacementProblem, placer: str = "dp") -> PlacementReport | None:
    """None where an operator has no time on any device."""
    try:
        return solve_placement(placer, problem)
    except InputError:
        return None


def held_apart(graph: OperatorGraph, seed: int) -> OperatorGraph:
    """The graph with weights and activations instead of one size; every other one as it is."""
    choose = random.Random(seed)
    if seed % 2:
        return graph
    return replace(graph, operators=tuple(_held_apart(each, choose) for each in graph.operators))


def _held_apart(operator: Operator, choose: random.Random) -> Operator:
    weights, activations = choose.choice((0, 0, 1, 3)), choose.choice((0, 1, 2, 4))
    return replace(operator, size=None, weight_bytes=weights, activation_bytes=activations)


def is_best(report: PlacementReport | None, best: float | None) -> None:
    """Proved, and what trying every placement found."""
    if best is None:
        assert report is None or report.status is Status.INFEASIBLE
        return
    assert report is not None
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert report.solution is not None
    assert check_placement(report.solution) == []


@pytest.mark.parametrize("seed", seeds(200))
def test_nothing_is_better_on_equal_accelerators(seed: int) -> None:
    choose = random.Random(seed)
    graph = held_apart(random_graph(seed, most=5), seed)
    accelerators, cpus = choose.choice(((2, 0), (3, 0), (3, 0), (2, 1)))
    pool = DevicePool(accelerators, cpus, choose.choice((None, 3, 5, 8)))
    every, per_ms = choose.choice((1, 1, 4)), choose.choice((0.5, 2, 8, 1000))
    options = ReplicaOptions(every, per_ms * 1e-6)

    def reduce(devices: tuple[int, ...], amount: float) -> float:
        return 2 * (len(devices) - 1) / len(devices) * amount / per_ms / every

    def move(operator: Operator, one: int, other: int, parts: int) -> float:
        return next(edge.cost or 0.0 for edge in graph.edges if edge.source == operator.name) / parts

    best = least_replicated_load(graph, pool.devices(graph), Costs(move, reduce))
    is_best(solved(placement_problem(graph, pool, replicas=options)), best)


def small_mesh(seed: int, *, equal: bool) -> DeviceMesh:
    """Three devices; of one node and kind, or of two."""
    choose = random.Random(seed)
    near, far = Link(choose.choice((1.0, 4.0)), choose.choice((0.0, 0.125))), Link(0.5, 0.25)
    kinds = ("gpu", "gpu", "gpu") if equal or choose.random() < 0.5 else ("gpu", "gpu", "other")
    nodes = (0, 0, 0) if equal else choose.choice(((0, 0, 1), (0, 1, 1), (0, 1, 2)))
    devices = [
        Device(f"d{i}", kind, node, choose.choice((None, 12)) if equal else 12)
        for i, (kind, node) in enumerate(zip(kinds, nodes, strict=True))
    ]
    capacity = devices[0].memory_capacity
    devices = [replace(each, memory_capacity=capacity) for each in devices]
    return DeviceMesh("small", tuple(devices), same_node_link=near, default_link=far)


def small_network(seed: int) -> OperatorGraph:
    """Up to four layers with their backward, in seconds and bytes, with times on two kinds of devices."""
    choose = random.Random(seed)
    count, operators, edges = choose.choice((2, 3, 3)), list[Operator](), list[Edge]()

    def times() -> tuple[DeviceTime, ...]:
        slow = choose.choice((1.0, 2.0, 3.0))
        return DeviceTime("gpu", slow), DeviceTime("other", slow * choose.choice((0.5, 2.0)))

    for i in range(count):
        weights, activations = choose.choice((0, 1, 4)), choose.choice((0, 2, 6))
        operators.append(Operator(f"l{i}", "matmul", times(), None, None, weights, activations, 1))
        operators.append(
            Operator(f"l{i}/backward", "matmul", times(), None, None, 0, 0, 1, backward=True, forward_of=f"l{i}")
        )
        for j in range(i):
            if j == i - 1 or choose.random() < 0.4:
                edges += (Edge(f"l{j}", f"l{i}", 1), Edge(f"l{i}/backward", f"l{j}/backward", 1))
    return OperatorGraph("small", tuple(operators), tuple(edges))


@pytest.mark.parametrize("communication", Communication)
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("seed", seeds(60))
def test_nothing_is_better_on_meshes(seed: int, communication: Communication, equal: bool) -> None:
    """Where links differ, what is said to be proved is best, and bounds hold."""
    graph, mesh = small_network(seed), small_mesh(seed, equal=equal)
    problem = placement_problem(graph, mesh, None, communication, replicas=ReplicaOptions())

    def reduce(devices: tuple[int, ...], amount: float) -> float:
        wires = wires_of(mesh, devices)
        fraction = measured_fraction(mesh, devices, ALL_REDUCE, wires)
        return collective(ALL_REDUCE, amount, wires, fraction).seconds

    def move(operator: Operator, one: int, other: int, parts: int) -> float:
        return mesh.link(one, other).seconds((operator.output_bytes or 0) / parts)

    overlapped = communication is Communication.OVERLAPPED
    costs = Costs(None if overlapped else move, reduce, overlapped)
    best = least_replicated_load(problem.graph, problem.devices, costs)
    report = solved(problem)
    assert report is not None
    if equal or best is None or report.status is Status.PROVED_OPTIMAL:
        is_best(report, best)
        return
    assert report.solution is not None
    assert float(report.bound or 0) <= best * (1 + 1e-9) <= float(report.objective or 0) * (1 + 2e-9)
