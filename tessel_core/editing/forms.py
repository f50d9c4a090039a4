"""A chain of stages in the forms that published schedules need: the backward split, two stages on each device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tessel_core.editing.plan import backward_split, cut
from tessel_core.errors import InputError
from tessel_core.model import Dependency, MicroBatchPlan, PlanDevice
from tessel_core.scheduling.baselines.chain import Chain, find_straight_chain
from tessel_core.scheduling.schedulers import Scheduler
from tessel_core.units import TICKS_PER_SECOND

_MOST_BLOCKS = 512
"""Of a plan whose forms are tried."""


def looped(plan: MicroBatchPlan) -> MicroBatchPlan:
    """Every stage cut in two, and the halves dealt to the devices in turn, twice: the form of interleaving.

    Each half takes half of the stage's weights along, and between halves on two devices there is the longest lag of the
    plan.  Raises InputError where the plan is no chain of stages, one on each device, or a block has no halves.
    """
    return _dealt(plan, lambda half, devices: half % devices)


def folded(plan: MicroBatchPlan) -> MicroBatchPlan:
    """As `looped`, the halves dealt down to the last device and up again: the form of ZB-V, but for the split."""
    return _dealt(plan, lambda half, devices: min(half, 2 * devices - 1 - half))


def finer(plan: MicroBatchPlan, parts: int, part: str) -> MicroBatchPlan:
    """The same plan told in parts of its steps and slots, so many each, so that what is 1 has halves.

    Raises InputError where its times are no abstract steps.
    """
    if plan.time_unit in TICKS_PER_SECOND:
        raise InputError("time unit", f"{plan.time_unit} is a real duration, which has no parts here")
    each = 1 if plan.memory_unit == "B" else parts

    def held(device: PlanDevice) -> PlanDevice:
        most = device.memory_capacity
        return replace(
            device, memory_capacity=None if most is None else most * each, static_memory=device.static_memory * each
        )

    return replace(
        plan,
        blocks=tuple(replace(b, duration=b.duration * parts, memory=b.memory * each) for b in plan.blocks),
        dependencies=tuple(replace(arc, lag=arc.lag * parts) for arc in plan.dependencies),
        devices=tuple(map(held, plan.devices)),
        time_unit=f"{part} {plan.time_unit}",
        memory_unit=plan.memory_unit if each == 1 else f"{part} {plan.memory_unit}",
    )


def remedies(plan: MicroBatchPlan, scheduler: Scheduler, micro_batches: int) -> dict[str, MicroBatchPlan]:
    """Forms of the plan to which `scheduler` applies, by what makes them; the same work, as far as it can be cut.

    Where none does and blocks are too short for halves, forms of the plan in finer steps.
    """
    for parts, part in _PARTS.items() if len(plan.blocks) <= _MOST_BLOCKS else ():
        found = dict[str, MicroBatchPlan]()
        for name, make in _FORMS.items():
            try:
                form = make(finer(plan, parts, part) if part else plan)
            except InputError:
                continue
            if not scheduler.why_not(form, micro_batches):
                found[f"{name}, in {part} {plan.time_unit}s" if part else name] = form
        if found:
            return found
    return {}


_PARTS = {1: "", 2: "half", 4: "quarter"}


def _dealt(plan: MicroBatchPlan, device_of: Callable[[int, int], int]) -> MicroBatchPlan:
    chain = find_straight_chain(plan)
    if not isinstance(chain, Chain):
        raise InputError("blocks", chain)
    if wide := next((block.name for block in plan.blocks if len(block.devices) > 1), ""):
        raise InputError(f"block {wide}", "runs on several devices at once, and these forms are of single ones")
    line = [[plan.blocks[b].name for b in plan.blocks_on[device]] for device in chain.devices]
    whole, static, to = plan, [0] * len(plan.devices), dict[str, int]()
    for stage, (names, device) in enumerate(zip(line, chain.devices, strict=True)):
        plan = cut(plan, plan.block_index(names[0]))
        weights = whole.devices[device].static_memory
        for half, share in enumerate((weights - weights // 2, weights // 2)):
            there = chain.devices[device_of(2 * stage + half, len(static))]
            static[there] += share
            to |= {f"{name}.{half + 1}": there for name in names}
    if alone := next((block.name for block in plan.blocks if block.name not in to), ""):
        raise InputError(f"block {alone}", "belongs to no stage that could be dealt out in halves")
    longest = max((arc.lag for arc in whole.dependencies), default=0)
    within = {(f"{name}.{a}", f"{name}.{b}") for names in line for name in names for a, b in ((1, 2), (2, 1))}

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
