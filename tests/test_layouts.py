"""Layouts with several stages per device: brute force on small graphs, memory of schedules, and Megatron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import pytest
from helpers.graphs import random_graph
from helpers.layouts import all_stages, device_of, least_layout_load
from helpers.seeds import seeds

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats.megatron_layout import layout_text, read_layout
from tessel_core.model import (
    Communication,
    Device,
    DeviceMesh,
    DevicePool,
    DeviceTime,
    Edge,
    InFlight,
    LayoutShape,
    Link,
    MemoryProfile,
    Operator,
    OperatorGraph,
    Placement,
    PlacementLoads,
    PlacementReport,
    StageLayout,
    Status,
)
from tessel_core.model.layout import layout_of
from tessel_core.placement import PlacementProblem, find_placer, solve_placement
from tessel_core.placement.by_layer import place_by_layer, stage_letters
from tessel_core.placement.layout_bound import spread_freely
from tessel_core.placement.layout_task import LayoutTask, cut_evenly
from tessel_core.placement.layouts import LayoutConfig
from tessel_core.planning import plan_of
from tessel_core.rules import check_layout, check_placement, check_schedule
from tessel_core.scheduling import solve_schedule

SIZES = ((2, 2), (2, 3), (3, 2), (1, 3))
"""Devices and stages per device of small cases."""
CASES = [(seed, shape, *SIZES[seed % len(SIZES)]) for seed in seeds(200) for shape in LayoutShape]
MS = 1e-3


def solved(problem: PlacementProblem) -> PlacementReport:
    return solve_placement("layout", problem, LayoutConfig(time_limit=5, workers=1))


def network(times: Sequence[float], memory: Sequence[tuple[int, int]], *, weights_apart: bool = False) -> OperatorGraph:
    """Return a chain of layers in training, with (weights, activations) each. The backward takes twice the time."""
    operators, count = list[Operator](), len(times)
    names = ["embedding", *(f"layer{i}" for i in range(count - 2)), "head"]
    for name, time, (weights, kept) in zip(names, times, memory, strict=True):
        took = (DeviceTime("gpu", time * MS),)
        operators.append(Operator(f"{name}/f", times=took, weight_bytes=weights, activation_bytes=kept, output_bytes=8))
        parts = ("b", "w") if weights_apart else ("b",)
        for part in parts:
            kind = "matmul_weight_gradient" if part == "w" else "matmul"
            back = (DeviceTime("gpu", 2 * time * MS / len(parts)),)
            operators.append(
                Operator(f"{name}/{part}", kind, times=back, backward=True, forward_of=f"{name}/f", output_bytes=8)
            )
    edges = [Edge(f"{one}/f", f"{other}/f") for one, other in pairwise(names)]
    edges += [Edge(f"{other}/b", f"{one}/b") for one, other in pairwise(names)]
    edges += [Edge(f"{name}/b", f"{name}/w") for name in names if weights_apart]
    return OperatorGraph("network", tuple(operators), tuple(edges))


def mesh(devices: int, capacity: int | None = None) -> DeviceMesh:
    link = Link(1e9, 1e-6)
    return DeviceMesh("mesh", tuple(Device(f"gpu{i}", "gpu", 0, capacity) for i in range(devices)), same_node_link=link)


def asked(graph: OperatorGraph, on: DeviceMesh | DevicePool, layout: StageLayout) -> PlacementProblem:
    if isinstance(on, DevicePool):
        return replace(PlacementProblem.on_pool(graph, on), layout=layout)
    return replace(PlacementProblem.on_mesh(graph, on, Communication.OVERLAPPED), layout=layout)


@pytest.mark.parametrize(("seed", "shape", "devices", "stages"), CASES)
def test_nothing_is_better_than_the_layout_found(seed: int, shape: LayoutShape, devices: int, stages: int) -> None:
    graph = random_graph(seed, most=6)
    pool = DevicePool(devices, int(seed % 5 == 0), (None, None, 8, 6)[seed % 7 % 4])
    best = least_layout_load(graph, pool, shape, stages)
    try:
        report = solved(asked(graph, pool, StageLayout(stages, shape)))
    except InputError:  # an operator with a time on no device
        report = None
    if best is not None:
        assert report is not None
        assert report.status is Status.PROVED_OPTIMAL
        assert float(report.objective or 0) == pytest.approx(best, abs=1e-9)
    elif report is not None:
        assert (report.status, report.solution) == (Status.INFEASIBLE, None)
        assert report.reason


@pytest.mark.parametrize(("seed", "shape", "devices", "stages"), CASES[: len(CASES) // 2])
def test_what_stages_hold_in_flight_limits_a_layout(seed: int, shape: LayoutShape, devices: int, stages: int) -> None:
    """Every cut of a chain of six layers with random times and bytes, with the memory that the referee counts."""
    choose = Random(seed)
    graph = network(
        [choose.choice((1, 2, 3, 5)) for _ in range(6)],
        [(choose.choice((0, 10, 40)), choose.choice((1, 2, 8))) for _ in range(6)],
    )
    layout, on = StageLayout(stages, shape), mesh(devices, choose.choice((60, 100, 150)))
    problem, best = asked(graph, on, layout), inf
    chain = [device_of(shape, stage, devices) for stage in range(stages * devices)]
    for kept in all_stages(graph, len(chain)):
        placement = problem.placement([(chain[stage],) for stage in kept], kept)
        if not problem.violations(placement):
            best = min(best, PlacementLoads.of(placement).largest)
    report = solved(problem)
    if best == inf:
        assert report.status is Status.INFEASIBLE
        if report.least_memory is not None:
            assert solved(asked(graph, mesh(devices, report.least_memory), layout)).solution is not None
    else:
        assert report.status is Status.PROVED_OPTIMAL
        assert float(report.objective or 0) == pytest.approx(best)


@pytest.mark.parametrize("shape", LayoutShape)
@pytest.mark.parametrize("seed", seeds(20))
def test_the_bound_without_stages_is_one(seed: int, shape: LayoutShape) -> None:
    graph, pool, layout = random_graph(seed, most=6), DevicePool(2), StageLayout(2, shape)
    best = least_layout_load(graph, pool, shape, 2)
    if best is not None:
        found = spread_freely(LayoutTask.of(asked(graph, pool, layout)), 100.0, Control())
        assert found is not None
        assert found.load <= best + 1e-9


def llama(devices: int = 8) -> PlacementProblem:
    """Return a graph like Llama-3 70B with four devices per stage: 80 equal layers, and a head of 1.9 layers."""
    times = [0.03, *[1.0] * 80, 1.9]
    return asked(network(times, [(1, 0)] * 82), mesh(devices), StageLayout(5))


def test_eighty_layers_in_five_stages_per_device_are_proved_and_no_worse_than_a_recipe() -> None:
    """With ten layers per device, the head would have nine and one device eleven. No layout avoids this."""
    problem = llama()
    report = solved(problem)
    assert report.status is Status.PROVED_OPTIMAL
    assert float(report.objective or 0) == pytest.approx(3 * 11 * MS)
    assert report.solution is not None
    recipe = place_by_layer(problem.graph, read_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"), range(8))
    assert float(report.objective or 0) <= PlacementLoads.of(problem.placement(recipe)).largest * (1 + 1e-9)
    letters = stage_letters(report.solution)
    assert read_layout(layout_text(letters)) == letters
    assert (len(letters), "".join(letters).count("t")) == (40, 80)
    assert place_by_layer(problem.graph, letters, range(8)) == report.solution.assignment
    stages = [stage.count("t") + 2 * stage.count("L") for stage in letters]
    assert max(stages) <= 3, "stages are as even as the loads allow"


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize(("devices", "stages"), [(2, 2), (3, 2), (2, 4), (4, 3)])
def test_a_loop_holds_what_interleaved_1f1b_holds(seed: int, devices: int, stages: int) -> None:
    choose, count = Random(seed), devices * stages + 3
    graph = network([choose.randint(1, 9) for _ in range(count)], [(5, choose.randint(0, 50)) for _ in range(count)])
    report = solved(asked(graph, mesh(devices, 10**6), StageLayout(stages)))
    assert report.solution is not None
    schedule = solve_schedule("interleaved", plan_of(report.solution), 4 * devices * stages).solution
    assert schedule is not None
    assert MemoryProfile.of(schedule).peaks == pytest.approx(report.solution.memory)


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_a_v_holds_at_least_what_zb_v_holds(seed: int, devices: int) -> None:
    choose, count = Random(seed), 2 * devices + 3
    sizes = [(5, choose.randint(0, 50)) for _ in range(count)]
    graph = network([choose.randint(1, 9) for _ in range(count)], sizes, weights_apart=True)
    report = solved(asked(graph, mesh(devices, 10**6), StageLayout(2, LayoutShape.V)))
    assert report.solution is not None
    plan = plan_of(report.solution, split_weights=True)
    assert len(plan.blocks) == 3 * 2 * devices
    schedule = solve_schedule("zb-v", plan, 8 * devices).solution
    assert schedule is not None
    held = report.solution.memory
    assert all(peak <= most for peak, most in zip(MemoryProfile.of(schedule).peaks, held, strict=True))


@pytest.mark.parametrize("shape", LayoutShape)
def test_a_layout_that_just_fits_is_run_within_capacity(shape: LayoutShape) -> None:
    graph, layout = network([1] * 9, [(5, 7)] * 9), StageLayout(2, shape)
    roomy = solved(asked(graph, mesh(2), layout)).solution
    assert roomy is not None
    tight = solved(asked(graph, mesh(2, int(max(roomy.memory))), layout))
    assert tight.solution is not None
    found = solve_schedule("interleaved" if shape is LayoutShape.LOOP else "tessel", plan_of(tight.solution), 8)
    assert found.solution is not None
    assert not check_schedule(found.solution)


def test_too_little_memory_is_infeasible_and_the_layout_that_needs_more_is_shown() -> None:
    graph = network([1] * 9, [(5, 7)] * 9)
    report = solved(asked(graph, mesh(2, 60), StageLayout(2)))
    assert report.status is Status.INFEASIBLE
    assert "bytes on each device would be enough" in report.reason
    assert report.relaxed_solution is not None
    assert {each.rule for each in check_placement(report.relaxed_solution)} == {"memory"}
    enough = report.least_memory
    assert enough is not None
    assert solved(asked(graph, mesh(2, enough), StageLayout(2))).status is Status.PROVED_OPTIMAL
    assert solved(asked(graph, mesh(2, enough - 1), StageLayout(2))).status is Status.INFEASIBLE


def test_more_stages_than_operators_and_no_accelerators_are_infeasible() -> None:
    graph = network([1, 1, 1], [(0, 0)] * 3)
    assert "3 stages at most" in solved(asked(graph, mesh(2), StageLayout(2))).reason
    assert "no accelerators" in solved(asked(random_graph(1), DevicePool(0, 2), StageLayout(2))).reason


def staged(graph: OperatorGraph, devices: int, stages: Sequence[int], shape: LayoutShape) -> Placement:
    """Return one operator per group of three in each stage."""
    per_device = (1 + max(stages)) // devices
    problem = asked(graph, mesh(devices), StageLayout(per_device, shape))
    numbers = [stage for stage in stages for _ in range(2)]
    return problem.placement([(device_of(shape, stage, devices),) for stage in numbers], numbers)


def test_the_referee_knows_stages_that_turn_back_are_missing_or_elsewhere() -> None:
    graph = network([1] * 4, [(0, 0)] * 4)
    legal = staged(graph, 2, (0, 1, 2, 3), LayoutShape.V)
    assert check_placement(legal) == []
    assert not list(check_layout(legal, StageLayout(2, LayoutShape.V)))
    assert layout_of(legal) == StageLayout(2, LayoutShape.V)
    for stages, why in (
        ((0, 2, 1, 3), "but follows"),
        ((0, 1, 1, 3), "has no operators"),
    ):
        broken = check_placement(staged(graph, 2, stages, LayoutShape.V))
        assert {each.rule for each in broken} == {"stages"}
        assert any(why in each.why for each in broken)
    (looped,) = check_layout(legal, StageLayout(2))
    assert (looped.rule, looped.where) == ("layout", "stage 2")
    (longer,) = check_layout(legal, StageLayout(3, LayoutShape.V))
    assert "has 4 stages, but the layout has 6" in longer.why
    (none,) = check_layout(replace(legal, stages=None), StageLayout(2))
    assert none.why == "has no stages"


def test_a_problem_without_a_layout_and_one_with_are_for_different_placers() -> None:
    problem = asked(network([1] * 4, [(0, 0)] * 4), mesh(2), StageLayout(2))
    assert find_placer("dp").why_not(problem) == "places one stage per device"
    assert find_placer("layout").why_not(replace(problem, layout=None)) == "needs a number of stages per device"
    with pytest.raises(InputError, match="several stages per device"):
        replace(problem, contiguous=False)
    with pytest.raises(InputError, match="must be"):
        StageLayout(1)


@pytest.mark.parametrize(
    ("stages", "shape", "why"),
    [
        ((0, 1, 2, 3), LayoutShape.V, "loop over the ranks"),
        ((0, 0, 1, 2, 3), LayoutShape.LOOP, ""),
    ],
)
def test_what_a_layout_string_cannot_say_is_refused(stages: Sequence[int], shape: LayoutShape, why: str) -> None:
    placement = staged(network([1] * len(stages), [(0, 0)] * len(stages)), 2, stages, shape)
    if why:
        with pytest.raises(InputError, match=why):
            stage_letters(placement)
    else:
        assert stage_letters(placement) == ("Et", "t", "t", "L")


def test_a_cut_that_moves_never_leaves_a_stage_empty() -> None:
    task = LayoutTask.of(llama())
    found = cut_evenly(task, Control())
    assert sorted(set(found)) == list(range(40))
    assert list(found) == sorted(found)


def test_other_rules_hold_a_number_or_all_micro_batches_on_every_stage() -> None:
    layout = StageLayout(2)
    assert layout.moments(0, 2, InFlight("gpipe", 5)) == ((5, 5),)
    assert layout.moments(0, 2, InFlight(3)) == ((3, 3),)
    assert layout.moments(0, 2, InFlight("1f1b", 2)) == ((2, 2), (2, 1))
    graph = network([1] * 9, [(5, 7)] * 9)
    problem = replace(asked(graph, mesh(2, 10**6), layout), in_flight=InFlight("gpipe", 4))
    report = solved(problem)
    assert report.solution is not None
    assert sum(report.solution.memory) == 9 * 4 * 7 + sum(report.solution.lasting_bytes)
