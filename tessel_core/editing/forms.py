"""Convert a pipeline to the form that a published schedule needs: split backward, two stages per device, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tessel_core.editing.plan import backward_split, cut
from tessel_core.errors import InputError
from tessel_core.model import Dependency, MicroBatchPlan, PlanDevice
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.units import TICKS_PER_SECOND

_MAX_BLOCKS = 512
"""Number of blocks of the largest plan that is converted."""


def looped(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Cut each stage in two and place half `i` on device `i` modulo the number of devices, as interleaving does.

    Each half gets half of the stage's weights.  A dependency between halves on different devices gets the longest lag
    of the plan.

    Raises InputError if the plan is not a chain with one stage per device, or if a block cannot be halved.
    """
    return _in_halves(plan, lambda half, devices: half % devices)


def folded(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Cut each stage in two and place the halves down to the last device and up again.

    This is the form of ZB-V without its split backward.  Weights, lags and errors are as in `looped`.
    """
    return _in_halves(plan, lambda half, devices: min(half, 2 * devices - 1 - half))


def finer(plan: MicroBatchPlan, parts: int, part: str) -> MicroBatchPlan:
    """Return the same plan in units that are `parts` times smaller, so that a duration of 1 can be halved.

    Memory in bytes keeps its unit.  `part` names the new unit, such as "half".

    Raises InputError if the time unit is a real duration.
    """
    if plan.time_unit in TICKS_PER_SECOND:
        raise InputError("time unit", f"{plan.time_unit} is a real duration and cannot be divided here")
    factor = 1 if plan.memory_unit == "B" else parts

    def scaled(device: PlanDevice) -> PlanDevice:
        capacity = None if device.memory_capacity is None else device.memory_capacity * factor
        return replace(device, memory_capacity=capacity, static_memory=device.static_memory * factor)

    return replace(
        plan,
        blocks=tuple(replace(b, duration=b.duration * parts, memory=b.memory * factor) for b in plan.blocks),
        dependencies=tuple(replace(arc, lag=arc.lag * parts) for arc in plan.dependencies),
        devices=tuple(map(scaled, plan.devices)),
        time_unit=f"{part} {plan.time_unit}",
        memory_unit=plan.memory_unit if factor == 1 else f"{part} {plan.memory_unit}",
    )


def remedies(plan: MicroBatchPlan, scheduler: Scheduler, micro_batches: int) -> dict[str, MicroBatchPlan]:
    """Return conversions of the plan to which `scheduler` applies, by a description of the change.

    If it applies to none of them, the plan is first written in half or quarter steps, so that its blocks can be halved.
    """
    for parts, part in _PARTS.items() if len(plan.blocks) <= _MAX_BLOCKS else ():
        forms = dict[str, MicroBatchPlan]()
        for name, make in _FORMS.items():
            try:
                form = make(finer(plan, parts, part) if part else plan)
            except InputError:
                continue
            if not scheduler.why_not(form, micro_batches):
                forms[f"{name}, in {part} {plan.time_unit}s" if part else name] = form
        if forms:
            return forms
    return {}


_PARTS = {1: "", 2: "half", 4: "quarter"}


def _in_halves(plan: MicroBatchPlan, device_of: Callable[[int, int], int]) -> MicroBatchPlan:
    """Cut each stage in two and place half `i` on device `device_of(i, number of devices)` of the chain."""
    chain = find_straight_chain(plan)
    if not isinstance(chain, Chain):
        raise InputError("blocks", chain)
    if wide := next((block.name for block in plan.blocks if len(block.devices) > 1), ""):
        raise InputError(f"block {wide}", "runs on several devices, but this form needs one device per block")
    names_of_stages = [[plan.blocks[b].name for b in plan.blocks_on[device]] for device in chain.devices]
    whole, static, to = plan, [0] * len(plan.devices), dict[str, int]()
    for stage, (names, device) in enumerate(zip(names_of_stages, chain.devices, strict=True)):
        plan = cut(plan, plan.block_index(names[0]))
        weights = whole.devices[device].static_memory
        for half, share in enumerate((weights - weights // 2, weights // 2)):
            there = chain.devices[device_of(2 * stage + half, len(static))]
            static[there] += share
            to |= {f"{name}.{half + 1}": there for name in names}
    if alone := next((block.name for block in plan.blocks if block.name not in to), ""):
        raise InputError(f"block {alone}", "belongs to no stage that can be halved")
    longest = max((arc.lag for arc in whole.dependencies), default=0)
    within = {
        (f"{name}.{a}", f"{name}.{b}") for names in names_of_stages for name in names for a, b in ((1, 2), (2, 1))
    }

    def crossing(arc: Dependency) -> Dependency:
        ends = arc.predecessor, arc.successor
        return replace(arc, lag=longest) if ends in within and to[ends[0]] != to[ends[1]] else arc

    return replace(
        plan,
        blocks=tuple(replace(block, devices=(to[block.name],)) for block in plan.blocks),
        dependencies=tuple(map(crossing, plan.dependencies)),
        devices=tuple(replace(device, static_memory=each) for device, each in zip(plan.devices, static, strict=True)),
    )


_FORMS: dict[str, Callable[[MicroBatchPlan], MicroBatchPlan]] = {
    "Split the backward": backward_split,
    "Two stages on each device": looped,
    "Two stages on each device, down and up again": folded,
    "Two stages on each device, down and up again, with the backward split": lambda plan: folded(backward_split(plan)),
}
