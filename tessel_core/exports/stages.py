"""Turn a plan into a chain of stages, each with all of its work on one rank, as other programs expect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan


@dataclass(frozen=True, slots=True)
class Stage:
    """Indices of the blocks of one stage."""

    device: int
    forward: int
    backward: int
    """The whole backward, or only the input gradient if there is a `weight` block."""
    weight: int | None = None


def on_ranks(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Return the plan with one pipeline rank per tensor-parallel group, named after its first and last device.

    The plan is returned unchanged if its blocks are on single devices, overlapping groups, or replicas.
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
    """Return the number of devices per pipeline rank."""
    return max(len(block.devices) for block in plan.blocks) if on_ranks(plan) is not plan else 1


def forward_chain(plan: MicroBatchPlan) -> tuple[int, ...]:
    """Return the forward blocks in order, one per stage.

    Raises InputError for blocks on several devices, of kind other, on branches, or with a tensor that skips a stage.
    """
    for block in plan.blocks:
        if len(block.devices) > 1:
            raise InputError(f"block {block.name}", f"is on {len(block.devices)} devices, but a stage must be on one")
        if block.kind is BlockKind.OTHER:
            raise InputError(f"block {block.name}", "is neither forward nor backward")
    return _chain(plan, BlockKind.FORWARD)


def stages_of(plan: MicroBatchPlan) -> tuple[Stage, ...]:
    """Return the stages of a training plan in order.

    Raises InputError as `forward_chain` does, for inference, and if the backward of a stage is missing or on another
    device.
    """
    forward, backward = forward_chain(plan), _chain(plan, BlockKind.BACKWARD)[::-1]
    if not backward:
        raise InputError(f"plan {plan.name}", "is for inference, but each stage needs a backward block")
    if len(backward) != len(forward):
        why = f"has {len(forward)} forward and {len(backward)} backward blocks, but each stage needs one of both"
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
    """Return the blocks of a kind in dependency order. Raises InputError unless they form a chain."""
    chain = tuple(b for b in plan.topological_order if plan.blocks[b].kind is kind)
    position = {b: i for i, b in enumerate(chain)}
    names = [plan.blocks[b].name for b in chain]
    for i, (before, after) in enumerate(pairwise(chain)):
        if not plan.ancestors[after] >> before & 1:
            raise InputError(f"blocks {names[i]} and {names[i + 1]}", "are on branches, but stages must form a chain")
    for before, after, _ in plan.arcs:
        if before in position and position.get(after, position[before]) > position[before] + 1:
            here, there = plan.blocks[before].name, plan.blocks[after].name
            raise InputError(
                f"block {there}",
                f"takes a tensor from {here}, but stages can only exchange tensors with their neighbours",
            )
    return chain


def _check_stage(plan: MicroBatchPlan, stage: Stage) -> None:
    """Raise InputError unless the backward of a stage follows its forward on the same device."""
    forward = plan.blocks[stage.forward]
    for b in (stage.backward, stage.weight):
        if b is None:
            continue
        block = plan.blocks[b]
        if block.devices != forward.devices:
            here, there = (plan.devices[each.devices[0]].name for each in (block, forward))
            raise InputError(
                f"block {block.name}", f"is on {here} and {forward.name} on {there}, but a stage must be on one device"
            )
        if not plan.ancestors[b] >> stage.forward & 1:
            raise InputError(f"block {block.name}", f"does not follow {forward.name}, the forward of its stage")
