"""Convert a recommended strategy for other pages: to a program, to schedules to compare, and to a placement problem."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from tessel_core.costs.costed import CostOptions
from tessel_core.errors import InputError
from tessel_core.formats import GraphFile, MeshFile
from tessel_core.model import THROUGHPUT, DeviceMesh, LayoutShape, MicroBatchPlan, OperatorGraph, StageLayout
from tessel_core.model.in_flight import GPIPE, ONE_F_ONE_B
from tessel_core.networks.graphs.spec import LAYERS, GraphSpec
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.scheduling import DEFAULT_SCHEDULER, SCHEDULERS, Comparison, Question
from tessel_core.strategies.families import Family, GptWork, NetworkWork, Spec
from tessel_core.strategies.recommendation import Question as Asked
from tessel_core.strategies.strategy import Semantics, Strategy, count_operations, simulate_places, simulate_strategy
from tessel_core.units import counted
from tessel_core.workbench.looked import Looked
from tessel_core.workbench.placing import Placing

MAX_OPERATIONS = 30_000
"""Largest program that is simulated while a page waits, in operations without collectives.

With collectives, it has up to 70,000 operations, and its simulation takes two seconds.
"""
_MAX_DEVICES = 256
"""Largest number of devices of a program that is simulated on every device."""
_SOURCE = "a recommendation"
_SLOWEST = "Its time is that of the slowest GPU that runs the same stages."


def strategy_program(asked: Asked, strategy: Strategy, max_operations: int = MAX_OPERATIONS) -> Looked:
    """Simulate the strategy operation by operation, with at most about `max_operations` operations.

    A longer program is simulated on one device for each place of the pipeline, and if necessary with fewer
    micro-batches.  The notes say what was simplified.  Raises InputError if the network cannot be cut as the strategy
    asks.
    """
    family, spec, mesh = asked.family, asked.spec, asked.mesh
    count = count_operations(family, spec, strategy)
    if count <= max_operations and strategy.devices <= _MAX_DEVICES:
        found = simulate_strategy(family, spec, strategy, mesh)
        title = _title(found.program.name, strategy)
        about = (f"{strategy.summary}.",)
        return Looked(title, found.trace, mesh, samples=spec.batch, ranks=found.ranks, notes=about)
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
    places, said = _sub_mesh(mesh, strategy, tensor=1), tuple(notes)
    return Looked(title, trace, places, by_mesh=False, samples=samples, costs_note=_SLOWEST, notes=said)


def _title(name: str, strategy: Strategy) -> str:
    return f"{name} D/H/P/K {strategy.data}/{strategy.tensor}/{strategy.pipeline}/{strategy.micro_batches}"


def _micro_batches_within(max_operations: int, count: int, strategy: Strategy) -> int:
    """Return the number of micro-batches for which one device per stage has at most `max_operations` operations.

    `count` is the number of operations of the whole program.  If the number of micro-batches is reduced, it is a
    multiple of the number of pipeline devices, as interleaved orders need.
    """
    of_one = count * strategy.pipeline // strategy.devices // strategy.micro_batches
    kept = max(1, max_operations // max(1, of_one))
    whole = max(strategy.pipeline, kept // strategy.pipeline * strategy.pipeline)
    return min(strategy.micro_batches, whole)


def stage_comparison(plan: MicroBatchPlan, strategy: Strategy) -> Comparison:
    """Return a comparison of four schedules: the strategy's own order, 1F1B, GPipe and the order that a search finds.

    Schedules that do not apply to the plan are left out.
    """
    names = dict.fromkeys((strategy.schedule, ONE_F_ONE_B, GPIPE, DEFAULT_SCHEDULER))
    suitable = [name for name in names if not SCHEDULERS[name].objection(plan)]
    pairs = (Question(name, plan, strategy.micro_batches, SCHEDULERS[name].config()) for name in suitable)
    return Comparison(tuple(pairs))


def why_not_placed(strategy: Strategy) -> str:
    """Return one sentence that says why the strategy has no placement problem; empty if it has one."""
    for degree, name in ((strategy.context, "context"), (strategy.expert, "expert")):
        if degree > 1:
            return f"A placement has no {name} parallelism."
    return "The strategy has one stage, so there is nothing to place." if strategy.pipeline == 1 else ""


def placement_note(strategy: Strategy) -> str:
    """Return one sentence about the parts of the strategy that a placement leaves out; empty if there are none."""
    left_out = [f"ZeRO-{strategy.zero}"] if strategy.zero else []
    left_out += ["sequence parallelism"] * (strategy.sequence_parallel and strategy.tensor > 1)
    left_out += ["FP8"] * strategy.fp8 + ["torch.compile"] * strategy.compiled
    clauses = [f"shows one of the {strategy.data} replicas"] if strategy.data > 1 else []
    clauses += [f"leaves out {' and '.join(left_out)}" + ", so memory may not suffice" * bool(strategy.zero)][
        : bool(left_out)
    ]
    return f"Placement {' and '.join(clauses)}." if clauses else ""


def strategy_placing(asked: Asked, strategy: Strategy, name: str) -> Placing:
    """Return the placement problem of one replica: its layers are placed on groups of tensor-parallel devices.

    Raises InputError if `why_not_placed` has a reason, or if the network has no operator graph.
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
    """Return the mesh of the first replica: its first `tensor` ranks at each place of the pipeline, in order."""
    ranks = strategy.ranks(Semantics.DEFAULT)
    workers = [ranks.worker(0, rank, place) for place in range(strategy.pipeline) for rank in range(tensor)]
    part = mesh.part([worker - 1 for worker in workers])
    return part if part is mesh else replace(part, name=counted(len(workers), "GPU"))


def _layer_graph(family: Family, spec: Spec, strategy: Strategy, name: str) -> OperatorGraph:
    """Return the training graph of one micro-batch, with one operator per layer and pass."""
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
