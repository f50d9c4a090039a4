"""Convert the pipeline of a simulated strategy to a micro-batch plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.ir.program import UNTAGGED
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.pipeline import stage_runs
from tessel_core.model import Block, BlockKind, Dependency, DeviceMesh, MicroBatchPlan, PlanDevice
from tessel_core.simulation import Trace
from tessel_core.simulation.live_memory import owners
from tessel_core.strategies.orders import LOOP, StageForm, stage_order
from tessel_core.strategies.ranks import Ranks
from tessel_core.strategies.strategy import Simulated, Strategy
from tessel_core.units import show_time, to_ticks

_TIME_TOLERANCE = 1e-6
"""Two times count as equal if they differ by less than this fraction, which comes from rounding."""
_KINDS = {"forward": BlockKind.FORWARD, "backward": BlockKind.BACKWARD, WEIGHT_PHASE: BlockKind.WEIGHT}
"""Kind of block for each phase. Operations of other phases belong to no micro-batch."""

Run = tuple[BlockKind, int]
"""Kind of a block, and its stage."""


@dataclass(frozen=True)
class _Costs:
    """Mean seconds per micro-batch in one group of devices that together have all stages."""

    busy: dict[Run, float] = field(default_factory=lambda: defaultdict(float))
    lag: dict[tuple[Run, Run], float] = field(default_factory=lambda: defaultdict(float))


def pipeline_plan(found: Simulated, strategy: Strategy, mesh: DeviceMesh) -> MicroBatchPlan:
    """Return a plan of the stages in nanoseconds and bytes. Each device of it represents all devices with the same
    stages.

    The duration of a block is the mean time in which its stage is busy with a micro-batch. Transfers between stages are
    lags. A block acquires memory for the values that later blocks of its micro-batch need. All other memory is static
    memory of the device: weights, gradients, and temporary memory of a run. Its size is chosen so that, in the order of
    the strategy, the plan has the same peaks as the simulation. The plan leaves out the optimizer step and the
    reductions over replicas, which come after the pipeline.

    Raises InputError for a single stage, for orders with two copies of the network, and if the groups of devices that
    run a stage need different times.
    """
    stages, devices, trace = strategy.stages, strategy.pipeline, found.trace
    if stages == 1:
        raise InputError(f"strategy {strategy}", "has one stage, so it has no pipeline to schedule")
    if _form(found.trace, strategy).copies > 1:
        raise InputError(f"strategy {strategy}", "runs two copies of the network, which one plan cannot describe")
    groups = _costs(trace, found.ranks, strategy)
    _check_alike(groups, strategy)
    down = [(BlockKind.FORWARD, stage) for stage in range(stages)]
    up = [(BlockKind.BACKWARD, stage) for stage in reversed(range(stages))]
    after = [(BlockKind.WEIGHT, stage) for stage in range(stages)]
    runs = [run for run in (*down, *up, *after) if run in groups[0].busy]
    workers = [found.ranks.worker(0, 0, place) for place in range(devices)]
    held = _held(trace, workers, strategy)
    blocks = []
    for kind, stage in runs:
        duration, device = to_ticks(groups[0].busy[kind, stage]), _form(trace, strategy).device_of(stage, devices)
        blocks.append(Block(_name((kind, stage)), kind, (device,), duration, held[kind, stage]))
    static = _static(trace, workers, strategy, held)
    places = [mesh.devices[worker - 1] for worker in workers]
    plan_devices = [PlanDevice(each.name, each.memory_capacity, static[p]) for p, each in enumerate(places)]
    several = f"x{strategy.stages_per_device}" if strategy.stages_per_device > 1 else ""
    context = f" C{strategy.context}" if strategy.context > 1 else ""
    degrees = f"D{strategy.data}{context} H{strategy.tensor} P{devices}{several} K{strategy.micro_batches}"
    name = f"{found.program.name} {degrees}"
    return MicroBatchPlan(name, tuple(plan_devices), tuple(blocks), _links(runs, groups[0]), "ns", "B")


def _form(trace: Trace, strategy: Strategy) -> StageForm:
    """Return the form of the stages of the simulated program. In inference, stages always go around the devices."""
    return strategy.form if trace.program.is_training else LOOP


def _costs(trace: Trace, ranks: Ranks, strategy: Strategy) -> list[_Costs]:
    """Return the costs of each group of devices that together have all stages."""
    parts = strategy.micro_batches
    chains = ranks.groups("pipeline")
    group_of = {worker: group for group, chain in enumerate(chains) for worker in chain}
    found = [_Costs() for _ in chains]
    spans: dict[tuple[int, Run, int], list[tuple[float, float]]] = defaultdict(list)
    columns = (trace.op.tolist(), trace.device.tolist(), trace.start.tolist(), trace.seconds.tolist())
    for number, device, start, seconds in zip(*columns, strict=True):
        op = trace.program.ops[number]
        kind, part = _KINDS.get(op.tag.phase), op.tag.micro_batch
        if kind is None or part is None or op.tag.stage is None or not device:
            continue
        group, stage = group_of[device], op.tag.stage
        if op.kind != "send":
            spans[group, (kind, stage), part].append((start, start + seconds))
        elif device == trace.program.types[op.inputs[0]].device:
            place = ranks.coordinate(trace.program.types[op.outputs[0]].device, "pipeline")
            # The receiver is the next stage on the target device, in the direction of the pass.
            way, to = (1, stage + 1) if kind is BlockKind.FORWARD else (-1, stage - 1)
            while _form(trace, strategy).device_of(to, strategy.pipeline) != place:
                to += way
            found[group].lag[(kind, stage), (kind, to)] += seconds / parts
    for (group, run, _), each in spans.items():
        found[group].busy[run] += covered(each) / parts
    return found


def covered(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of the spans in seconds."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _check_alike(groups: list[_Costs], strategy: Strategy) -> None:
    first = groups[0]
    for each in groups[1:]:
        pairs = [(first.busy[run], each.busy[run]) for run in first.busy]
        pairs += [(first.lag[way], each.lag[way]) for way in first.lag]
        for one, other in pairs:
            if not math.isclose(one, other, rel_tol=_TIME_TOLERANCE, abs_tol=1e-12):
                times = " and ".join(show_time(seconds, "s") for seconds in sorted((one, other)))
                why = f"its groups of devices need different times for the same work, {times}"
                raise InputError(f"strategy {strategy}", f"{why}, which one plan cannot describe")


def _held(trace: Trace, workers: list[int], strategy: Strategy) -> dict[Run, int]:
    """Return the change of memory by each block in bytes, averaged over micro-batches.

    A block acquires the values that later blocks of its micro-batch need, rounded up. It releases the values that no
    later block needs.
    """
    program, owner, maker = trace.program, owners(trace.program).tolist(), trace.made_by.tolist()
    mine, last = set(workers), dict[int, Run]()
    for op in program.ops:
        kind, stage = _KINDS.get(op.tag.phase), op.tag.stage
        if kind not in (None, BlockKind.FORWARD) and stage is not None:
            last |= {owner[value]: (kind, stage) for value in op.inputs if program.types[value].device in mine}
    found: dict[tuple[Run, Run], int] = defaultdict(int)
    for value, run in last.items():
        tag = program.ops[maker[value]].tag if maker[value] >= 0 else UNTAGGED
        kind = _KINDS.get(tag.phase)
        if kind not in (None, run[0]) and (kind, run[0]) != (BlockKind.WEIGHT, BlockKind.BACKWARD):
            found[(kind, run[1]), run] += program.types[value].bytes
    held = defaultdict[Run, int](int)
    for (one, other), amount in found.items():
        each = -(-amount // strategy.micro_batches)
        held[one] += each
        held[other] -= each
    return held


def _static(trace: Trace, workers: list[int], strategy: Strategy, held: Mapping[Run, int]) -> list[int]:
    """Return the static memory of each device: its peak minus the largest memory of micro-batches in flight."""
    running, most = [0] * strategy.pipeline, [0] * strategy.pipeline
    training = trace.program.is_training
    shape = strategy.pipeline, strategy.micro_batches, training, strategy.stages_per_device
    for _, stage, kind, _ in stage_runs(stage_order(strategy.schedule, *shape)):
        device = _form(trace, strategy).device_of(stage, strategy.pipeline)
        running[device] += held[kind, stage]
        most[device] = max(most[device], running[device])
    peaks = dict(zip(trace.devices, trace.peak_memory, strict=True))
    return [max(0, peaks[worker] - held_then) for worker, held_then in zip(workers, most, strict=True)]


def _links(runs: list[Run], costs: _Costs) -> tuple[Dependency, ...]:
    """Return the dependencies of the blocks.

    A block depends on the block of the previous stage. If tensors are sent, it depends on their senders. A weight block
    depends on its backward block.
    """
    chain = [run for run in runs if run[0] is not BlockKind.WEIGHT]
    after = [((BlockKind.BACKWARD, stage), (kind, stage)) for kind, stage in runs if kind is BlockKind.WEIGHT]
    lags = dict.fromkeys([*pairwise(chain), *after], 0.0) | dict(costs.lag)
    return tuple(
        Dependency(_name(one), _name(other), to_ticks(lag) if lag else 0) for (one, other), lag in lags.items()
    )


def _name(run: Run) -> str:
    return f"{run[0][0].upper()}{run[1]}"
