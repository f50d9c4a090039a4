"""Baseline placements by hand. `test_splits.py` compares their claims with brute force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessel_core.errors import InputError
from tessel_core.model import CPU, DevicePool, DeviceTime, Edge, Operator, OperatorGraph, Status
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.rules import check_placement

MEMORY = OperatorGraph(
    "memory",
    tuple(
        Operator(name, times=(DeviceTime("accelerator", 1.0), DeviceTime(CPU, 50.0)), size=size)
        for name, size in zip("abcde", (3, 4, 1, 2, 1), strict=True)
    ),
    tuple(Edge(one, other, cost=0.0) for one, other in ("ab", "bc", "cd", "de")),
)


def test_greedy_looks_past_what_is_too_large_and_keeps_the_memory() -> None:
    """4 bytes each: a (b is too large, and c waits for it), then b, then c, d and e."""
    report = solve_placement("greedy", PlacementProblem.on_pool(MEMORY, DevicePool(3, 0, 4)))
    assert report.solution is not None
    assert report.solution.assignment == ((0,), (1,), (2,), (2,), (2,))
    free = replace(MEMORY, edges=())
    report = solve_placement("greedy", PlacementProblem.on_pool(free, DevicePool(3, 0, 4)))
    assert report.solution is not None
    assert report.solution.assignment == ((0,), (1,), (0,), (2,), (2,))


@pytest.mark.parametrize("placer", ["greedy", "one-device", "balanced-layers"])
def test_a_baseline_that_does_not_fit_shows_what_it_would_do(placer: str) -> None:
    report = solve_placement(placer, PlacementProblem.on_pool(MEMORY, DevicePool(2, 0, 5)))
    assert (report.status, report.solution) == (Status.INFEASIBLE, None)
    assert report.relaxed_solution is not None
    assert {each.rule for each in check_placement(report.relaxed_solution)} == {"memory"}
    assert "capacity 5" in report.reason


@pytest.mark.parametrize(
    ("placer", "assignment"),
    [
        ("balanced-layers", (0, 0, 0, 1, 1)),
        ("pipedream", (0, 0, 0, 1, 1)),
        ("one-device", (0, 0, 0, 0, 0)),
    ],
)
def test_baselines_by_hand(placer: str, assignment: tuple[int, ...]) -> None:
    """Five equal operators in a chain on two accelerators and a host, which stays empty."""
    report = solve_placement(placer, PlacementProblem.on_pool(MEMORY, DevicePool(2, 1)))
    assert report.solution is not None
    on = [device for (device,) in report.solution.assignment]
    assert sorted(on.count(device) for device in (0, 1)) == sorted(assignment.count(device) for device in (0, 1))
    assert on == sorted(on)


def test_a_split_by_hand_is_judged() -> None:
    problem = PlacementProblem.on_pool(MEMORY, DevicePool(2))
    with pytest.raises(InputError, match=r"^placer expert: evaluates a placement by hand"):
        solve_placement("expert", problem)
    problem = replace(problem, by_hand=((0,), (1,), (0,), (1,), (1,)))
    report = solve_placement("expert", problem)
    assert (report.status, report.relaxed_solution) == (Status.INFEASIBLE, None)
    assert "tensors flow in a circle" in report.reason
    report = solve_placement("expert", replace(problem, contiguous=False))
    assert (report.status, report.objective) == (Status.FEASIBLE, 3)


def test_tight_memory_without_order_says_what_would_do() -> None:
    """3 + 2 and 4 + 1 + 1 fit in 6 bytes each. In 5 bytes, three accelerators are enough."""
    problem = replace(PlacementProblem.on_pool(MEMORY, DevicePool(2, 0, 6)), contiguous=False)
    assert solve_placement("cp-sat", problem).status is Status.PROVED_OPTIMAL
    report = solve_placement("cp-sat", replace(problem, devices=DevicePool(2, 0, 5).devices(MEMORY)))
    assert (report.status, report.least_memory, report.least_accelerators) == (Status.INFEASIBLE, 6, 3)
    assert report.reason == "2 accelerators of 5 bytes have no room for any parts of the graph"
