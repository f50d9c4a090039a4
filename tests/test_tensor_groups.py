"""Placements on tensor-parallel groups: real capacities and links, and every device with its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.programs import gpt_inputs, same_meaning
from helpers.terminal import Tessel, terminal

from tessel_core.control import Control
from tessel_core.costs.collectives import ALL_REDUCE, collective, measured_fraction, wires_of
from tessel_core.costs.costed import CostOptions
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.exports.megatron import megatron_arguments
from tessel_core.exports.pytorch_csv import objection_of_pytorch, pytorch_csv
from tessel_core.formats import GraphFile, MeshFile, graph_text, read_graph
from tessel_core.formats.placement_file import read_placement
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.model import (
    Communication,
    Connection,
    DeviceGroups,
    DeviceMesh,
    Link,
    OperatorGraph,
    PlacementLoads,
    Schedule,
)
from tessel_core.networks.gpt import GptSpec, gpt_forward
from tessel_core.networks.graphs.table import GRAPHS, build_graph, network_program
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.placement.problem import placement_problem
from tessel_core.planning import plan_of
from tessel_core.planning.placed_program import placed_program
from tessel_core.rules import check_placement
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import simulate
from tessel_core.workbench.placement_files import placement_file_text, with_placement
from tessel_core.workbench.placing import PLACING, Placing, placing_from

SIZES = {"layers": 4, "hidden": 24, "heads": 4, "sequence": 5, "positions": 7, "vocabulary": 17, "dtype": "fp32"}
SPEC = GRAPHS["gpt"].spec(training=True, **SIZES)
GRAPH = build_graph("gpt", SPEC)
TWO_NODES = find_mesh("h100-8", per_node=4)
"""With groups of two, tensors pass between groups inside a node and between nodes."""


def problem_on(mesh: DeviceMesh, size: int, how: Communication = Communication.OVERLAPPED) -> PlacementProblem:
    return placement_problem(GRAPH, mesh, CostOptions("fp32", tensor=size), how)


def network(split: bool) -> Distributed:
    return network_program(GRAPHS["gpt"].program, replace(SPEC, dtype="fp64", tensor_parallel=2, split_weights=split))


@pytest.mark.parametrize("how", list(Communication))
def test_each_device_of_a_group_has_its_load_and_its_memory(how: Communication) -> None:
    placed = solve_placement("dp", problem_on(TWO_NODES, 2, how)).solution
    assert placed is not None
    assert [device.name for device in placed.devices] == ["gpu0..gpu1", "gpu2..gpu3", "gpu4..gpu5", "gpu6..gpu7"]
    members = placed.on_members
    assert [device.name for device in members.devices] == [f"gpu{i}" for i in range(8)]
    assert check_placement(members) == []
    groups, alone = PlacementLoads.of(placed), PlacementLoads.of(members)
    assert alone.load == pytest.approx([each for each in groups.load for _ in range(2)])
    assert alone.memory == tuple(each for each in groups.memory for _ in range(2))
    assert members.held == tuple(each for each in placed.held for _ in range(2))


def test_groups_in_a_circle_count_as_groups() -> None:
    problem = problem_on(TWO_NODES, 2)
    circle = problem.placement([(group % 2,) for group in problem.graph.group_of])
    assert set(circle.held[:2]) == {4}
    assert set(circle.on_members.held[:4]) == {4}


def test_collectives_take_what_they_take_in_a_simulation() -> None:
    mesh = find_mesh("h100-8")
    graph = problem_on(mesh, 4).graph
    wires = wires_of(mesh, (0, 1, 2, 3))
    fraction = measured_fraction(mesh, (0, 1, 2, 3), ALL_REDUCE, wires)
    found = [each for each in graph.operators if each.kind == "all_reduce"]
    assert found
    for each in found:
        seconds = collective(ALL_REDUCE, each.output_bytes or 0, wires, fraction).seconds
        assert each.time_on("h100") == pytest.approx(seconds)


def test_groups_of_one_kind_that_are_wired_differently_are_told_apart() -> None:
    """The first group has a slow link of its own, the second uses the node's."""
    mesh = find_mesh("h100-4")
    mesh = replace(mesh, connections=(Connection(("gpu0", "gpu1"), Link(1e9, 1e-5)),))
    problem = problem_on(mesh, 2)
    slow, fast = (device.kind for device in problem.devices)
    assert (slow, fast) == ("h100", "h100 wired 2")
    for each in problem.graph.operators:
        times = each.time_on(slow), each.time_on(fast)
        assert times[0] is not None
        assert times[1] is not None
        assert (times[0] > times[1]) == (each.kind in ("all_reduce", "all_gather"))


