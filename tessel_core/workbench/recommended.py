"""Make of a recommended strategy what other pages open: a program, schedules to compare, and a placement problem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.model import THROUGHPUT, DeviceMesh, LayoutShape, MicroBatchPlan, OperatorGraph, StageLayout
from tessel_core.model.in_flight import GPIPE, ONE_F_ONE_B
from tessel_core.networks.graphs.spec import LAYERS, GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.scheduling import DEFAULT_SCHEDULER, SCHEDULERS, Comparison, Question
from tessel_core.simulation import Trace
from tessel_core.strategies.families import Family, GptWork, NetworkWork, Spec
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.recommendation import Question as Asked
from tessel_core.strategies.strategy import Semantics, Strategy, count_operations, simulate_places, simulate_strategy
from tessel_core.units import counted
from tessel_core.workbench.placing import Placing

MAX_OPERATIONS = 30_000
"""Counted operations of a program that is simulated while a page waits.

With the collectives, which the count leaves out, that is up to 70,000 operations and two seconds of work.
"""
_MAX_DEVICES = 256
_SOURCE = "a recommendation"


@dataclass(frozen=True, eq=False)
class StrategyProgram:
    """The simulated program of a strategy, on all devices or on one device per stage."""

    title: str
    trace: Trace
    mesh: DeviceMesh
    ranks: Ranks | None
    """How the devices are numbered; None where one device stands for all that run its stages."""
    samples: int
    """Samples of the simulated step."""
    notes: tuple[str, ...]
    """The strategy, and what was left out so that the program is small enough, one sentence each."""


def strategy_program(asked: Asked, strategy: Strategy, max_operations: int = MAX_OPERATIONS) -> StrategyProgram:
    """Simulate the strategy operation by operation, on as much of the cluster as `max_operations` allows.

    A program that is too long is simulated on one device for each place of the pipeline, with fewer micro-batches if
    need be.  Raises InputError if the network cannot be cut like this.
    """
    family, spec, mesh = asked.family, asked.spec, asked.mesh
    count = count_operations(family, spec, strategy)
    if count <= max_operations and strategy.devices <= _MAX_DEVICES:
        found = simulate_strategy(family, spec, strategy, mesh)
        title = _title(found.program.name, strategy)
        return StrategyProgram(title, found.trace, mesh, found.ranks, spec.batch, (f"{strategy.summary}.",))
    kept = _micro_batches_within(max_operations, count, strategy)
    short = replace(strategy, micro_batches=kept)
    samples = spec.batch // strategy.micro_batches * kept
    trace = simulate_places(family, family.with_batch(spec, samples), short, mesh)
    notes = [
        f"{strategy.summary}.",
        f"One GPU stands for the {strategy.devices // strategy.pipeline} that run the same stages.",
    ]
    if kept < strategy.micro_batches:
        notes.append(f"The program has {kept} of the {strategy.micro_batches} micro-batches.")
    title = _title(trace.program.name, short)
    return StrategyProgram(title, trace, _sub_mesh(mesh, strategy, tensor=1), None, samples, tuple(notes))


def _title(name: str, strategy: Strategy) -> str:
    return f"{name} D/H/P/K {strategy.data}/{strategy.tensor}/{strategy.pipeline}/{strategy.micro_batches}"


def _micro_batches_within(max_operations: int, count: int, strategy: Strategy) -> int:
    """Return how many micro-batches one replica may have within so many operations on one device per stage.

    `count` is the number of operations of all devices.  The answer is a multiple of the number of pipeline devices, as
    interleaved orders need, and at least 1.
    """
    of_one = count * strategy.pipeline // strategy.devices // strategy.micro_batches
    kept = max(1, max_operations // max(1, of_one))
    whole = max(strategy.pipeline, kept // strategy.pipeline * strategy.pipeline)
    return min(strategy.micro_batches, whole)


def stage_comparison(plan: MicroBatchPlan, strategy: Strategy) -> Comparison:
    """Return the stages under the strategy's own order, 1F1B, GPipe and the search, as far as these suit the plan."""
    names = dict.fromkeys((strategy.schedule, ONE_F_ONE_B, GPIPE, DEFAULT_SCHEDULER))
    suitable = [name for name in names if not SCHEDULERS[name].objection(plan)]
    pairs = (Question(name, plan, strategy.micro_batches, SCHEDULERS[name].config()) for name in suitable)
    return Comparison(tuple(pairs))


