"""Replicated stages: the dynamic program against brute force, and laws."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from helpers.graphs import random_graph
from helpers.replicas import Costs, least_replicated_load
from helpers.seeds import seeds

from tessel_core.charts.graph.groups import GraphView, GroupBy, marked
from tessel_core.charts.placement_lanes import placement_data
from tessel_core.charts.timeline import timeline_frames
from tessel_core.cli.problem import bind_placement
from tessel_core.costs.collectives import ALL_REDUCE, collective, measured_fraction, wires_of
from tessel_core.costs.costed import CostOptions
from tessel_core.costs.reductions import MeshReductions, ReplicaOptions
from tessel_core.editing.placement import Movable
from tessel_core.errors import InputError
from tessel_core.exports.pytorch_csv import objection_of_pytorch
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.formats.placement_file import read_placement
from tessel_core.formats.plan_file import plan_text, read_plan
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
    PlacementLoads,
    PlacementReport,
    Status,
)
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.planning import JointConfig, plan_of, search_jointly
from tessel_core.planning.placed_program import placed_program
from tessel_core.rules import check_placement
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.placement_files import placement_file_text, with_placement
from tessel_core.workbench.placing import PLACING, Placing, placing_from

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement" / "throughput"
published = pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")
FREE = ReplicaOptions(bandwidth=1e9)


def solved(problem: PlacementProblem, placer: str = "dp") -> PlacementReport | None:
    """Return the placement, or None if an operator runs on no device."""
    try:
        return solve_placement(placer, problem)
    except InputError:
        return None


def held_apart(graph: OperatorGraph, seed: int) -> OperatorGraph:
    """Return the graph with weights and activations instead of one size. Every second operator stays unchanged."""
    choose = random.Random(seed)
    if seed % 2:
        return graph
    return replace(graph, operators=tuple(_held_apart(each, choose) for each in graph.operators))


def _held_apart(operator: Operator, choose: random.Random) -> Operator:
    weights, activations = choose.choice((0, 0, 1, 3)), choose.choice((0, 1, 2, 4))
    return replace(operator, size=None, weight_bytes=weights, activation_bytes=activations)


def is_best(report: PlacementReport | None, best: float | None) -> None:
    """Assert that the answer is proved and equals that of brute force."""
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

    micro_batches = choose.choice((1, 2, 32))
    best = least_replicated_load(graph, pool.devices(graph), Costs(move, reduce, micro_batches=micro_batches))
    problem = placement_problem(graph, pool, CostOptions(micro_batches=micro_batches), replicas=options)
    is_best(solved(problem), best)


def small_mesh(seed: int, *, equal: bool) -> DeviceMesh:
    """Return three devices of one node and kind, or of two."""
    choose = random.Random(seed)
    near, far = Link(choose.choice((1.0, 4.0)), choose.choice((0.0, 0.125))), Link(0.5, 0.25)
    kinds = ("gpu", "gpu", "gpu") if equal or choose.random() < 0.5 else ("gpu", "gpu", "other")
    nodes = (0, 0, 0) if equal else choose.choice(((0, 0, 1), (0, 1, 1), (0, 1, 2)))
    devices = [Device(f"d{i}", kind, node) for i, (kind, node) in enumerate(zip(kinds, nodes, strict=True))]
    capacity = choose.choice((None, 12, 50))
    equally = tuple(replace(each, memory_capacity=capacity) for each in devices)
    return DeviceMesh("small", equally, same_node_link=near, default_link=far)


def small_network(seed: int) -> OperatorGraph:
    """Return up to four layers with their backward, in seconds and bytes, with times on two kinds of devices."""
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


def uneven() -> tuple[OperatorGraph, DeviceMesh]:
    """Return a long layer without weights and a short one with many. Of three devices, the first should use two."""
    times, slow = (DeviceTime("gpu", 1.0),), (DeviceTime("gpu", 4.0),)
    operators = (
        Operator("a", "matmul", slow, weight_bytes=0, activation_bytes=5, output_bytes=1),
        Operator("b", "matmul", times, weight_bytes=40, activation_bytes=2, output_bytes=1),
        Operator("b/backward", "matmul", times, output_bytes=1, backward=True, forward_of="b"),
        Operator("a/backward", "matmul", times, output_bytes=1, backward=True, forward_of="a"),
    )
    edges = (Edge("a", "b", 1), Edge("b", "b/backward", 1), Edge("b/backward", "a/backward", 1))
    return OperatorGraph("uneven", operators, edges), small_mesh(2, equal=True)


@pytest.mark.parametrize("communication", Communication)
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("seed", seeds(60))
def test_nothing_is_better_on_meshes(seed: int, communication: Communication, equal: bool) -> None:
    """Links differ. Placements claimed to be proved are best, and bounds hold."""
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
    else:
        assert report.solution is not None
        assert float(report.bound or 0) <= best * (1 + 1e-9) <= float(report.objective or 0) * (1 + 2e-9)


@pytest.mark.parametrize("seed", seeds(60))
def test_replicas_never_lose_to_one_device_per_stage_nor_to_data_parallelism(seed: int) -> None:
    choose = random.Random(seed)
    graph = held_apart(random_graph(seed, most=16), seed)
    pool = DevicePool(choose.choice((2, 4, 6)), choose.choice((0, 1)), choose.choice((None, 12)))
    replicated = placement_problem(graph, pool, replicas=ReplicaOptions(1, choose.choice((1e-6, 1e-5))))
    found = solved(replicated)
    others = (solved(placement_problem(graph, pool)), solved(replicated, "data-parallel"))
    for other in (each for each in others if each is not None and each.objective is not None):
        assert found is not None
        assert found.status is Status.PROVED_OPTIMAL
        assert float(found.objective or 0) <= float(other.objective or 0) * (1 + 1e-9)


@pytest.mark.parametrize("communication", Communication)
@pytest.mark.parametrize("seed", seeds(30))
def test_on_nodes_replicas_lose_to_neither(seed: int, communication: Communication) -> None:
    choose = random.Random(seed)
    nodes, per_node = choose.choice(((2, 2), (2, 3), (3, 2)))
    devices = tuple(Device(f"d{i}", "gpu", i // per_node, choose.choice((60,))) for i in range(nodes * per_node))
    mesh = DeviceMesh("nodes", devices, same_node_link=Link(8.0, 0.125), default_link=Link(1.0, 0.25), node_uplink=2.0)
    asked = (small_network(seed), mesh, None, communication)
    replicated = placement_problem(*asked, replicas=ReplicaOptions(choose.choice((1, 8))))
    found = solved(replicated)
    assert found is not None
    for other in (solved(placement_problem(*asked)), solved(replicated, "data-parallel")):
        if other is not None and other.objective is not None:
            assert found.objective is not None
            assert float(found.objective) <= float(other.objective) * (1 + 1e-9)
    if found.solution is not None:
        assert check_placement(found.solution) == []


@pytest.mark.parametrize("seed", seeds(40))
def test_no_group_reduces_in_less_than_the_least_time(seed: int) -> None:
    """Devices have no links of their own, and all groups have the same size."""
    choose = random.Random(seed)
    nodes = tuple(sorted(choose.choices(range(3), k=6)))
    devices = tuple(Device(f"d{i}", choose.choice(("h100", "gpu")), node) for i, node in enumerate(nodes))
    links = [Link(choose.choice((1e9, 4e11)), choose.choice((0.0, 2e-6))) for _ in range(2)]
    mesh = DeviceMesh("m", devices, (), *links, node_uplink=choose.choice((None, 1e10)))
    reductions = MeshReductions(mesh)
    for replicas in range(2, 7):
        times = [reductions.time_of(group) for group in combinations(range(6), replicas)]
        (latency, per_byte) = (min(getattr(each, part) for each in times) for part in ("latency", "per_byte"))
        representatives = [reductions.time_of(each) for each in reductions._representatives(range(6), replicas)]
        if len({device.kind for device in devices}) == 1:
            assert (latency, per_byte) == (
                min(each.latency for each in representatives),
                min(each.per_byte for each in representatives),
            )
        bound = reductions._fastest_links(replicas)
        assert bound.latency <= latency * (1 + 1e-12)
        assert bound.per_byte <= per_byte * (1 + 1e-12)


def test_what_would_do_instead_does_and_less_does_not() -> None:
    """Activations of 8 bytes on each of two devices of 6. They are divided, and weights are not."""
    times = (DeviceTime("gpu", 1.0),)
    operators = tuple(Operator(name, times=times, weight_bytes=2, activation_bytes=8) for name in "ab")
    graph = OperatorGraph("heavy", operators, (Edge("a", "b"),))
    report = solved(placement_problem(graph, DevicePool(2, 0, 6), replicas=FREE))
    assert report is not None
    assert report.status is Status.INFEASIBLE
    assert report.least_memory == 10
    for memory, status in ((10, Status.PROVED_OPTIMAL), (9, Status.INFEASIBLE)):
        again = solved(placement_problem(graph, DevicePool(2, 0, memory), replicas=FREE))
        assert again is not None
        assert again.status is status


def test_replicas_of_one_kind_with_other_memory_are_not_sought_and_the_report_says_so() -> None:
    graph = small_network(1)
    devices = tuple(Device(f"d{i}", "gpu", 0, 1000 + i % 2) for i in range(4))
    mesh = DeviceMesh("two memories", devices, same_node_link=Link(8.0))
    report = solved(placement_problem(graph, mesh, replicas=ReplicaOptions()))
    assert report is not None
    assert report.objective is not None
    if report.status is not Status.PROVED_OPTIMAL:
        assert "one memory" in report.reason
    assert float(report.bound or 0) <= float(report.objective)


def test_what_is_asked_besides_replicas_must_suit_them() -> None:
    graph, pool = random_graph(3), DevicePool(2, 1)
    with pytest.raises(InputError, match="need a contiguous placement for the throughput"):
        placement_problem(graph, pool, contiguous=False, replicas=FREE)
    with pytest.raises(InputError, match="cannot replicate stages"):
        solve_placement("greedy", placement_problem(graph, pool, replicas=FREE))
    with pytest.raises(InputError, match="replicated stages only"):
        solve_placement("data-parallel", placement_problem(graph, pool))


def in_sixes(graph: OperatorGraph, mesh: DeviceMesh) -> tuple[OperatorGraph, DeviceMesh]:
    """Multiply all bytes and capacities by six."""
    operators = (
        replace(each, weight_bytes=6 * (each.weight_bytes or 0), activation_bytes=6 * (each.activation_bytes or 0))
        for each in graph.operators
    )
    limits = (None if each.memory_capacity is None else 6 * each.memory_capacity for each in mesh.devices)
    devices = (replace(each, memory_capacity=limit) for each, limit in zip(mesh.devices, limits, strict=True))
    return replace(graph, operators=tuple(operators)), replace(mesh, devices=tuple(devices))


@pytest.mark.parametrize("communication", Communication)
@pytest.mark.parametrize("seed", seeds(30))
def test_a_devices_load_is_its_work_in_the_plan_and_schedules_run(seed: int, communication: Communication) -> None:
    """The plan of a placement that fits runs under 1F1B within memory. Bytes divide evenly over replicas."""
    graph, mesh = in_sixes(small_network(seed), small_mesh(seed, equal=True))
    report = solved(placement_problem(graph, mesh, None, communication, replicas=ReplicaOptions()))
    assert report is not None
    if report.solution is None:
        pytest.skip("nothing fits")
    plan, loads = plan_of(report.solution), PlacementLoads.of(report.solution)
    at = {device.name: i for i, device in enumerate(report.solution.devices)}
    for device, work in zip(plan.devices, plan.work, strict=True):
        assert work == pytest.approx(loads.load[at[device.name]] * 1e9, abs=4)
    searched = solve_schedule("tessel", plan, 3, TesselConfig(time_limit=1.0, polish=0.0))
    assert searched.solution is not None
    if not SCHEDULERS["1f1b"].objection(plan):
        assert solve_schedule("1f1b", plan, 6).solution is not None


def test_lanes_show_each_replica_with_its_part_and_the_reduction() -> None:
    graph, mesh = uneven()
    heavy = replace(graph, operators=tuple(replace(each, weight_bytes=1) for each in graph.operators))
    problem = placement_problem(heavy, mesh, None, Communication.BLOCKING, replicas=ReplicaOptions())
    placement = problem.placement(((0, 1), (2,), (2,), (0, 1)))
    view = marked(heavy, GraphView(GroupBy.LAYER), placement)
    ((header, _),) = timeline_frames(placement_data(Movable(placement), view))
    assert [device["name"] for device in header["devices"]] == ["d0 1/2", "d1 2/2", "d2"]
    lanes, loads = [0.0] * 3, PlacementLoads.of(placement)
    for block in header["blocks"]:
        lanes[block["devices"][0]] += block["duration"] / 1e9
    assert lanes == pytest.approx(loads.load)
    reducing = [block["duration"] / 1e9 for block in header["blocks"] if block["name"] == "gradient reduction"]
    assert reducing == pytest.approx([loads.reduction[0]] * 2)
    assert loads.reduction == (*[collective(ALL_REDUCE, 2, wires_of(mesh, (0, 1))).seconds] * 2, 0.0)


@pytest.mark.parametrize("seed", seeds(40))
def test_what_is_moved_goes_to_all_replicas_of_a_stage_unless_a_rule_stands_against_it(seed: int) -> None:
    graph, mesh = small_network(seed), small_mesh(seed, equal=True)
    report = solved(placement_problem(graph, mesh, replicas=ReplicaOptions(8)))
    if report is None or report.solution is None:
        pytest.skip("nothing fits")
    movable = Movable(report.solution)
    for members in graph.colocated:
        for device, why in enumerate(movable.why_not(members)):
            moved = movable.moved(members, device)
            assert bool(why) == bool(check_placement(moved)), (members, device, why)
            assert moved.assignment[members[0]] == report.solution.stage_at(device)


def test_replicas_are_kept_by_files_and_workspaces() -> None:
    graph, mesh = uneven()
    placing = Placing(GraphFile.of(graph), mesh=MeshFile.of(mesh), costs=CostOptions(optimizer="sgd"))
    placing = placing.replicating(ReplicaOptions(reduce_every=4))
    report = solve_placement("dp", placing.problem)
    assert report.solution is not None
    assert report.solution.replicated
    placing = placing.answered(report)
    kept = read_placement(placement_file_text(placing).encode())
    assert kept.terms.replicas == {"reduce_every": 4, "bandwidth": 16.0}
    assert bind_placement(kept, [placing.graph], [placing.mesh]) == report.solution
    opened = with_placement(replace(placing, replicas=None, assignment=None), kept)
    assert opened.placement == report.solution
    again = placing_from(PLACING.write(placing), placing.graph, placing.mesh)
    assert again.placement == report.solution
    without = PLACING.write(placing.replicating(None))
    assert "replicas" not in without


def test_plans_keep_that_they_are_replicated_and_are_no_pipelines_of_single_ranks() -> None:
    graph, mesh = uneven()
    problem = placement_problem(graph, mesh, CostOptions(optimizer="sgd"), replicas=ReplicaOptions())
    solution = solve_placement("dp", problem).solution
    assert solution is not None
    plan = plan_of(solution)
    assert plan.replicated
    assert read_plan(plan_text(plan).encode()) == plan
    schedule = solve_schedule("1f1b", plan, 4).solution
    assert schedule is not None
    assert "is on 2 devices, but a stage must be on one" in objection_of_pytorch(schedule)
    assert not plan_of(solve_placement("dp", replace(problem, replication=None)).solution or solution).replicated


def test_no_program_is_made_of_replicated_stages() -> None:
    graph, mesh = uneven()
    problem = placement_problem(graph, mesh, CostOptions(optimizer="sgd"), replicas=ReplicaOptions())
    report = solve_placement("dp", problem)
    assert report.solution is not None
    schedule = solve_schedule("gpipe", plan_of(report.solution), 2).solution
    assert schedule is not None
    with pytest.raises(InputError, match="replicated stages"):
        placed_program(lambda split: pytest.fail("the placement is refused first"), report.solution, schedule)


def test_the_joint_search_schedules_replicated_placements() -> None:
    graph, mesh = uneven()
    problem = placement_problem(graph, mesh, CostOptions(optimizer="sgd"), replicas=ReplicaOptions())
    report = search_jointly(problem, JointConfig(placements=3, micro_batches=4, time_limit=3.0))
    assert report.best is not None
    assert report.best.candidate.placement.replicated
    assert report.bound is not None
    assert report.best.period is not None


@published
@pytest.mark.parametrize("name", ["LayerGraphs/bert24_training", "LayerGraphs/gnmt_inference"])
def test_published_inputs_on_eight_accelerators_are_proved(name: str) -> None:
    file = read_graph_file(DATA / f"{name}.json")
    assert file.pool is not None
    pool = replace(file.pool, accelerators=8)
    found = solved(placement_problem(file.graph, pool, replicas=ReplicaOptions(reduce_every=32)))
    plain = solved(placement_problem(file.graph, pool))
    assert found is not None
    assert plain is not None
    assert found.status is Status.PROVED_OPTIMAL
    assert (found.objective or 0) < (plain.objective or 0)
    assert found.solution is not None
    assert found.solution.replicated
