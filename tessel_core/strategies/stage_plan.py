"""Convert the stages of a strategy to a micro-batch plan, which any scheduler can order."""

from __future__ import annotations

from itertools import accumulate, pairwise

from tessel_core.ir.transforms.pipeline import layers_of_stages
from tessel_core.model import Block, BlockKind, Dependency, DeviceMesh, MicroBatchPlan, PlanDevice
from tessel_core.strategies.block_engine import Staged
from tessel_core.strategies.ranks import Ranks
from tessel_core.units import to_ticks

_KINDS = (BlockKind.FORWARD, BlockKind.BACKWARD, BlockKind.WEIGHT)


def stage_plan_of(name: str, staged: Staged, ranks: Ranks, mesh: DeviceMesh) -> MicroBatchPlan:
    """Return a plan of the stages in nanoseconds and bytes. Each device of it represents all ranks at its position.

    The backward block includes the time to add gradients, which only the first micro-batch does not need. Temporary
    memory of a run counts as static memory. The plan leaves out the reductions over replicas and the optimizer step,
    which come after the pipeline.
    """
    strategy, stages = staged.asked.strategy, staged.stages
    split = strategy.form.split
    bounds = [0, *accumulate(strategy.layout or layers_of_stages(staged.asked.spec.layers, strategy.stages))]
    labels = [
        f"layers {first}–{last - 1}" if last - first > 1 else f"layer {first}" for first, last in pairwise(bounds)
    ]
    blocks, links = list[Block](), list[Dependency]()
    chain = [(0, s) for s in range(len(stages))] + [(1, s) for s in reversed(range(len(stages)))]
    for phase, s in [*chain, *([(2, s) for s in range(len(stages))] if split else [])]:
        seconds = stages[s].seconds[phase] + (stages[s].seconds[3] if phase == 1 + split else 0.0)
        held = (round(stages[s].held), 0 if split else -round(stages[s].held), -round(stages[s].held))[phase]
        device = (staged.device_of[s],)
        blocks.append(Block(f"{'FBW'[phase]}{s}", _KINDS[phase], device, to_ticks(seconds), held, label=labels[s]))
    for (one_phase, one), (phase, s) in pairwise(chain):
        lag = to_ticks(staged.lags[min(one, s)]) if one != s and staged.lags[min(one, s)] else 0
        links.append(Dependency(f"{'FB'[one_phase]}{one}", f"{'FB'[phase]}{s}", lag))
    links += [Dependency(f"B{s}", f"W{s}") for s in range(len(stages)) if split]
    devices = []
    for place in range(strategy.pipeline):
        mine = [stage for s, stage in enumerate(stages) if staged.device_of[s] == place]
        running = max(max(stage.peak) - stage.held for stage in mine)
        first = mesh.devices[ranks.worker_of(0, place) - 1]
        static = round(sum(stage.static for stage in mine) + max(0.0, running))
        devices.append(PlanDevice(first.name, first.memory_capacity, static))
    return MicroBatchPlan(name, tuple(devices), tuple(blocks), tuple(links), "ns", "B")
