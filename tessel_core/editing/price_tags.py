"""Build improved plans whose gain can be compared: more memory, faster links, or one layer moved to another stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from tessel_core.editing.plan import stages
from tessel_core.errors import InputError
from tessel_core.model import BlockKind, MicroBatchPlan
from tessel_core.units import show_memory

_MEMORY_INCREMENTS = {"B": 10**9}
"""Step in bytes by which memory is increased (1 GB). For plans with another memory unit, the step is one unit."""
_MAX_DEVICES = 16
_LAYERS = re.compile(r"layers (\d+)–(\d+)")


def price_tags(plan: MicroBatchPlan) -> dict[str, MicroBatchPlan]:
    """Return each improved plan by the name of its improvement.

    If the plan has more than 16 devices, memory is added only on all devices at once.
    """
    return {name: each for name, each in _offers(plan) if each != plan}


def _offers(plan: MicroBatchPlan) -> Iterator[tuple[str, MicroBatchPlan]]:
    limited = [d for d, device in enumerate(plan.devices) if device.memory_capacity is not None]
    more = {d: _one_more(plan, d) for d in limited}
    if len(limited) > 1:
        most = max(more.values())
        yield f"{show_memory(most, plan.memory_unit)} more on every device", _with_memory(plan, limited, most)
    for d in limited if len(plan.devices) <= _MAX_DEVICES else ():
        name = f"{show_memory(more[d], plan.memory_unit)} more on {plan.devices[d].name}"
        yield name, _with_memory(plan, [d], more[d])
    if any(arc.lag for arc in plan.dependencies):
        arcs = tuple(replace(arc, lag=arc.lag // 2) for arc in plan.dependencies)
        yield "links twice as fast", replace(plan, dependencies=arcs)
    yield from _moved_layers(plan)


def _one_more(plan: MicroBatchPlan, device: int) -> int:
    """Return the memory that one more micro-batch needs, in whole gigabytes.

    Return one unit for plans that do not use bytes. Less additional memory would often gain nothing.
    """
    unit = _MEMORY_INCREMENTS.get(plan.memory_unit)
    if unit is None:
        return 1
    acquired = sum(max(0, plan.blocks[b].memory) for b in plan.blocks_on[device])
    return unit * max(1, -(-acquired // unit))


def _with_memory(plan: MicroBatchPlan, devices: list[int], more: int) -> MicroBatchPlan:
    made = list(plan.devices)
    for d in devices:
        made[d] = replace(made[d], memory_capacity=(made[d].memory_capacity or 0) + more)
    return replace(plan, devices=tuple(made))


def _moved_layers(plan: MicroBatchPlan) -> Iterator[tuple[str, MicroBatchPlan]]:
    """Move one layer from a stage to a neighbour, with its time, memory and weights.

    The cost of a layer is read from a stage that runs only layers and has its device for itself.
    """
    named = [stage for stage in stages(plan) if _layers(plan, stage)]
    measure = next((stage for stage in named if _only_layers(plan, stage)), ())
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
    measured = {plan.blocks[b].kind: plan.blocks[b] for b in measure}
    for one, sign in ((stage, -1), (other, 1)):
        for b in one:
            layer = measured[blocks[b].kind]
            duration = blocks[b].duration + sign * (layer.duration // count)
            memory = blocks[b].memory + sign * int(layer.memory / count)
            blocks[b] = replace(blocks[b], duration=duration, memory=memory)
        (d,) = blocks[one[0]].devices
        weights = plan.devices[measured[BlockKind.FORWARD].devices[0]].static_memory // count
        devices[d] = replace(devices[d], static_memory=devices[d].static_memory + sign * weights)
    return replace(plan, blocks=tuple(blocks), devices=tuple(devices))


def _only_layers(plan: MicroBatchPlan, stage: Sequence[int]) -> bool:
    first = plan.blocks[stage[0]]
    alone = len(first.devices) == 1 and set(plan.blocks_on[first.devices[0]]) == set(stage)
    return alone and _LAYERS.fullmatch(first.label) is not None


def _layers(plan: MicroBatchPlan, stage: Sequence[int]) -> int:
    """Return the number of layers that the label of a stage's forward block states.

    Return 0 if it states none, or if the stage runs on several devices.
    """
    first = plan.blocks[stage[0]]
    match = _LAYERS.search(first.label) if first.kind is BlockKind.FORWARD and len(first.devices) == 1 else None
    return int(match[2]) - int(match[1]) + 1 if match else 0
