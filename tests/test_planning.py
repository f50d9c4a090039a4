"""From placements to plans: a device's load is its work, there are few blocks, and memory is conserved."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from helpers.seeds import seeds
from helpers.training_graphs import NS, random_mesh, random_placement, training_graph

from tessel_core.costs.costed import CostOptions, costed, with_batch_size
from tessel_core.errors import InputError
from tessel_core.model import (
    BlockKind,
    Communication,
    Dependency,
    DevicePool,
    DeviceTime,
    Edge,
    Operator,
    OperatorGraph,
    Placement,
    PlacementLoads,
    Transfers,
)
from tessel_core.model.memory import MemoryProfile
from tessel_core.networks.graphs.backward import with_weights_apart
from tessel_core.networks.graphs.files import read_graph_file
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.planning import plan_of
from tessel_core.rules import check_schedule
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.scheduling.tessel import TesselConfig

DATA = Path(__file__).parents[2] / "shared" / "data" / "device-placement" / "throughput"


@pytest.mark.parametrize("how", Communication)
@pytest.mark.parametrize("seed", seeds(150))
def test_a_devices_load_is_its_work_in_the_plan(seed: int, how: Communication) -> None:
    """Up to a rounding of half a nanosecond per block. A group's block lasts as long as its slowest device."""
    choose = Random(seed)
    graph, mesh = training_graph(choose), random_mesh(choose)
    placement = random_placement(choose, graph, mesh, how)
    plan = plan_of(placement)
    loads = dict(zip((device.name for device in placement.devices), PlacementLoads.of(placement).load, strict=True))
    for i, device in enumerate(plan.devices):
        blocks = [block for block in plan.blocks if i in block.devices]
        work = sum(block.duration for block in blocks)
        slack = 0.5 * len(blocks) + 1e-6
        if any(len(block.devices) > 1 for block in blocks):
            assert work >= loads[device.name] / NS - slack
        else:
            assert work == pytest.approx(loads[device.name] / NS, abs=slack)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", seeds(150))
def test_plans_order_all_that_the_graph_orders(seed: int, split: bool) -> None:
    """Each operator is in one block, edges between blocks are dependencies, and memory is that of the operators."""
    choose = Random(seed)
    graph, mesh = training_graph(choose), random_mesh(choose)
    graph = costed(graph, mesh, CostOptions())
    placement = random_placement(choose, graph, mesh, Communication.BLOCKING)
    plan = plan_of(placement, split_weights=split)
    wanted = PlacementLoads.of(placement).memory
    names = [device.name for device in placement.devices]
    for i, device in enumerate(plan.devices):
        acquired = sum(block.memory for block in plan.blocks if i in block.devices and block.memory > 0)
        assert device.static_memory + acquired <= wanted[names.index(device.name)] + 1
    kinds = {block.kind for block in plan.blocks}
    assert all(block.name[0] == block.kind[0].upper() and len(block.name) <= 70 for block in plan.blocks)
    halves = with_weights_apart(graph).operators
    apart = split and any(operator.kind.endswith("weight_gradient") for operator in halves)
    assert (BlockKind.WEIGHT in kinds) == apart
    assert (BlockKind.BACKWARD in kinds) == graph.is_training
    report = solve_schedule("gpipe", plan, 3) if not SCHEDULERS["gpipe"].why_not(plan, 3) else None
    if report is not None and report.solution is not None:
        assert check_schedule(report.solution) == []


def test_a_chain_of_stages_is_one_block_each_way() -> None:
    """Two devices: a–b, c–d and back. The transfer of 80 bytes takes 5 ns plus 1 ns per byte."""
    names = ("a", "b", "c", "d")
    forward = [Operator(n, times=(DeviceTime("fast", 10 * NS),), output_bytes=80, activation_bytes=7) for n in names]
    backward = [
        Operator(f"{n}'", times=(DeviceTime("fast", 20 * NS),), output_bytes=80, backward=True, forward_of=n)
        for n in names
    ]
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "d"), Edge("d", "d'")]
    edges += [Edge("d'", "c'"), Edge("c'", "b'"), Edge("b'", "a'")]
    graph = OperatorGraph("line", (*forward, *backward), tuple(edges))
    mesh = random_mesh_of_two()
    placement = Placement(
        graph, mesh.placement_devices, ((0,), (0,), (1,), (1,)) * 2, Transfers(mesh, Communication.OVERLAPPED)
    )
    plan = plan_of(placement)
    assert [(each.name, each.devices, each.duration, each.memory) for each in plan.blocks] == [
        ("F a–b", (0,), 20, 14),
        ("F c–d", (1,), 20, 14),
        ("B c–d", (1,), 40, -14),
        ("B a–b", (0,), 40, -14),
    ]
    assert set(plan.dependencies) == {
        Dependency("F a–b", "F c–d", 85),
        Dependency("F a–b", "B a–b", 0),
        Dependency("F c–d", "B c–d", 0),
        Dependency("B c–d", "B a–b", 85),
    }
    for how, duration in ((Communication.BLOCKING, 105), (Communication.OVERLAPPED, 20)):
        other = plan_of(Placement(graph, placement.devices, placement.assignment, Transfers(mesh, how)))
        assert other.blocks[0].duration == duration


def random_mesh_of_two():  # type: ignore[no-untyped-def]
    return next(
        mesh for mesh in map(random_mesh, map(Random, range(99))) if [d.kind for d in mesh.devices] == ["fast"] * 2
    )