def test_a_group_has_the_room_of_its_smallest_member() -> None:
    mesh = find_mesh("h100-4")
    devices = tuple(replace(each, memory_capacity=1000 + i) for i, each in enumerate(mesh.devices))
    assert [each.memory_capacity for each in DeviceGroups(replace(mesh, devices=devices), 2).placement_devices] == [
        1000,
        1002,
    ]


def test_what_would_do_is_said_in_devices() -> None:
    mesh = find_mesh("h100-4")
    held = solve_placement("dp", problem_on(find_mesh("h100-8"), 2)).solution
    assert held is not None
    report = solve_placement("dp", problem_on(mesh.with_capacity(int(max(held.memory)) + 1), 2))
    assert report.reason.startswith("2 groups of 2 accelerators of ")
    assert report.reason.endswith("have no room for stages that follow the flow with 1F1B's micro-batches in flight")
    assert report.least_accelerators in (6, 8)


def mixed() -> DeviceMesh:
    mesh = find_mesh("h100-4")
    other = replace(find_mesh("a100-1").devices[0], name="other")
    return replace(mesh, devices=(*mesh.devices[:3], other))


@pytest.mark.parametrize(
    ("mesh", "graph", "size", "why"),
    [
        (find_mesh("h100-8"), GRAPH, 3, "tensor: groups of 3 do not divide the 8 devices of h100-8"),
        (find_mesh("h100-24", per_node=4), GRAPH, 3, "tensor: groups of 3 do not divide the 4 devices of node 0"),
        (mixed(), GRAPH, 2, "tensor: gpu2 is a h100 and other a a100, but a group needs one kind"),
        (
            find_mesh("h100-8"),
            build_graph("gpt", replace(SPEC, tensor_parallel=2)),
            2,
            "graph gpt-training: is already tensor parallel over 2 devices, and groups would divide it again",
        ),
        (
            find_mesh("h100-8"),
            replace(GRAPH, network=""),
            2,
            "graph gpt-training: does not name the network that it shows, so it has no program; tensor "
            "parallelism needs the network",
        ),
        (find_mesh("h100-8"), GRAPH, 8, "Tensor-parallel degree: must divide the number of heads, which is 4, got 8"),
    ],
)
def test_what_no_group_could_be_is_refused(mesh: DeviceMesh, graph: OperatorGraph, size: int, why: str) -> None:
    with pytest.raises(InputError) as raised:
        placement_problem(graph, mesh, CostOptions("fp32", tensor=size))
    assert str(raised.value) == why


def planned_schedule(scheduler: str = "1f1b", count: int = 4) -> tuple[Schedule, PlacementProblem]:
    problem = problem_on(TWO_NODES, 2)
    placed = solve_placement("dp", problem).solution
    assert placed is not None
    report = solve_schedule(scheduler, plan_of(placed), count)
    assert report.solution is not None, report.reason
    return report.solution, problem


def test_plan_and_published_orders_know_every_device() -> None:
    schedule, _ = planned_schedule()
    plan = schedule.plan
    assert [device.name for device in plan.devices] == [f"gpu{i}" for i in range(8)]
    assert {block.devices for block in plan.blocks} == {(0, 1), (2, 3), (4, 5), (6, 7)}


