"""Plans of random networks: a random acyclic graph of layers on random devices, with its mirror image."""

from __future__ import annotations

import random

import numpy as np

from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice, Schedule
from tessel_core.scheduling.order import run_in_order


def some_network(choose: random.Random, devices: int) -> MicroBatchPlan:
    """Return a plan of two to seven layers on one, several or all devices.

    Layers before a frozen layer are frozen too.
    """
    layers = choose.randint(2, 7)
    on = [tuple(choose.sample(range(devices), choose.choice((1, 1, 1, 2, devices)))) for _ in range(layers)]
    before = [choose.sample(range(i), min(i, choose.choice((0, 1, 1, 2)))) for i in range(layers)]
    frozen = set[int]()
    if choose.random() < 0.3:
        waiting = [choose.randrange(layers - 1)]
        while waiting:
            frozen.add(layer := waiting.pop())
            waiting += before[layer]
    blocks = [Block(f"F{i}", BlockKind.FORWARD, on[i], choose.randint(1, 3)) for i in range(layers)]
    arcs = [Dependency(f"F{j}", f"F{i}") for i in range(layers) for j in before[i]]
    for i in [i for i in range(layers) if i not in frozen]:
        turned = tuple(choose.sample(on[i], len(on[i])))
        blocks.append(Block(f"B{i}", BlockKind.BACKWARD, turned, choose.randint(1, 3)))
        arcs += [Dependency(f"B{i}", f"B{j}") for j in before[i] if j not in frozen]
        if not any(i in each for each in before):
            arcs.append(Dependency(f"F{i}", f"B{i}"))
        if choose.random() < 0.4:
            blocks.append(Block(f"W{i}", BlockKind.WEIGHT, turned, 1))
            arcs.append(Dependency(f"B{i}", f"W{i}"))
    choose.shuffle(blocks)
    return MicroBatchPlan("network", tuple(PlanDevice(f"gpu{d}") for d in range(devices)), tuple(blocks), tuple(arcs))


def some_schedule(choose: random.Random, plan: MicroBatchPlan, micro_batches: int) -> Schedule:
    """Return a random schedule: a random order allowed by the dependencies, with earliest starts."""
    left = {(b, m): len(plan.predecessors[b]) for b in range(len(plan.blocks)) for m in range(micro_batches)}
    ready, order = [run for run, missing in left.items() if not missing], list[tuple[int, int]]()
    while ready:
        b, m = ready.pop(choose.randrange(len(ready)))
        order.append((b, m))
        for after, _ in plan.successors[b]:
            left[after, m] -= 1
            if not left[after, m]:
                ready.append((after, m))
    return Schedule.from_starts(plan, np.asarray(run_in_order(plan, micro_batches, order)))