def test_a_placement_that_comes_back_is_cut_where_it_must() -> None:
    """a on 0, b on 1, c on 0: two blocks on 0. With a1 -> b1 and b2 -> a2 unconnected, one block each is enough."""
    there_and_back = _forward_placement(["a", "b", "c"], [("a", "b"), ("b", "c")], (0, 1, 0))
    assert [(each.name, each.devices) for each in plan_of(there_and_back).blocks] == [
        ("F a", (0,)),
        ("F b", (1,)),
        ("F c", (0,)),
    ]
    crossed = _forward_placement(["a1", "b1", "b2", "a2"], [("a1", "b1"), ("b2", "a2")], (0, 1, 1, 0))
    assert len(plan_of(crossed).blocks) == 3


@pytest.mark.parametrize(
    ("operators", "on", "layers"),
    [
        ("embedding h.0/up h.0/down h.1 h.2 head", "000111", ["embedding–h.0", "h.1–head"]),
        ("layer0/up layer0/down layer1 layer2", "0001", ["layer0–1", "layer2"]),
        ("layer0 layer1 layer2", "010", ["layer0", "layer1", "layer2"]),
        ("mlp/norm mlp/up mlp/gelu mlp/down", "0011", ["mlp/norm–up", "mlp/gelu–down"]),
        ("/conv1/Conv /conv1/Relu 3", "001", ["conv1", "3"]),
        ("a/b/c/d a/b/c/e a/b/c/f", "010", ["a", "a (2)", "a (3)"]),
        (f"{'x' * 200} {'y' * 180}12 z", "001", [f"{'x' * 11}…{'x' * 12}–{'y' * 11}…{'y' * 10}12", "z"]),
    ],
)
def test_blocks_are_called_by_their_layers_each_way(operators: str, on: str, layers: list[str]) -> None:
    names = operators.split()
    backward = {n: f"back{i}" for i, n in enumerate(names)}
    made = [Operator(n, times=(DeviceTime("gpu", NS),)) for n in names]
    made += [Operator(backward[n], times=(DeviceTime("gpu", NS),), backward=True, forward_of=n) for n in names]
    way = [*names, *(backward[n] for n in reversed(names))]
    problem = PlacementProblem.on_pool(
        OperatorGraph("line", tuple(made), tuple(map(Edge, way[:-1], way[1:]))), DevicePool(2)
    )
    plan = plan_of(problem.placement(tuple((int(device),) for device in on * 2)))
    forward = [f"F {each}" for each in layers]
    assert [block.name for block in plan.blocks] == [*forward, *(f"B {each}" for each in reversed(layers))]


def _forward_placement(names: list[str], edges: list[tuple[str, str]], on: tuple[int, ...]) -> Placement:
    operators = tuple(Operator(n, times=(DeviceTime("fast", 10 * NS),), output_bytes=8) for n in names)
    mesh = random_mesh_of_two()
    graph = OperatorGraph("small", operators, tuple(Edge(*edge) for edge in edges))
    return Placement(graph, mesh.placement_devices, tuple((device,) for device in on), Transfers(mesh))


def test_inference_holds_nothing_per_micro_batch() -> None:
    graph = OperatorGraph(
        "one", (Operator("a", times=(DeviceTime("fast", NS),), weight_bytes=100, activation_bytes=10),)
    )
    plan = plan_of(PlacementProblem.on_pool(graph, DevicePool(1)).placement(((0,),)))
    assert [block.memory for block in plan.blocks] == [0]
    assert plan.devices[0].static_memory == 110


def test_what_a_plan_cannot_hold_is_named() -> None:
    graph = OperatorGraph("one", (Operator("a", times=(DeviceTime("fast", NS),)),))
    problem = PlacementProblem.on_pool(graph, DevicePool(1, 1))
    with pytest.raises(InputError, match=r"^operator a: has no device"):
        plan_of(problem.placement(((),)))
    with pytest.raises(InputError, match=r"^operator a: is on cpu0, but has no time on the kind cpu"):
        plan_of(problem.placement(((1,),)))


@pytest.mark.skipif(not DATA.exists(), reason="the published inputs are not beside the project")
@pytest.mark.parametrize("name", ["LayerGraphs/bert24_training", "OperatorGraphs/bert_l-3_training"])
def test_published_placements_become_plans_that_every_referee_passes(name: str) -> None:
    file = read_graph_file(DATA / f"{name}.json")
    assert file.pool is not None
    placed = solve_placement("dp", PlacementProblem.on_pool(file.graph, file.pool)).solution
    assert placed is not None
    plan = plan_of(placed)
    assert max(plan.work) == pytest.approx(PlacementLoads.of(placed).largest * 1e6, abs=len(plan.blocks))
    report = solve_schedule("tessel", plan, 16, TesselConfig(time_limit=0.5, polish=0.1))
    assert report.solution is not None
    assert check_schedule(report.solution) == []
    assert max(MemoryProfile.of(report.solution).peaks) <= file.pool.memory * (1 + 1e-9)  # type: ignore[operator]


def test_twice_the_batch_costs_twice_but_for_weights() -> None:
    operator = Operator("a", flops=10, bytes=130, weight_bytes=100, activation_bytes=3, output_bytes=5)
    graph = OperatorGraph("pair", (operator, Operator("b", flops=1)), (Edge("a", "b", 5),), batch_size=2)
    twice = with_batch_size(graph, 4)
    one = twice.operators[0]
    assert (one.flops, one.bytes, one.weight_bytes, one.activation_bytes, one.output_bytes) == (20, 160, 100, 6, 10)
    assert (twice.edges[0].bytes, twice.batch_size) == (10, 4)
    with pytest.raises(InputError, match=r"^micro-batch size: it must be at least 1"):
        with_batch_size(graph, 0)
