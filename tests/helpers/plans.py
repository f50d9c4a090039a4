"""Random small plans from a seed, with every kind of block, dependency and memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from hypothesis import strategies

from helpers.brute_force import fits, memory_returns
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice


def random_plan(
    seed: int | random.Random, *, blocks: Sequence[int] = (2, 3, 4, 5), devices: Sequence[int] = (1, 2, 3)
) -> MicroBatchPlan:
    """Return a plan with a random choice of these numbers of blocks and devices, durations 1 to 3 and lags 0 to 2.

    Its memory is valid.  About one plan in eight does not fit its devices.
    """
    choose = seed if isinstance(seed, random.Random) else random.Random(seed)
    count = choose.choice(blocks)
    names = [f"b{i}" for i in range(count)]
    wanted = choose.choice(devices)
    placed = [_some_devices(choose, wanted) for _ in names]
    folded = choose.random() < 0.4
    if folded:  # as in training: backward over the same devices
        placed = [placed[min(i, count - 1 - i)] for i in range(count)]
    dependencies = _some_dependencies(choose, names, folded)
    bare = [
        Block(name, choose.choice(list(BlockKind)), on, choose.randint(1, 3))
        for name, on in zip(names, placed, strict=True)
    ]
    filled = _some_memory(choose, bare, dependencies, wanted)
    choose.shuffle(filled)
    plan = MicroBatchPlan("random", tuple(PlanDevice(f"d{i}") for i in range(wanted)), tuple(filled), dependencies)
    return _some_capacities(choose, plan)


def plans(
    *, blocks: Sequence[int] = (2, 3, 4, 5), devices: Sequence[int] = (1, 2, 3)
) -> strategies.SearchStrategy[MicroBatchPlan]:
    """Draw `random_plan` for hypothesis."""
    return strategies.randoms(use_true_random=False).map(
        lambda choose: random_plan(choose, blocks=blocks, devices=devices)
    )


def _some_devices(choose: random.Random, count: int) -> tuple[int, ...]:
    size = 1 if choose.random() < 0.7 else choose.randint(1, count)
    return tuple(choose.sample(range(count), size))


def _some_dependencies(choose: random.Random, names: Sequence[str], chained: bool) -> tuple[Dependency, ...]:
    """Return a chain or a random acyclic graph, mostly without lags."""
    return tuple(
        Dependency(before, after, choose.choice((0, 0, 0, 1, 2)))
        for j, after in enumerate(names)
        for i, before in enumerate(names[:j])
        if (chained and i == j - 1) or (not chained and choose.random() < 0.45)
    )


def _some_memory(
    choose: random.Random, blocks: Sequence[Block], dependencies: Sequence[Dependency], devices: int
) -> list[Block]:
    """Return random valid memory of magnitude up to 2, not all zero if possible."""
    vectors = list(product((-2, -1, 0, 1, 2), repeat=len(blocks)))
    choose.shuffle(vectors)
    for memory in vectors if choose.random() < 0.95 else []:
        on = [[held for block, held in zip(blocks, memory, strict=True) if d in block.devices] for d in range(devices)]
        if any(memory) and not any(map(sum, on)):
            filled = [replace(block, memory=held) for block, held in zip(blocks, memory, strict=True)]
            if memory_returns(filled, dependencies, devices):
                return filled
    return list(blocks)


def _some_capacities(choose: random.Random, plan: MicroBatchPlan) -> MicroBatchPlan:
    """Set random capacities, from the need of one micro-batch to unlimited, and sometimes below the need."""
    found = []
    for d, device in enumerate(plan.devices):
        static = choose.choice((0, 0, 1, 2))
        slack = choose.choices((0, 1, 2, 4, None, -1), (6, 4, 3, 2, 3, 1))[0]
        capacity = None if slack is None else max(0, static + _needed_on(plan, d) + slack)
        found.append(replace(device, static_memory=static, memory_capacity=capacity))
    return replace(plan, devices=tuple(found))


def _needed_on(plan: MicroBatchPlan, device: int) -> int:
    """Return the least memory of this device for one micro-batch if all other devices are unlimited."""
    capacity = 0
    while not fits(_limited(plan, device, capacity)):
        capacity += 1
    return capacity


def _limited(plan: MicroBatchPlan, device: int, capacity: int) -> MicroBatchPlan:
    return replace(
        plan,
        devices=tuple(
            replace(each, memory_capacity=capacity if d == device else None) for d, each in enumerate(plan.devices)
        ),
    )


def wiring(plan: MicroBatchPlan) -> tuple[set[object], set[object]]:
    """Return devices of blocks and dependencies, without costs."""
    blocks = {(each.name, each.kind, each.devices) for each in plan.blocks}
    return blocks, {(dep.predecessor, dep.successor) for dep in plan.dependencies}
