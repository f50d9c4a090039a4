"""Micro-batch plans put together from chains of blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice

Chain = tuple[Block, ...]
"""Blocks that run one after the other."""


def plan_of_chains(name: str, devices: tuple[PlanDevice, ...], *chains: Chain) -> MicroBatchPlan:
    """The plan whose blocks depend on each other exactly as the chains say; chains may share blocks."""
    blocks = dict.fromkeys(block for chain in chains for block in chain)
    links = dict.fromkeys((before.name, after.name) for chain in chains for before, after in pairwise(chain))
    return MicroBatchPlan(name, devices, tuple(blocks), tuple(Dependency(*link) for link in links))


def forward_half(plan: MicroBatchPlan, name: str) -> MicroBatchPlan:
    """Inference: the forward blocks alone, holding no memory [Lin 2024, section VI-B]."""
    kept = tuple(replace(block, memory=0) for block in plan.blocks if block.kind is BlockKind.FORWARD)
    names = {block.name for block in kept}
    links = tuple(dep for dep in plan.dependencies if dep.predecessor in names and dep.successor in names)
    return replace(plan, name=name, blocks=kept, dependencies=links)


def numbered_devices(count: int, capacity: int | None, static_memory: int = 0) -> tuple[PlanDevice, ...]:
    """`count` equal devices, gpu0 onwards."""
    return tuple(PlanDevice(f"gpu{d}", capacity, static_memory) for d in range(count))
