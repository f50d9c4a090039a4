"""A placement and a schedule make a program. It means the same as the network, and takes as long as the schedule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from helpers.programs import gpt_inputs, optimizer_inputs, random_inputs, same_meaning
from helpers.seeds import seeds
from helpers.training import mlp_training

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.update import AdamUpdate
from tessel_core.model import Communication, DeviceMesh, Placement, Schedule, Transfers
from tessel_core.networks.gpt import GptSpec, gpt_forward
from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph, network_program
from tessel_core.networks.mlp import MlpSpec
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.planning import plan_of
from tessel_core.planning.placed_program import placed_program
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import simulate

SMALL = {"layers": 3, "hidden": 24, "heads": 4, "sequence": 5, "positions": 7, "vocabulary": 17, "dtype": "fp32"}


def asked(family: str, **changes: Any) -> Any:
    return GRAPHS[family].spec(training=True, **changes)


def network(family: str, spec: GraphSpec, split: bool) -> Distributed:
    return network_program(GRAPHS[family].program, replace(spec, split_weights=split))


def placed_anywhere(
    choose: Random, family: str, spec: GraphSpec, mesh: DeviceMesh, sizes: tuple[int, ...] = (1,)
) -> Placement:
    """Draw a placement on groups of these sizes. Backward operators follow their forward ones."""
    graph, on = costed(build_graph(family, spec), mesh, CostOptions(spec.dtype)), dict[str, tuple[int, ...]]()
    for each in graph.operators:
        anywhere = tuple(choose.sample(range(len(mesh.devices)), choose.choice(sizes)))
        on[each.name] = on[each.forward_of] if each.forward_of else anywhere
    transfers = Transfers(mesh, Communication.OVERLAPPED)
    return Placement(graph, mesh.placement_devices, tuple(on[name] for name in graph.names), transfers)


def optimal(family: str, spec: GraphSpec, mesh: DeviceMesh) -> Placement:
    graph = costed(build_graph(family, spec), mesh, CostOptions(spec.dtype))
    problem = PlacementProblem(graph, mesh.placement_devices, Transfers(mesh, Communication.OVERLAPPED))
    found = solve_placement("dp", problem).solution
    assert found is not None
    return found


def scheduled(placement: Placement, scheduler: str, micro_batches: int, *, split: bool = False) -> Schedule:
    found = solve_schedule(scheduler, plan_of(placement, split_weights=split), micro_batches).drawable
    assert found is not None
    return found


GROUPS = [(1, (1,)), (1, (1, 2, 3)), (2, (2,)), (2, (1,))]
"""Tensor-parallel degrees, and the sizes of the groups on which operators are placed."""
on_groups = pytest.mark.parametrize(
    ("degree", "group_sizes"), GROUPS, ids=["devices", "copies", "shares", "whole groups"]
)


@on_groups
@pytest.mark.parametrize("seed", seeds(6))
def test_a_gpt_placed_anywhere_means_the_same(seed: int, degree: int, group_sizes: tuple[int, ...]) -> None:
    """Losses, every gradient and every weight updated by Adam agree, for any placement and order."""
    choose = Random(seed)
    micro_batch, count, split = choose.randint(1, 2), choose.randint(1, 4), choose.random() < 0.5
    recompute = choose.choice(("none", "none", "selective", "full"))
    spec = asked("gpt", micro_batch=micro_batch, recompute=recompute, tensor_parallel=degree, **SMALL)
    mesh = find_mesh(f"h200-{choose.randint(max(group_sizes), 5)}")
    placement = placed_anywhere(choose, "gpt", spec, mesh, group_sizes)
    schedule = scheduled(placement, choose.choice(("list-scheduling", "sequential", "gpipe")), count, split=split)
    wide = replace(spec, dtype="fp64")
    sizes = GptSpec(3, 24, 4, 17, 5, micro_batch * count, "fp64", 7)
    whole = Gradients()(gpt_forward(sizes))
    found = placed_program(partial(network, "gpt", wide), placement, schedule)
    same_meaning(whole, found, gpt_inputs(whole, sizes, seed), 1e-9)
    whole = AdamUpdate()(whole)
    updated = AdamUpdate()(found)
    same_meaning(whole, updated, optimizer_inputs(whole, sizes, seed), 1e-9)


@on_groups
@pytest.mark.parametrize("seed", seeds(4))
def test_an_mlp_placed_anywhere_means_the_same(seed: int, degree: int, group_sizes: tuple[int, ...]) -> None:
    choose = Random(seed)
    spec = asked("mlp", micro_batch=3, layers=4, width=6, tensor_parallel=degree, dtype="fp32")
    placement = placed_anywhere(choose, "mlp", spec, find_mesh("h200-4"), group_sizes)
    schedule = scheduled(placement, "list-scheduling", 3)
    whole = mlp_training(MlpSpec(4, 6, 9, "fp64"))
    found = placed_program(partial(network, "mlp", replace(spec, dtype="fp64")), placement, schedule)
    given = random_inputs(whole, seed)
    names = {piece.name for piece in found.outputs}
    kept = [place for place, piece in enumerate(whole.outputs) if piece.name in names]  # the graph asks for no d.x
    program = replace(whole.program, outputs=tuple(whole.program.outputs[place] for place in kept))
    same_meaning(replace(whole, program=program, outputs=tuple(whole.outputs[i] for i in kept)), found, given, 1e-9)


@pytest.mark.parametrize("scheduler", ["1f1b", "gpipe", "tessel"])
@pytest.mark.parametrize("micro_batches", [1, 8])
def test_a_program_of_layers_takes_as_long_as_its_schedule(scheduler: str, micro_batches: int) -> None:
    """To half a nanosecond per run. Only one tensor at a time crosses between layers."""
    spec, mesh = replace(GRAPHS["gpt"].presets["gpt2-small"], training=True, granularity="layers"), find_mesh("h200-4")
    placement = optimal("gpt", spec, mesh)
    schedule = scheduled(placement, scheduler, micro_batches)
    found = simulate(placed_program(partial(network, "gpt", spec), placement, schedule).program, mesh)
    assert found.latency == pytest.approx(schedule.makespan / 1e9, abs=1e-9 * len(schedule.start))


@pytest.mark.parametrize(("degree", "group_sizes"), GROUPS[:3], ids=["devices", "copies", "shares"])
@pytest.mark.parametrize("seed", seeds(4))
def test_a_program_takes_at_least_as_long_as_its_schedule(seed: int, degree: int, group_sizes: tuple[int, ...]) -> None:
    """Tensors that cross together wait for each other, which a plan does not model."""
    choose = Random(seed)
    mesh = find_mesh("h200-4")
    small = GRAPHS["gpt"].presets["gpt2-small"]
    spec = replace(small, training=True, layers=3, micro_batch=8, tensor_parallel=degree)
    placement = placed_anywhere(choose, "gpt", spec, mesh, group_sizes)
    # Groups use whole backwards. The plan's halves have fitted times, which differ by up to a thousandth.
    schedule = scheduled(placement, "list-scheduling", 3, split=group_sizes == (1,) and choose.random() < 0.5)
    found = simulate(placed_program(partial(network, "gpt", spec), placement, schedule).program, mesh)
    assert schedule.makespan / 1e9 - 1e-9 * len(schedule.start) <= found.latency <= 1.2 * schedule.makespan / 1e9


def test_a_tensor_comes_from_the_nearest_of_a_group() -> None:
    """If a group spans two nodes, the tensor comes from its device in the receiver's node."""
    spec, mesh = asked("mlp", micro_batch=2, layers=2, width=6, dtype="fp32"), find_mesh("h200-4", 2)
    graph = costed(build_graph("mlp", spec), mesh, CostOptions("fp32"))
    on = tuple((0, 2) if each.name.startswith("layer0") else (3,) for each in graph.operators)
    placement = Placement(graph, mesh.placement_devices, on, Transfers(mesh, Communication.OVERLAPPED))
    found = placed_program(partial(network, "mlp", spec), placement, scheduled(placement, "list-scheduling", 2))
    sends = [op for op in found.program.ops if op.kind == "send"]
    forth = {found.program.types[op.inputs[0]].device for op in sends if op.tag.phase == "forward"}
    assert forth == {3}
    back = [dict(op.attributes)["to"] for op in sends if op.tag.phase == "backward"]
    assert sorted(back) == [1, 1, 3, 3], "both devices of the group take the gradient, once for each micro-batch"


def test_what_does_not_fit_together_is_said_in_one_sentence() -> None:
    mesh = find_mesh("h200-2")
    spec = asked("gpt", micro_batch=1, **SMALL)
    placement = placed_anywhere(Random(1), "gpt", spec, mesh)
    other = placed_anywhere(Random(2), "gpt", spec, mesh)
    schedule = scheduled(placement, "sequential", 2)
    wider = replace(spec, layers=4)
    for made, given, sentence in (
        (spec, other, "schedule: is of another plan: "),
        (wider, placement, "placement: is of another network: it lacks the program's operator 'layer3/attention/norm'"),
    ):
        with pytest.raises(InputError) as error:
            placed_program(partial(network, "gpt", made), given, schedule)
        assert sentence in str(error.value)
        assert "\n" not in str(error.value)
    halved = replace(spec, tensor_parallel=2)
    group = placed_anywhere(Random(1), "gpt", halved, find_mesh("h200-4"), (2, 3))
    with pytest.raises(InputError, match=r"^block F .* runs on 3 devices, but the network is divided over 2$"):
        placed_program(partial(network, "gpt", halved), group, scheduled(group, "sequential", 2))
