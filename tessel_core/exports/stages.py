"""Convert a plan to a chain of stages, as other programs expect. All work of a stage is on one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a pipeline, with the indices of its blocks in the plan."""

    device: int
    forward: int
    backward: int
    """Block of the backward pass. If there is a `weight` block, it computes only the input gradient."""
    weight: int | None = None


def on_ranks(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Return the plan with each tensor-parallel group replaced by one pipeline rank.

    A rank is named after the first and last device of its group. The plan is returned unchanged if its blocks are on
    single devices, on overlapping groups, or on replicas.
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

    Raises InputError in these cases: a block is on several devices or of kind "other"; the stages are not a chain; a
    tensor skips a stage.
    """
    for block in plan.blocks:
        if len(block.devices) > 1:
            raise InputError(f"block {block.name}", f"is on {len(block.devices)} devices, but a stage must be on one")
        if block.kind is BlockKind.OTHER:
            raise InputError(f"block {block.name}", "is neither forward nor backward")
    return _chain(plan, BlockKind.FORWARD)


def stages_of(plan: MicroBatchPlan) -> tuple[Stage, ...]:
    """Return the stages of a training plan in order.

    Raises InputError in the cases of `forward_chain`, for a plan without a backward pass, and if the backward block of
    a stage is missing or on another device.
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
                why = "follows no backward block" if not before else "is the second weight block of its stage"
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
    """Return the blocks of a kind in order of their dependencies. Raises InputError unless they form a chain."""
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
                f"uses a tensor of {here}, but stages can only exchange tensors with their neighbours",
            )
    return chain


def _check_stage(plan: MicroBatchPlan, stage: Stage) -> None:
    """Raise InputError unless the backward block of a stage follows its forward block on the same device."""
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
            raise InputError(f"block {block.name}", f"does not follow {forward.name}, the forward block of its stage")
