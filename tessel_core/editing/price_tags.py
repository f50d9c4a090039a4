"""What could be bought for a plan, one thing at a time: memory, faster links, a shorter stage, a layer moved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from tessel_core.editing.plan import stages
from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.units import show_memory

_UNITS = {"B": 10**9}
"""What memory is bought in: gigabytes; plans that count otherwise buy one of their units."""
_MOST_DEVICES = 16
_LAYERS = re.compile(r"layers (\d+)–(\d+)")


def price_tags(plan: MicroBatchPlan) -> dict[str, MicroBatchPlan]:
    """The plan with each of them, by what it is; plans of more than 16 devices have memory on all of them only."""
    return {name: each for name, each in _offers(plan) if each != plan}


def _offers(plan: MicroBatchPlan) -> Iterator[tuple[str, MicroBatchPlan]]:
    limited = [d for d, device in enumerate(plan.devices) if device.memory_capacity is not None]
    more = {d: _one_more(plan, d) for d in limited}
    if len(limited) > 1:
        most = max(more.values())
        yield f"{show_memory(most, plan.memory_unit)} more on every device", _with_memory(plan, limited, most)
    for d in limited if len(plan.devices) <= _MOST_DEVICES else ():
        name = f"{show_memory(more[d], plan.memory_unit)} more on {plan.devices[d].name}"
        yield name, _with_memory(plan, [d], more[d])
    if any(arc.lag for arc in plan.dependencies):
        arcs = tuple(replace(arc, lag=arc.lag // 2) for arc in plan.dependencies)
        yield "links twice as fast", replace(plan, dependencies=arcs)
    yield from _moved_layers(plan)


def _one_more(plan: MicroBatchPlan, device: int) -> int:
    """A slot; or as many gigabytes as one more micro-batch takes: less would often buy nothing."""
    unit = _UNITS.get(plan.memory_unit)
    if unit is None:
        return 1
    taken = sum(max(0, plan.blocks[b].memory) for b in plan.blocks_on[device])
    return unit * max(1, -(-taken // unit))


def _with_memory(plan: MicroBatchPlan, devices: list[int], more: int) -> MicroBatchPlan:
    made = list(plan.devices)
    for d in devices:
        made[d] = replace(made[d], memory_capacity=(made[d].memory_capacity or 0) + more)
    return replace(plan, devices=tuple(made))


def _moved_layers(plan: MicroBatchPlan) -> Iterator[tuple[str, MicroBatchPlan]]:
    """One layer less in a stage and one more in a neighbour, with its time, memory and weights.

    What a layer takes a stage tells that runs layers alone, one of a device's own.
    """
    named = [stage for stage in stages(plan) if _layers(plan, stage)]
    measure = next((stage for stage in named if _of_layers_alone(plan, stage)), ())
    for stage, other in permutations(named if measure else (), 2):
        linked = {b for b, _ in (*plan.successors[stage[0]], *plan.predecessors[stage[0]])}
        if other[0] in linked and _layers(plan, stage) > 1:
            try:
                names = plan.blocks[stage[0]].name, plan.blocks[other[0]].name
                yield f"a layer moved from {names[0]} to {names[1]}", _one_layer(plan, stage, other, measure)
            except InputError:
                continue


def _one_layer(
    plan: MicroBatchPlan, stage: Sequence[int], other: Sequence[int], measure: Sequence[int]
) -> MicroBatchPlan:
    blocks, devices, count = list(plan.blocks), list(plan.devices), _layers(plan, measure)
    takes = {plan.blocks[b].kind: plan.blocks[b] for b in measure}
    for one, sign in ((stage, -1), (other, 1)):
        for b in one:
            layer = takes[blocks[b].kind]
            duration = blocks[b].duration + sign * (layer.duration // count)
            memory = blocks[b].memory + sign * int(layer.memory / count)
            blocks[b] = replace(blocks[b], duration=duration, memory=memory)
        (d,) = blocks[one[0]].devices
        weights = plan.devices[takes[BlockKind.FORWARD].devices[0]].static_memory // count
        devices[d] = replace(devices[d], static_memory=devices[d].static_memory + sign * weights)
    return replace(plan, blocks=tuple(blocks), devices=tuple(devices))


def _of_layers_alone(plan: MicroBatchPlan, stage: Sequence[int]) -> bool:
    first = plan.blocks[stage[0]]
    alone = len(first.devices) == 1 and set(plan.blocks_on[first.devices[0]]) == set(stage)
    return alone and _LAYERS.fullmatch(first.label) is not None


def _layers(plan: MicroBatchPlan, stage: Sequence[int]) -> int:
    """How many layers a stage runs on one device, as the label of its forward block says; 0 where it does not."""
    first = plan.blocks[stage[0]]
    found = _LAYERS.search(first.label) if first.kind is BlockKind.FORWARD and len(first.devices) == 1 else None
    return int(found[2]) - int(found[1]) + 1 if found else 0
