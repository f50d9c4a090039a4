"""Simulations with and without overlap, with DistIR semantics, and of schedules."""

from __future__ import annotations

from collections.abc import Callable

from helpers.plans import random_plan
from helpers.programs import spread, uniform_mesh
from helpers.training import mlp_training
from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.program import Program
from tessel_core.ir.transforms.update import SgdUpdate
from tessel_core.networks.mlp import MlpSpec
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation import Trace, simulate
from tessel_core.simulation.distir_rules import DistIrCosts


def trained(data: int, tensor: int, stages: int, micro_batches: int, layers: int = 4) -> Program:
    """Return the program of a training step of a small MLP."""
    model = mlp_training(MlpSpec(layers, 64, 32, "fp32"))
    return SgdUpdate()(spread(model, data, tensor, stages, micro_batches)).program


def by_plan(seed: int) -> Trace:
    """Simulate a random plan with three micro-batches one after another."""
    schedule = solve_schedule("sequential", random_plan(seed), 3).drawable
    assert schedule is not None
    return simulate(schedule_program(schedule))


SIMULATIONS: dict[str, Callable[[], Trace]] = {
    "streams": lambda: simulate(trained(2, 1, 2, 4), find_mesh("h200-8")),
    "one stream": lambda: simulate(trained(1, 2, 2, 2), find_mesh("h200-8"), overlap=False),
    "distir": lambda: simulate(trained(2, 2, 2, 4), costs=DistIrCosts(uniform_mesh(8)), compat="distir"),
    **{f"plan {seed}": lambda seed=seed: by_plan(seed) for seed in range(12)},  # type: ignore[misc]
}
