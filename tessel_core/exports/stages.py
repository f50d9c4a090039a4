"""A plan as other programs see pipelines: a chain of stages, each with all of its work on one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one stage, by their indices."""

    device: int
    forward: int
    backward: int
    """The whole backward, or its input gradient where there is a `weight`."""
    weight: int | None = None


def on_ranks(plan: MicroBatchPlan) -> MicroBatchPlan:
    """The plan with one pipeline rank for each tensor-parallel group, called by its first and last device.

    Plans whose blocks are on single devices, on groups that have a device in common, or on replicas stay as they are.
    """
    groups = sorted({block.devices for block in plan.blocks})
    used = [device for group in groups for device in group]
    if plan.replicated or len(used) == len(groups) or len(used) > len(set(used)):
        return plan
    rank = {group: i for i, group in enumerate(groups)}
    names = (f"{plan.devices[group[0]].name}..{plan.devices[group[-1]].name}" for group in groups)
    devices = tuple(replace(plan.devices[group[0]], name=name) for group, name in zip(groups, names, strict=True))
    blocks = tuple(replace(block, devices=(rank[block.devices],)) for block in plan.blocks)
    return replace(plan, devices=devices, blocks=blocks)


def tensor_degree(plan: MicroBatchPlan) -> int:
    """Devices of each pipeline rank."""
    return max(len(block.devices) for block in plan.blocks) if on_ranks(plan) is not plan else 1


def forward_chain(plan: MicroBatchPlan) -> tuple[int, ...]:
    """The forward blocks in order, a stage each.

    Raises InputError for blocks on several devices, of kind other, on branches, and those that skip a stage.
    """
    for block in plan.blocks:
        if len(block.devices) > 1:
            raise InputError(f"block {block.name}", f"is on {len(block.devices)} devices, and a stage is on one")
        if block.kind is BlockKind.OTHER:
            raise InputError(f"block {block.name}", "is neither forward nor backward")
    return _chain(plan, BlockKind.FORWARD)


def stages_of(plan: MicroBatchPlan) -> tuple[Stage, ...]:
    """The stages of a plan for training, first to last.

    Raises InputError as `forward_chain`, for inference, and where a stage's backward is missing, or not on its device.
    """
    forward, backward = forward_chain(plan), _chain(plan, BlockKind.BACKWARD)[::-1]
    if not backward:
        raise InputError(f"plan {plan.name}", "is for inference, and each stage needs a backward block")
    if len(backward) != len(forward):
        why = f"has {len(forward)} forward and {len(backward)} backward blocks, and each stage needs one of both"
        raise InputError(f"plan {plan.name}", why)
    weight = dict[int, int]()
    for b, block in enumerate(plan.blocks):
        if block.kind is BlockKind.WEIGHT:
            before = [stage for stage, each in enumerate(backward) if plan.ancestors[b] >> each & 1]
            if not before or before[0] in weight:
                why = "follows no backward block" if not before else "is the second one of its stage"
                raise InputError(f"block {block.name}", why)
            weight[before[0]] = b
    stages = tuple(
        Stage(plan.blocks[f].devices[0], f, b, weight.get(s))
        for s, (f, b) in enumerate(zip(forward, backward, strict=True))
    )
    for stage in stages:
        _check_stage(plan, stage)
    return stages


def _chain(plan: MicroBatchPlan, kind: BlockKind) -> tuple[int, ...]:
    """The blocks of a kind in the one order that the dependencies leave them, each taking from the one before."""
    chain = tuple(b for b in plan.topological_order if plan.blocks[b].kind is kind)
    position = {b: i for i, b in enumerate(chain)}
    names = [plan.blocks[b].name for b in chain]
    for i, (before, after) in enumerate(pairwise(chain)):
        if not plan.ancestors[after] >> before & 1:
            raise InputError(f"blocks {names[i]} and {names[i + 1]}", "are on branches, and stages form a chain")
    for before, after, _ in plan.arcs:
        if before in position and position.get(after, position[before]) > position[before] + 1:
            here, there = plan.blocks[before].name, plan.blocks[after].name
            raise InputError(
                f"block {there}", f"takes a tensor from {here}, and stages talk with their neighbours only"
            )
    return chain


def _check_stage(plan: MicroBatchPlan, stage: Stage) -> None:
    """Its backward follows its forward, and all of it is on one device."""
    forward = plan.blocks[stage.forward]
    for b in (stage.backward, stage.weight):
        if b is None:
            continue
        block = plan.blocks[b]
        if block.devices != forward.devices:
            here, there = (plan.devices[each.devices[0]].name for each in (block, forward))
            raise InputError(
                f"block {block.name}", f"is on {here} and {forward.name} on {there}, and a stage is on one"
            )
        if not plan.ancestors[b] >> stage.forward & 1:
            raise InputError(f"block {block.name}", f"does not follow {forward.name}, the forward of its stage")
