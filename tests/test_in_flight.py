"""Activations in flight: by position for 1F1B, all micro-batches for GPipe, or a given number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from random import Random

import pytest
from helpers.seeds import seeds
from helpers.sweeps import GRAPH, PAIR
from helpers.terminal import terminal
from helpers.training_graphs import NS, training_graph

from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.formats import graph_text
from tessel_core.model import (
    Communication,
    Device,
    DeviceMesh,
    DeviceTime,
    Edge,
    InFlight,
    Link,
    Operator,
    OperatorGraph,
    Placement,
    PlacementLoads,
    Status,
)
from tessel_core.placement import PLACERS, PlacementProblem, solve_placement
from tessel_core.placement.cp_sat import CpSatConfig
from tessel_core.placement.problem import placement_problem
from tessel_core.planning import JointConfig, plan_of, search_jointly
from tessel_core.rules import check_placement
from tessel_core.samples import list_graphs, load_graph
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.sweeps.sweep import SolverSweep

ONE_WORKER = CpSatConfig(workers=1)


def tight_problem(seed: int, *, contiguous: bool = True, micro_batches: int = 32) -> PlacementProblem:
    """Return a random graph on two or three devices. Memory is often tight for stages with several micro-batches."""
    choose = Random(seed)
    graph, count = training_graph(choose, 5), choose.randint(2, 3)
    capacities = (None, *(choose.randint(20, 90) for _ in range(4)))
    devices = [Device(f"d{i}", choose.choice(("fast", "slow")), 0, choose.choice(capacities)) for i in range(count)]
    mesh = DeviceMesh("tight", tuple(devices), same_node_link=Link(1e9, 5 * NS))
    problem = PlacementProblem.on_mesh(graph, mesh, choose.choice(list(Communication)))
    return replace(problem, contiguous=contiguous).for_micro_batches(micro_batches)


def held(placement: Placement, device: int, count: int) -> int:
    """Return the bytes of a device with this many micro-batches in flight, summed over operators."""
    graph, total = placement.graph, 0
    trained = {each.forward_of for each in graph.operators}
    for i in placement.operators_on[device]:
        operator = graph.operators[i]
        times = count if operator.name in trained else 1
        total += (operator.weight_bytes or 0) + times * (operator.activation_bytes or 0)
    return total


def orders(placement: Placement) -> Iterator[tuple[int, ...]]:
    """Return every order of the used devices in which no tensor flows back."""
    graph = placement.graph
    at = [placement.assignment[members[0]][0] for members in graph.colocated]
    arcs = {(at[one], at[other]) for one, other in graph.flow if at[one] != at[other]}
    for order in permutations(sorted(set(at))):
        if all(order.index(one) < order.index(other) for one, other in arcs):
            yield order


def excess(placement: Placement, micro_batches: int) -> float:
    """Return the least excess of memory over all orders of the devices. For arbitrary sets, all orders count alike."""
    found = [[(d, min(len(order) - i, micro_batches)) for i, d in enumerate(order)] for order in orders(placement)]
    everywhere = [(d, min(len(placement.devices), micro_batches)) for d in range(len(placement.devices))]
    limits = [each.memory_capacity for each in placement.devices]

    def over(counts: list[tuple[int, int]]) -> float:
        return max(
            -1.0 if limit is None else held(placement, d, count) - limit for d, count in counts for limit in [limits[d]]
        )

    return min(map(over, found or [everywhere]))


def placements(problem: PlacementProblem) -> Iterator[Placement]:
    """Return every placement that keeps colocated operators together."""
    for on in product(range(len(problem.devices)), repeat=len(problem.graph.colocated)):
        yield problem.placement([(on[group],) for group in problem.graph.group_of])


def least_load(problem: PlacementProblem, micro_batches: int) -> float | None:
    """Return the least largest load of the placements that fit, by brute force."""
    allowed = (each for each in placements(problem) if not problem.contiguous or any(orders(each)))
    return min((PlacementLoads.of(each).largest for each in allowed if excess(each, micro_batches) <= 0), default=None)


@pytest.mark.parametrize("seed", seeds(60))
def test_the_referee_finds_the_best_order_of_the_stages(seed: int) -> None:
    micro_batches = 1 + seed % 3
    for placement in placements(tight_problem(seed, micro_batches=micro_batches)):
        broken = [each.rule for each in check_placement(placement, without=("contiguous",))]
        assert ("memory" in broken) == (excess(placement, micro_batches) > 0), placement.assignment


@pytest.mark.parametrize("placer", ["dp", "cp-sat"])
@pytest.mark.parametrize("seed", seeds(60))
def test_nothing_that_fits_is_better(placer: str, seed: int) -> None:
    micro_batches = 1 + seed % 4
    problem = tight_problem(seed, micro_batches=micro_batches)
    report = solve_placement(placer, problem, ONE_WORKER if placer == "cp-sat" else None)
    best = least_load(problem, micro_batches)
    assert (report.status is Status.INFEASIBLE) == (best is None)
    if best is not None:
        assert report.status is Status.PROVED_OPTIMAL
        assert float(report.objective or 0) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", seeds(24))
def test_nothing_of_any_sets_that_fits_is_better(seed: int) -> None:
    problem = tight_problem(seed, contiguous=False)
    report = solve_placement("cp-sat", problem, ONE_WORKER)
    best = least_load(problem, 32)
    assert (report.status is Status.INFEASIBLE) == (best is None)
    if best is not None:
        assert report.status is Status.PROVED_OPTIMAL
        assert float(report.objective or 0) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("seed", seeds(40))
def test_the_least_memory_would_do_and_a_byte_less_would_not(seed: int, contiguous: bool) -> None:
    problem = tight_problem(seed, contiguous=contiguous)
    devices = tuple(replace(each, memory_capacity=20.0) for each in problem.devices)
    report = solve_placement("dp" if contiguous else "cp-sat", replace(problem, devices=devices))
    if report.least_memory is None:
        pytest.skip("no memory would do")
    for capacity, fits in ((report.least_memory, True), (report.least_memory - 1, False)):
        other = tuple(replace(each, memory_capacity=float(capacity)) for each in problem.devices)
        assert (least_load(replace(problem, devices=other), 32) is not None) == fits


@pytest.mark.parametrize("placer", [name for name, each in PLACERS.items() if not each.judges])
@pytest.mark.parametrize("seed", seeds(12))
def test_every_placer_follows(placer: str, seed: int) -> None:
    problem = tight_problem(seed, contiguous=True in PLACERS[placer].contiguous)
    if PLACERS[placer].why_not(problem):
        pytest.skip("the placer is for other problems")
    found = solve_placement(placer, problem).solution
    assert found is None or excess(found, 32) <= 0


def chain(seed: int) -> OperatorGraph:
    """Return a chain of layers in training."""
    choose, count = Random(seed), Random(seed).randint(2, 9)
    time = [(DeviceTime("fast", choose.randint(20, 90) * NS),) for _ in range(2 * count)]
    forward = [
        Operator(f"f{i}", times=time[i], output_bytes=1, activation_bytes=choose.randint(0, 9), weight_bytes=10)
        for i in range(count)
    ]
    backward = [
        Operator(f"b{i}", times=time[count + i], output_bytes=1, backward=True, forward_of=f"f{i}")
        for i in range(count)
    ]
    edges = [Edge(f"f{i}", f"f{i + 1}") for i in range(count - 1)] + [Edge(f"f{count - 1}", f"b{count - 1}")]
    edges += [Edge(f"b{i + 1}", f"b{i}") for i in range(count - 1)]
    return OperatorGraph("chain", (*forward, *backward), tuple(edges))


@pytest.mark.parametrize("rule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("seed", seeds(60))
def test_what_fits_runs_within_capacity(seed: int, rule: str) -> None:
    """Capacities equal the bytes that are held, so one more micro-batch would not fit."""
    graph, micro_batches = chain(seed), 1 + seed % 6
    devices = tuple(Device(f"d{i}", "fast") for i in range(3))
    mesh = DeviceMesh("three", devices, same_node_link=Link(1e9))
    costs = CostOptions(optimizer="none", in_flight=rule, micro_batches=micro_batches)
    placed = solve_placement("dp", placement_problem(graph, mesh, costs)).solution
    assert placed is not None
    exact = [replace(each, memory_capacity=most) for each, most in zip(placed.devices, placed.memory, strict=True)]
    plan = plan_of(replace(placed, devices=tuple(exact)))
    report = solve_schedule(rule, plan, micro_batches)
    assert report.solution is not None, report.reason
    assert max(report.peak_memory or ()) == pytest.approx(max(placed.memory))


@pytest.mark.parametrize("sample", [each.name for each in list_graphs() if each.name.endswith("training")])
def test_samples_that_fit_run_within_capacity(sample: str) -> None:
    mesh = find_mesh("h200-32")
    placed = solve_placement("dp", placement_problem(load_graph(sample), mesh)).solution
    assert placed is not None
    most = int(max(placed.memory)) + 1
    problem = placement_problem(load_graph(sample), mesh.with_capacity(most))
    placed = solve_placement("dp", problem).solution
    assert placed is not None
    plan = plan_of(placed)
    why_not = SCHEDULERS["1f1b"].why_not(plan, 32)
    if why_not:
        assert why_not.endswith("are on separate branches")
        pytest.skip("1F1B is for stages in a row")
    report = solve_schedule("1f1b", plan, 32)
    assert report.solution is not None, report.reason
    assert max(report.peak_memory or ()) <= most


@pytest.mark.parametrize("seed", seeds(200))
def test_what_fits_anywhere_runs_within_capacity(seed: int) -> None:
    """Tensors may skip stages, and flow both ways in the backward. 1F1B needs a chain of stages."""
    problem = tight_problem(seed)
    placed = solve_placement("dp", problem).solution
    if placed is None:
        pytest.skip("nothing fits")
    plan = plan_of(placed)
    if not SCHEDULERS["1f1b"].why_not(plan, 7):
        report = solve_schedule("1f1b", plan, 7)
        assert report.solution is not None, report.reason


def test_stages_hold_what_their_rule_says() -> None:
    graph = chain(3)
    mesh = DeviceMesh("four", tuple(Device(f"d{i}", "fast") for i in range(4)), same_node_link=Link(1e9))
    on = [(min(3, int(name[1:])),) for name in graph.names]
    for rule, micro_batches, counts in (
        ("1f1b", 32, (4, 3, 2, 1)),
        ("1f1b", 2, (2, 2, 2, 1)),
        ("gpipe", 8, (8, 8, 8, 8)),
        (3, 8, (3, 3, 3, 3)),
    ):
        problem = placement_problem(graph, mesh, CostOptions(in_flight=rule, micro_batches=micro_batches))
        assert problem.placement(on).held == counts
    there_and_back = [on[min(2, int(name[1:])) % 2] for name in graph.names]
    circle = placement_problem(graph, mesh).placement(there_and_back)
    assert circle.held[:2] == (4, 4), "tensors flow in a circle: as many as there are devices"


@pytest.mark.parametrize(
    ("rule", "why"),
    [("half", "must be 1f1b, gpipe or a number"), (0, "must be at least 1"), (1.5, "must be an integer")],
)
def test_other_rules_are_refused(rule: object, why: str) -> None:
    with pytest.raises(InputError, match=why):
        InFlight(rule)  # type: ignore[arg-type]


def test_the_joint_search_counts_its_own_micro_batches() -> None:
    """A stage has room for one micro-batch, but the first stage lacks room for two."""
    graph, device = chain(3), Device("d", "fast", memory_capacity=60)
    mesh = DeviceMesh("pair", (replace(device, name="d0"), replace(device, name="d1")), same_node_link=Link(1e9))
    problem = PlacementProblem.on_mesh(graph, mesh)
    alone, several = (search_jointly(problem, JointConfig(2, count, 5.0, 1)) for count in (1, 8))
    for report, count in ((alone, 1), (several, 8)):
        solution = report.placement.solution
        assert solution is None or solution.in_flight.micro_batches == count


def test_a_file_says_what_it_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tessel = terminal(monkeypatch, capsys)
    Path("chain.json").write_text(graph_text(load_graph("mlp-8-training")))
    for asked, kept in (("1f1b", "1f1b"), ("gpipe", "gpipe"), ("3", 3)):
        code, _, _ = tessel(
            "place", "chain.json", "--mesh", "h200-2", "--in-flight", asked, "--out", "p.json", "--json"
        )
        assert code == 0
        assert json.loads(Path("p.json").read_text())["report"]["costs"]["in_flight"] == kept
        assert tessel("check", "chain.json", "p.json")[0] == 0
    code, _, said = tessel("place", "chain.json", "--mesh", "h200-2", "--in-flight", "half")
    assert code == 2
    assert said == "error: --in-flight: must be one of 1f1b, gpipe or a number from 1 to 4096, got 'half'\n"


def test_points_of_a_sweep_share_a_placement_where_micro_batches_make_no_difference() -> None:
    """On two devices, 1F1B holds at most two micro-batches. GPipe holds all, and a number is independent of them."""
    shared = {}
    for rule in ("1f1b", "gpipe", 2):
        points = SolverSweep((GRAPH,), (PAIR,), in_flight=(rule,), micro_batches=(1, 2, 8)).points
        shared[rule] = len({point.placement_key for point in points})
        assert len({point.key for point in points}) == 3
    assert shared == {"1f1b": 2, "gpipe": 3, 2: 1}
