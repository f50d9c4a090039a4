"""Among placements with the same largest load, even ones are preferred. The claims stay the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from helpers.graphs import is_allowed, is_chain, loads_of
from helpers.seeds import reaching, seeds

from tessel_core.model import (
    CPU,
    Allowance,
    DevicePool,
    DeviceTime,
    Edge,
    Operator,
    OperatorGraph,
    PlacementLoads,
    PlacementReport,
    Status,
)
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.placement import dp as dynamic_program
from tessel_core.placement.cp_sat import CpSatConfig


def line(times: list[float], costs: list[float], sizes: list[float]) -> OperatorGraph:
    """Return a chain of operators that take ten times as long on a host."""
    operators = tuple(
        Operator(f"o{i}", times=(DeviceTime("accelerator", time), DeviceTime(CPU, 10 * time)), size=size)
        for i, (time, size) in enumerate(zip(times, sizes, strict=True))
    )
    edges = tuple(Edge(f"o{i}", f"o{i + 1}", cost=costs[i]) for i in range(len(times) - 1))
    return OperatorGraph("line", operators, edges, "ms")


def random_line(seed: int) -> OperatorGraph:
    choose, count = Random(seed), 6
    times = [float(choose.choice((1, 1, 2, 3, 9))) for _ in range(count)]
    return line(times, [choose.choice((0.0, 0.25, 1.0)) for _ in times], [float(choose.randint(0, 3)) for _ in times])


def test_no_device_idles_beside_a_full_one() -> None:
    report = solve_placement("dp", PlacementProblem.on_pool(line([1, 1, 1, 1, 9], [0.0] * 5, [0.0] * 5), DevicePool(4)))
    assert report.solution is not None
    assert sorted(PlacementLoads.of(report.solution).load) == [1, 1, 2, 9]
    assert (report.status, report.objective, report.bound) == (Status.PROVED_OPTIMAL, 9, 9)


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("placer", ["dp", "cp-sat"])
def test_a_line_is_cut_evenest_of_all_that_are_best(seed: int, placer: str) -> None:
    """A chain has one order, so the least sum of squares is found, with transfers, memory and a pin."""
    graph, pool = random_line(seed), DevicePool(2 + seed % 2, seed % 3 // 2, (None, 6.0)[seed // 20])
    names = [device.name for device in pool.devices(graph)]
    pins = [Allowance("o2", tuple(names[:2]))] if seed % 5 == 0 else []
    report = solve_placement(placer, PlacementProblem.on_pool(graph, pool, pins))
    every = [
        loads_of(graph, pool, on)
        for on in product(range(len(names)), repeat=len(graph.operators))
        if is_allowed(graph, pool, on) and is_chain(graph, on) and not (pins and names[on[2]] not in pins[0].devices)
    ]
    if not every:
        assert report.status is Status.INFEASIBLE
        pytest.skip("no cut of this line fits, and the placer says so")
    assert report.solution is not None
    least = min(map(max, every))
    found = PlacementLoads.of(report.solution).load
    assert (report.status, float(report.objective or 0)) == (Status.PROVED_OPTIMAL, pytest.approx(least))
    squares = [sum(load * load for load in loads) for loads in every if max(loads) <= least * (1 + 1e-12)]
    assert sum(load * load for load in found) == pytest.approx(min(squares))


@pytest.mark.parametrize("seed", seeds(12))
def test_any_sets_are_evened_out_by_moves(seed: int) -> None:
    """No single move to an idle device would make loads more even."""

    def evened_out(each: int) -> tuple[PlacementProblem, PlacementReport]:
        problem = replace(PlacementProblem.on_pool(random_line(each), DevicePool(3, 0, 8)), contiguous=False)
        return problem, solve_placement("cp-sat", problem, CpSatConfig(workers=1))

    problem, report = evened_out(reaching(seed, lambda each: evened_out(each)[1].solution is not None))
    assert report.solution is not None
    assert report.status is Status.PROVED_OPTIMAL
    loads = PlacementLoads.of(report.solution)
    assert loads.largest == report.objective
    idle = [device for device, load in enumerate(loads.load) if load == 0]
    for group, (on,) in enumerate(report.solution.assignment):
        for device in idle:
            moved = list(report.solution.assignment)
            moved[group] = (device,)
            other = PlacementLoads.of(problem.placement(moved)).load
            assert max(other) > loads.largest or sum(a * a for a in other) >= sum(a * a for a in loads.load) * (
                1 - 1e-6
            ), on


@pytest.mark.parametrize("seed", seeds(20))
def test_only_the_placement_is_another_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PlacementProblem.on_pool(random_line(seed), DevicePool(3, 1))
    even = solve_placement("dp", problem)
    monkeypatch.setattr(dynamic_program, "rebalanced", lambda problem, pipeline, report, control: report)
    plain = solve_placement("dp", problem)
    assert (even.status, even.objective, even.bound) == (plain.status, plain.objective, plain.bound)
