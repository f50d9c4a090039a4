"""Distributed programs for tests: chains of unit stages, and what a program means."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.transforms import DataParallel, Pipeline, TensorParallel
from tessel_core.model import (
    Block,
    BlockKind,
    Dependency,
    Device,
    DeviceMesh,
    Link,
    MicroBatchPlan,
    PeakRate,
    PlanDevice,
    Schedule,
)
from tessel_core.scheduling import solve_schedule


def chain_plan(stages: int) -> MicroBatchPlan:
    """A V of so many stages, each direction one step."""
    blocks = [Block(f"F{s}", BlockKind.FORWARD, (s,), 1) for s in range(stages)]
    blocks += [Block(f"B{s}", BlockKind.BACKWARD, (s,), 1) for s in reversed(range(stages))]
    links = tuple(Dependency(one.name, other.name) for one, other in pairwise(blocks))
    return MicroBatchPlan("chain", tuple(PlanDevice(f"s{s}") for s in range(stages)), tuple(blocks), links)


def chain_schedule(stages: int, micro_batches: int, scheduler: str = "pipedream") -> Schedule:
    """The chain under a published order."""
    found = solve_schedule(scheduler, chain_plan(stages), micro_batches).solution
    assert found is not None
    return found


def spread(
    model: Distributed, data: int, tensor: int, stages: int, micro_batches: int, scheduler: str = "pipedream"
) -> Distributed:
    """The model on data x tensor x stages devices."""
    model = TensorParallel(tensor)(model)
    if stages > 1 or micro_batches > 1:
        model = Pipeline(chain_schedule(stages, micro_batches, scheduler))(model)
    return DataParallel(data)(model)


def random_inputs(model: Distributed, seed: int) -> dict[str, Array]:
    """An array for every input of an undistributed model; integers are its batch size.

    In fp16 all are positive: a sum near 0 in another order would change sides of a ReLU by its rounding alone.
    """
    draw, program = np.random.default_rng(seed), model.program
    batch = program.types[program.inputs[0]].shape[0]
    found = {}
    for value, piece in model.piece_of.items():
        kind = program.types[value]
        normal = draw.normal(0, 0.5, kind.shape)
        normal = abs(normal) / 4 if kind.dtype == "fp16" else normal
        found[piece.name] = np.array(batch) if kind.dtype.startswith("int") else normal
    return found


def uniform_mesh(workers: int, gigabits: float = 25.0) -> DeviceMesh:
    """A host and so many workers, all pairs equally linked, as in the anchors' agreement table."""
    devices = [Device(f"d{i}", "gpu", i, None, (PeakRate("fp32", 1.4e13),), 9e11) for i in range(workers + 1)]
    return DeviceMesh("uniform", tuple(devices), default_link=Link(gigabits * 1.25e8))
