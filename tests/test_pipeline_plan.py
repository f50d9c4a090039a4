"""A strategy's pipeline as a plan: in the same order it takes the simulated time and memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import BlockKind, DeviceMesh, Schedule
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import Trace
from tessel_core.strategies.families import find_family
from tessel_core.strategies.pipeline_plan import pipeline_plan
from tessel_core.strategies.strategy import Semantics, Simulated, Strategy, equal_devices, simulate_strategy

MLP = find_family("mlp")
UNIFORM = equal_devices(16, 1.4e13, 9e11, 25)
STRATEGIES = (
    Strategy(2, 2, 2, 4, "1f1b"),
    Strategy(1, 1, 4, 8, "1f1b"),
    Strategy(1, 1, 3, 2, "gpipe"),
    Strategy(1, 2, 4, 16, "1f1b"),
    Strategy(2, 1, 2, 4, "1f1b", recompute=Recompute.FULL),
    Strategy(1, 1, 8, 1, "1f1b"),
    Strategy(1, 1, 4, 16),
    Strategy(1, 2, 2, 4, "interleaved", stages_per_device=2),
    Strategy(2, 1, 2, 4, "1f1b", rank_order=("pipeline", "data", "tensor")),
    Strategy(1, 1, 4, 8, "zb-h1"),
    Strategy(1, 2, 4, 16, "zb-h2"),
    Strategy(1, 1, 4, 8, "zb-v", stages_per_device=2),
    Strategy(2, 1, 4, 8, "v-min", stages_per_device=2),
)


def simulated(strategy: Strategy, mesh: DeviceMesh, width: int, semantics: Semantics = Semantics.DEFAULT) -> Simulated:
    return simulate_strategy(MLP, MLP.spec(9, width, 256, "fp16"), strategy, mesh, semantics)


def scheduled(found: Simulated, strategy: Strategy, mesh: DeviceMesh) -> tuple[Schedule, tuple[int, ...]]:
    plan = pipeline_plan(found, strategy, mesh)
    report = solve_schedule(strategy.schedule, plan, strategy.micro_batches)
    assert report.drawable is not None
    assert report.peak_memory is not None
    return report.drawable, report.peak_memory


def pipeline_ends(trace: Trace) -> float:
    """Return the seconds until the last operation of a micro-batch."""
    micro_batch = np.array([op.tag.micro_batch is not None for op in trace.program.ops])[trace.op]
    return float((trace.start + trace.seconds)[micro_batch].max())


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("mesh", [find_mesh("h200-16"), UNIFORM], ids=lambda mesh: mesh.name)
@pytest.mark.parametrize("width", [512, 4096])
def test_the_plan_takes_the_simulated_time_and_memory(strategy: Strategy, mesh: DeviceMesh, width: int) -> None:
    """Times are near, not equal: transfers contend with all-reductions in the simulation and not in the plan.

    Nor does the simulation wait for the sums of gradients before it sends on, which split blocks are shorter beside.
    """
    found = simulated(strategy, mesh, width)
    schedule, peaks = scheduled(found, strategy, mesh)
    assert schedule.makespan / 1e9 == pytest.approx(
        pipeline_ends(found.trace), rel=0.11 if strategy.form.split else 0.04
    )
    workers = [found.ranks.worker(0, 0, place) for place in range(strategy.pipeline)]
    assert peaks == tuple(found.trace.peak_memory[worker - 1] for worker in workers)


def test_one_micro_batch_alone_takes_the_simulated_time_exactly() -> None:
    strategy = Strategy(1, 1, 4, 1, "1f1b")
    for semantics in Semantics:
        found = simulated(strategy, UNIFORM, 512, semantics)
        schedule, _ = scheduled(found, strategy, UNIFORM)
        assert schedule.makespan / 1e9 == pytest.approx(pipeline_ends(found.trace), abs=1e-8)


def test_a_forward_holds_what_its_backward_takes() -> None:
    """With two layers per stage: the inputs of each matmul, except the program's input, and of each activation."""
    strategy, rows, width = Strategy(1, 1, 2, 4, "1f1b"), 64, 512
    found = simulate_strategy(MLP, MLP.spec(4, width, 256, "fp16"), strategy, UNIFORM)
    plan = pipeline_plan(found, strategy, UNIFORM)
    held = {block.name: block.memory // (2 * rows * width) for block in plan.blocks}
    kinds = {block.name: block.kind for block in plan.blocks}
    first = {value for op in found.program.ops for value in op.inputs if _takes(found, op, "backward", 0, 1)}
    made = {value for op in found.program.ops for value in op.outputs if _takes(found, op, "forward", 0, 1)}
    assert held == {"F0": len(first & made), "F1": held["F1"], "B1": -held["F1"], "B0": -held["F0"]}
    assert held["F0"] == 3
    assert kinds["B1"] is BlockKind.BACKWARD


def _takes(found: Simulated, op, phase: str, micro_batch: int, device: int) -> bool:
    here = {found.program.types[value].device for value in (*op.inputs, *op.outputs)} == {device}
    return here and (op.tag.phase, op.tag.micro_batch) == (phase, micro_batch)


def test_capacities_are_those_of_the_mesh() -> None:
    mesh, strategy = find_mesh("h200-16"), Strategy(2, 1, 4, 8, "1f1b")
    plan = pipeline_plan(simulated(strategy, mesh, 512), strategy, mesh)
    assert [device.memory_capacity for device in plan.devices] == [mesh.devices[0].memory_capacity] * 4
    assert (plan.time_unit, plan.memory_unit) == ("ns", "B")


def test_one_stage_is_no_pipeline() -> None:
    strategy = Strategy(data=2, micro_batches=4)
    with pytest.raises(InputError, match="has one stage, so it has no pipeline to schedule"):
        pipeline_plan(simulated(strategy, UNIFORM, 512), strategy, UNIFORM)


def test_replicas_that_differ_have_no_plan_in_common() -> None:
    """Three stages in a row on nodes of two: the replicas cross nodes at different stages."""
    mesh = find_mesh("h200-16")
    mesh = replace(mesh, devices=tuple(replace(device, node=i // 2) for i, device in enumerate(mesh.devices)))
    strategy = Strategy(2, 1, 3, 4, "1f1b", rank_order=("pipeline", "tensor", "data"))
    with pytest.raises(InputError, match="need different times for the same work"):
        pipeline_plan(simulated(strategy, mesh, 512), strategy, mesh)


@pytest.mark.parametrize("order", ["1f1b", "zb-v", "dualpipe"])
def test_inference_goes_round_the_devices_under_every_order(order: str) -> None:
    gpt, mesh, several = find_family("gpt"), find_mesh("h200-2"), 2 if order == "zb-v" else 1
    strategy = Strategy(1, 1, 2, 4, order, stages_per_device=several)
    spec = gpt.spec(layers=4, hidden=64, heads=4, sequence=32, batch=8, mode="prefill")
    plan = pipeline_plan(simulate_strategy(gpt, spec, strategy, mesh), strategy, mesh)
    assert [(block.name, block.devices) for block in plan.blocks] == [(f"F{s}", (s % 2,)) for s in range(2 * several)]
