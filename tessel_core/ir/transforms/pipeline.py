"""Pipeline parallelism: stages of layers process micro-batches in the order of a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, Piece
from tessel_core.ir.transforms.gradients import WEIGHT_PHASE
from tessel_core.ir.transforms.mirror import mirrored, with_parts_summed
from tessel_core.ir.transforms.partition import Partition, runs_by_start
from tessel_core.model import BlockKind, MicroBatchPlan, Schedule

Run = tuple[int, int, BlockKind, int]
"""Start time, stage, kind of block, and micro-batch."""
_KINDS = {"backward": BlockKind.BACKWARD, WEIGHT_PHASE: BlockKind.WEIGHT}
"""Kind of block for the operations of each phase. Operations of other phases belong to forward blocks."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Runs the stages of a network on the devices of a schedule's plan, in the order of the schedule.

    The plan's forward blocks are the stages in order. Its backward blocks are the stages in reverse order. A weight
    block follows the backward block of its stage. If the plan has no weight blocks, separate gradients of weights are
    computed in the backward blocks.

    If the plan has two chains of blocks, each chain runs a copy of the network on half of the samples. At the end, the
    gradients of both copies are summed. See `Partition` for the order in which operations are issued.

    Raises InputError if the plan is not a chain of stages, if there are more stages than layers, or if the batch does
    not divide.
    """

    schedule: Schedule
    layout: tuple[int, ...] = ()
    """Number of layers of each stage. If empty, `layers_of_stages` chooses them."""
    sums_in_place: bool = False
    """Whether a micro-batch is added directly into the memory of the sum, as in `Partition`."""

    def __call__(self, model: Distributed) -> Distributed:
        """Return the model on the devices of a plan with P devices.

        Each of the model's devices 1 … H becomes P devices. Device p of copy h has the number 1 + h P + p, where h
        counts from 0.
        """
        plan = self.schedule.plan
        chains, stage_of = chains_of(plan), stages_of_blocks(plan)
        if len(chains) == 1:
            apart = with_parts_apart(model, stages_of_layers(model, 1 + max(stage_of), self.layout))
            found = self._partition(self._blocks_of(apart, chains[0], stage_of), stage_of)(apart)
            return with_parts_summed(found, _parts(apart, found))
        down, up = (self._blocks_of(model, chain, stage_of) for chain in chains)
        both = mirrored(model)
        found = self._partition((*down, *up), stage_of)(both)
        return with_parts_summed(found, _parts(both, found))

    def _blocks_of(self, model: Distributed, chain: list[int], stage_of: tuple[int, ...]) -> tuple[int, ...]:
        """Return the block of each operation."""
        plan, ops = self.schedule.plan, model.program.ops
        stage_of_layer = stages_of_layers(model, 1 + max(stage_of), self.layout)
        found = {(stage_of[b], plan.blocks[b].kind): b for b in chain}
        kinds = dict(_KINDS)
        if not any(block.kind is BlockKind.WEIGHT for block in plan.blocks):
            kinds[WEIGHT_PHASE] = BlockKind.BACKWARD
        return tuple(found[stage_of_layer[op.tag.stage or 0], kinds.get(op.tag.phase, BlockKind.FORWARD)] for op in ops)

    def _partition(self, block_of: tuple[int, ...], stage_of: tuple[int, ...]) -> Partition:
        return Partition(self.schedule, block_of, stage_of, sums_in_place=self.sums_in_place)


def with_parts_apart(model: Distributed, stage_of: Sequence[int]) -> Distributed:
    """Return the model with one partial gradient of a shared weight per stage that uses the weight.

    Tied embeddings are such weights. The partial gradients are outputs with the same name. Their sum is the gradient.
    """
    program, outputs = model.program, list(zip(model.program.outputs, model.outputs, strict=True))
    maker, dropped = {value: op for op in program.ops for value in op.outputs}, set[int]()
    place = 0
    while place < len(outputs):
        value, piece = outputs[place]
        parts = maker[value].inputs if value in maker and maker[value].kind == "add" else ()
        stages = {stage_of[maker[part].tag.stage or 0] for part in parts if part in maker}
        if len(stages) == 1 + bool(parts) and model.role_of(piece).gradient_of and not program.uses[value]:
            dropped.add(value)
            outputs[place] = parts[0], piece
            outputs.append((parts[1], piece))
        else:
            place += 1
    if not dropped:
        return model
    ops = tuple(op for op in program.ops if dropped.isdisjoint(op.outputs))
    program = replace(program, ops=ops, outputs=tuple(value for value, _ in outputs))
    return replace(model, program=program, outputs=tuple(piece for _, piece in outputs))


def _parts(before: Distributed, found: Distributed) -> list[list[int]]:
    """Return groups of output indices of `found`.

    A group has the partial gradients that belong to one output of `before`.
    """
    gradients = [place for place, piece in enumerate(found.outputs) if found.role_of(piece).gradient_of]
    pairs = zip(before.program.outputs, before.outputs, strict=True)
    keys = [(piece, before.program.types[v].device) for v, piece in pairs if before.role_of(piece).gradient_of]
    places: dict[tuple[Piece, int], list[int]] = {}
    for key, place in zip(keys, gradients, strict=True):
        places.setdefault(key, []).append(place)
    return [parts for parts in places.values() if len(parts) > 1]


def chains_of(plan: MicroBatchPlan) -> list[list[int]]:
    """Return the chains of dependent blocks, first block first. Raises InputError if there are more than two chains."""
    chain_of = list(range(len(plan.blocks)))
    for b in plan.topological_order:
        for before, _ in plan.predecessors[b]:
            one, other = sorted((chain_of[before], chain_of[b]))
            chain_of = [one if each == other else each for each in chain_of]
    chains: dict[int, list[int]] = {}
    for b in plan.topological_order:
        chains.setdefault(chain_of[b], []).append(b)
    if len(chains) > 2:
        raise InputError(
            f"plan {plan.name}",
            f"has {len(chains)} chains of blocks, but a pipeline has one, or two that mirror each other",
        )
    return list(chains.values())


def stages_of_layers(model: Distributed, stages: int, layout: tuple[int, ...] = ()) -> list[int]:
    """Return the stage of each layer.

    `layout` is the number of layers per stage. If it is empty, `layers_of_stages` chooses these numbers. Raises
    InputError if there are more stages than layers.
    """
    layers = 1 + max((op.tag.stage or 0 for op in model.program.ops), default=0)
    if stages > layers:
        raise InputError("pipeline", f"{stages} stages need at least {stages} layers, but there are {layers}")
    return [stage for stage, count in enumerate(layout or layers_of_stages(layers, stages)) for _ in range(count)]


def stages_of_blocks(plan: MicroBatchPlan) -> tuple[int, ...]:
    """Return the stage of each block.

    Raises InputError unless the plan is one or two chains of stages, forward and then backward.
    """
    found: dict[int, int] = {}
    for chain in chains_of(plan):
        found |= _stages_of(plan, chain)
    return tuple(found[b] for b in range(len(plan.blocks)))


def _stages_of(plan: MicroBatchPlan, members: list[int]) -> dict[int, int]:
    kinds: dict[BlockKind, list[int]] = {kind: [] for kind in BlockKind}
    for b in members:
        kinds[plan.blocks[b].kind].append(b)
    forward, backward, weight = kinds[BlockKind.FORWARD], kinds[BlockKind.BACKWARD][::-1], kinds[BlockKind.WEIGHT]
    stage_of = {b: i for chain in (forward, backward) for i, b in enumerate(chain)}
    of_weight = {b: stage_of[before] for b in weight for before, _ in plan.predecessors[b] if before in backward}
    single = all(len(plan.blocks[b].devices) == 1 for b in members)
    devices = [
        [plan.blocks[b].devices for b in sorted(chain, key=at.__getitem__)]
        for chain, at in ((forward, stage_of), (backward, stage_of), (weight, of_weight))
        if chain
    ]
    complete = len(stage_of) + len(of_weight) == len(members) and len(weight) == len(of_weight)
    if not forward or not single or not complete or any(each != devices[0] for each in devices):
        why = "must be a chain of stages with one forward and one backward block each, to serve as a pipeline"
        raise InputError(f"plan {plan.name}", why)
    return stage_of | of_weight


def stage_runs(schedule: Schedule) -> Iterator[Run]:
    """Yield the runs of a chain of stages, sorted by start and then by device."""
    stage_of = stages_of_blocks(schedule.plan)
    for start, b, micro_batch in runs_by_start(schedule):
        yield start, stage_of[b], schedule.plan.blocks[b].kind, micro_batch


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of layers of each stage.

    Layers are divided equally, and the first stages get one more if any remain.
    """
    few, more = divmod(layers, stages)
    return tuple(few + (stage < more) for stage in range(stages))
