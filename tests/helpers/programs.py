"""Distributed programs for tests: chains of unit stages, random inputs, and comparison of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Op, Program
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.expansion import Degrees, expanded
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.verify import verify
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
from tessel_core.networks.gpt import GptSpec
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation.costs import MeshCosts


def chain_plan(stages: int) -> MicroBatchPlan:
    """Return a V of `stages` stages, with one step per direction."""
    blocks = [Block(f"F{s}", BlockKind.FORWARD, (s,), 1) for s in range(stages)]
    blocks += [Block(f"B{s}", BlockKind.BACKWARD, (s,), 1) for s in reversed(range(stages))]
    links = tuple(Dependency(one.name, other.name) for one, other in pairwise(blocks))
    return MicroBatchPlan("chain", tuple(PlanDevice(f"s{s}") for s in range(stages)), tuple(blocks), links)


def chain_schedule(stages: int, micro_batches: int, scheduler: str = "pipedream") -> Schedule:
    """Return the chain in a published order."""
    found = solve_schedule(scheduler, chain_plan(stages), micro_batches).solution
    assert found is not None
    return found


def spread(
    model: Distributed,
    data: int,
    tensor: int,
    stages: int,
    micro_batches: int,
    scheduler: str = "pipedream",
    step: Callable[[Distributed], Distributed] | None = None,
) -> Distributed:
    """Distribute the model over data x tensor x stages devices, optionally with an optimizer step."""
    degrees = Degrees(tensor, data=data)
    model = TensorParallel(tensor).of_one(model)
    if stages > 1 or micro_batches > 1:
        model = Pipeline(chain_schedule(stages, micro_batches, scheduler))(model)
    model = DataParallel(data).of_one(model, degrees)
    return expanded(model if step is None else step(model), degrees)


def random_inputs(model: Distributed, seed: int) -> dict[str, Array]:
    """Return an array for every input of an undistributed model; integers are its batch size.

    In fp16 all numbers are positive, because rounding of a sum near 0 could flip a ReLU.
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


def gpt_inputs(model: Distributed, spec: GptSpec, seed: int, context: int = 0) -> dict[str, Array]:
    """Return an array for every input of a GPT: tokens, positions from `context`, weights and caches."""
    draw, program, found = np.random.default_rng(seed), model.program, {}
    for value, piece in model.piece_of.items():
        kind, name = program.types[value], piece.name
        if name in ("tokens", "targets"):
            found[name] = draw.integers(0, spec.vocabulary, kind.shape)
        elif name == "positions":
            found[name] = np.arange(context, context + kind.elements)
        elif name == "n":
            found[name] = np.array(spec.batch * spec.sequence)
        else:
            found[name] = draw.normal(1.0 if name.endswith("scale") else 0.0, 0.2, kind.shape)
    return found


def optimizer_inputs(model: Distributed, spec: GptSpec, seed: int) -> dict[str, Array]:
    """Return `gpt_inputs` of a training step with Adam, whose state is zero and whose master weights equal the
    weights."""
    found = gpt_inputs(model, spec, seed)
    for name in found:
        base, _, what = name.rpartition(".")
        if name == "step":
            found[name] = np.array(1)
        elif what in ("mean", "square", "master") and base in found:
            found[name] = found[base].copy() if what == "master" else np.zeros_like(found[name])
    return found


def gpt_parameters(spec: GptSpec) -> int:
    """Return the parameters: 12 h² + 13 h per layer.

    Token embedding and output projection count twice, unlike in papers.
    """
    rows = 2 * spec.vocabulary + spec.sequence + 2
    return spec.layers * (12 * spec.hidden**2 + 13 * spec.hidden) + rows * spec.hidden


def small_gpt(layers: int, batch: int, dtype: str = "fp32") -> GptSpec:
    """Return a GPT with 12 heads of size 2, divisible by 1, 2, 3 and 4."""
    return GptSpec(layers, hidden=24, heads=12, vocabulary=17, sequence=5, batch=batch, dtype=dtype)


def products(program: Program, phase: str, vocabulary: int = 0) -> float:
    """Return FLOPs of the matrix products and attentions of a phase; the output projection is phase `head`."""
    total = 0.0
    for op in program.ops:
        head = op.kind == "matmul" and program.types[op.inputs[1]].shape[-1] == vocabulary
        counted = op.kind.startswith(("matmul", "linear", "attention"))
        if counted and (head if phase == "head" else op.tag.phase == phase):
            types = program.types_of(op.inputs), program.types_of(op.outputs)
            total += find_operator(op.kind).work(*types, dict(op.attributes)).flops
    return total


def same_meaning(original: Distributed, changed: Distributed, given: Mapping[str, Array], tolerance: float) -> None:
    """Assert that every output is its shard of the original output, within a tolerance relative to its largest
    number."""
    verify(changed.program)
    whole = {piece.name: array for piece, array in original.run(given)}
    found = changed.run(given)
    assert {piece.name for piece, _ in found} == set(whole)
    for piece, array in found:
        wanted = piece.of(whole[piece.name])
        assert array.shape == wanted.shape
        assert np.abs(array - wanted).max() <= tolerance * max(1e-3, np.abs(wanted).max()), piece


def uniform_mesh(workers: int, gigabits: float = 25.0) -> DeviceMesh:
    """Return a mesh of a host and `workers` workers with equal links, as in DistIR's experiments."""
    devices = [Device(f"d{i}", "gpu", i, None, (PeakRate("fp32", 1.4e13),), 9e11) for i in range(workers + 1)]
    return DeviceMesh("uniform", tuple(devices), default_link=Link(gigabits * 1.25e8))


def uniform_workers(count: int) -> MeshCosts:
    """Return costs of workers in one node without a host."""
    found = tuple(
        Device(f"d{i}", "gpu", 0, None, (PeakRate("fp32", 1e12), PeakRate("fp16", 1e12)), 1e12) for i in range(count)
    )
    return MeshCosts(DeviceMesh("workers", found, same_node_link=Link(1e11, 1e-6)))


def stream_by_hand(program: Program, op: Op) -> str:
    """Return the name of the stream of an operation: computing, a direction between two devices, or a group."""
    if not find_operator(op.kind).pattern:
        return ""
    devices = [program.types[value].device for value in (*op.inputs, *op.outputs)]
    if op.kind == "send":
        return f"{devices[0]} to {devices[1]}"
    return f"among {sorted(set(devices))}"