def test_exports_have_a_rank_for_each_group() -> None:
    graph = build_graph("gpt", replace(SPEC, granularity="layers"))
    problem = placement_problem(graph, TWO_NODES, CostOptions("fp32", tensor=2))
    placed = solve_placement("dp", problem).solution
    assert placed is not None
    schedule = solve_schedule("1f1b", plan_of(placed), 4).solution
    assert schedule is not None
    assert objection_of_pytorch(schedule) == ""
    assert [row.split(",")[0] for row in pytorch_csv(schedule).splitlines()] == ["0F0", "1F0", "2F0", "3F0"]
    said = megatron_arguments(schedule)
    assert "--tensor-model-parallel-size 2 " in said
    assert "--pipeline-model-parallel-size 4 " in said


def test_the_program_means_the_network_and_members_send_side_by_side() -> None:
    schedule, problem = planned_schedule("tessel")
    placed = solve_placement("dp", problem).solution
    assert placed is not None
    found = placed_program(network, placed, schedule)
    sizes = GptSpec(4, 24, 4, 17, 5, schedule.micro_batches, "fp64", 7)
    whole = Gradients()(gpt_forward(sizes))
    same_meaning(whole, found, gpt_inputs(whole, sizes, 0), 1e-9)
    types = found.program.types
    sends = [op for op in found.program.ops if op.kind == "send"]
    assert sends
    for op in sends:
        sender, receiver = types[op.inputs[0]].device, types[op.outputs[0]].device
        assert (sender - receiver) % 2 == 0, "a member sends to the one at its own position"
    assert simulate(found.program, TWO_NODES).latency >= schedule.makespan * 1e-9 * (1 - 1e-6)


def test_a_placement_file_names_the_devices_of_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tessel: Tessel = terminal(monkeypatch, capsys)
    Path("gpt.json").write_text(graph_text(GRAPH))
    asked = ("gpt.json", "--mesh", "h100-8", "--per-node", "4", "--tensor", "2", "--dtype", "fp32")
    code, out, _ = tessel("place", *asked, "--out", "p.json", "--json")
    said = json.loads(out)
    assert code == 0
    assert set(said["loads"]) == {f"gpu{i}" for i in range(8)}
    assert said["assignment"]["head/loss"] == ["gpu6", "gpu7"]
    kept = read_placement(Path("p.json").read_bytes())
    assert kept.terms.costs["tensor"] == 2
    file, mesh = read_graph(Path("gpt.json").read_bytes()), MeshFile.of(TWO_NODES)
    placing = with_placement(Placing(file, mesh=mesh), kept)
    assert placing.tensor == 2
    again = json.loads(placement_file_text(placing))
    assert again["assignment"] == json.loads(Path("p.json").read_text())["assignment"]
    torn = json.loads(Path("p.json").read_text())
    torn["assignment"]["head/loss"] = ["gpu5", "gpu6"]
    with pytest.raises(InputError, match=r"is on gpu5, gpu6, which are not a group of 2 neighbours"):
        with_placement(Placing(file, mesh=mesh), read_placement(json.dumps(torn).encode()))


def test_other_groups_begin_anew() -> None:
    placing = Placing(GraphFile.of(GRAPH), mesh=MeshFile.of(TWO_NODES))
    placing = placing.costing(CostOptions("fp32", tensor=2), Communication.OVERLAPPED)
    placed = placing.answered(placing.question.solve(Control()))
    assert placed.assignment is not None
    name = placed.problem.graph.operators[0].name
    pinned = placed.pinned([name], "gpu2..gpu3")
    assert pinned.pins
    other = pinned.costing(CostOptions("fp32", tensor=4), Communication.OVERLAPPED)
    assert (other.assignment, other.pins) == (None, ())
    assert [device.name for device in other.devices] == ["gpu0..gpu3", "gpu4..gpu7"]


def test_a_workspace_keeps_groups_and_what_is_on_them() -> None:
    placing = Placing(GraphFile.of(GRAPH), mesh=MeshFile.of(TWO_NODES))
    placing = placing.costing(CostOptions("fp32", tensor=2), Communication.OVERLAPPED)
    placed = placing.answered(placing.question.solve(Control()))
    kept = json.loads(json.dumps(PLACING.write(placed)))
    again = placing_from(kept, placed.graph, placed.mesh)
    assert (again.assignment, again.costs) == (placed.assignment, placed.costs)
    assert again.placement == placed.placement