def why_not_placed(strategy: Strategy) -> str:
    """Return why the strategy has no placement problem, as one sentence; empty if it has one."""
    for degree, name in ((strategy.context, "context"), (strategy.expert, "expert")):
        if degree > 1:
            return f"A placement knows no {name} parallelism."
    return "The strategy has one stage, so there is nothing to place." if strategy.pipeline == 1 else ""


def placement_note(strategy: Strategy) -> str:
    """Return what a placement leaves out of the strategy, as one sentence; empty if it leaves out nothing."""
    left_out = [f"ZeRO-{strategy.zero}"] if strategy.zero else []
    left_out += ["sequence parallelism"] * (strategy.sequence_parallel and strategy.tensor > 1)
    left_out += ["FP8"] * strategy.fp8 + ["torch.compile"] * strategy.compiled
    clauses = [f"shows one of the {strategy.data} replicas"] if strategy.data > 1 else []
    clauses += [f"leaves out {' and '.join(left_out)}" + ", so memory may not suffice" * bool(strategy.zero)][
        : bool(left_out)
    ]
    return f"Placement {' and '.join(clauses)}." if clauses else ""


def strategy_placing(asked: Asked, strategy: Strategy, name: str) -> Placing:
    """Return the placement problem of one replica: its layers, on groups of its tensor-parallel devices.

    Raises InputError if `why_not_placed` has a reason, or the network has no graph.
    """
    reason = why_not_placed(strategy)
    if reason:
        raise InputError(f"strategy {strategy}", reason.rstrip("."))
    mesh = _sub_mesh(asked.mesh, strategy, tensor=strategy.tensor)
    in_flight = GPIPE if strategy.schedule == GPIPE else ONE_F_ONE_B
    optimizer = "adam-mixed" if asked.spec.dtype != "fp32" else "adam"
    costs = CostOptions(asked.spec.dtype, optimizer, in_flight, strategy.micro_batches, strategy.tensor)
    graph = GraphFile.of(_layer_graph(asked.family, asked.spec, strategy, name))
    placing = Placing(graph, _SOURCE, mesh=MeshFile.of(mesh), mesh_source=_SOURCE, costs=costs)
    several = strategy.stages_per_device
    layout = StageLayout(several, LayoutShape.LOOP) if several > 1 else None
    return placing.wanting(THROUGHPUT, contiguous=True, layout=layout)


def _sub_mesh(mesh: DeviceMesh, strategy: Strategy, *, tensor: int) -> DeviceMesh:
    """Return the devices of the first replica: the first `tensor` ranks at each place of the pipeline, in order."""
    ranks = strategy.ranks(Semantics.DEFAULT)
    workers = [ranks.worker(0, rank, place) for place in range(strategy.pipeline) for rank in range(tensor)]
    devices = tuple(mesh.devices[worker - 1] for worker in workers)
    if devices == mesh.devices:
        return mesh
    names = {device.name for device in devices}
    connections = tuple(each for each in mesh.connections if names.issuperset(each.between))
    return replace(mesh, name=counted(len(devices), "GPU"), devices=devices, connections=connections)


def _layer_graph(family: Family, spec: Spec, strategy: Strategy, name: str) -> OperatorGraph:
    """Return the training graph of one micro-batch, with one operator for each layer and pass."""
    return build_graph(
        family.name,
        replace(
            _graph_spec(family, spec),
            micro_batch=spec.batch // (strategy.data * strategy.micro_batches),
            dtype=spec.dtype,
            training=True,
            recompute=str(strategy.recompute),
            granularity=LAYERS,
        ),
        name,
    )


def _graph_spec(family: Family, spec: Spec) -> GraphSpec:
    """Return the options from which `build_graph` makes the graph of the network."""
    if isinstance(spec, NetworkWork):
        return spec.options
    known = GRAPHS.find(family.name).spec
    sizes: dict[str, Any] = asdict(spec.network if isinstance(spec, GptWork) else spec)  # type: ignore[call-overload]
    names = {field.name for field in fields(known)}
    if isinstance(spec, GptWork):
        sizes["positions"] = spec.network.positions or spec.network.sequence
    found: GraphSpec = known(**{key: value for key, value in sizes.items() if key in names})
    return found
