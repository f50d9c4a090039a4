"""Why no placement exists, and what would do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.exact import best_chain
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import DeviceClass, Pipeline


@dataclass(frozen=True)
class Shortage:
    """What binds, in a sentence, and the least that would do; None where that is not known, or nothing would."""

    reason: str
    least_memory: int | None = None
    least_accelerators: int | None = None


def explain(problem: PlacementProblem, pipeline: Pipeline, most_ideals: int, control: Control) -> Shortage:
    """Why a problem that has no placement has none; what would do is looked for where all accelerators are alike."""
    held = best_chain(_of_memory(pipeline), most_ideals, control)
    limited = [each for each in pipeline.classes if np.isfinite(each.capacity)]
    alike = len(limited) == 1
    least = math.ceil(held.chain.load) if alike and held.chain is not None and held.complete else None
    fits = [np.isfinite(each.time) & (pipeline.memory <= each.capacity) for each in pipeline.classes]
    too_large = np.flatnonzero(~np.logical_or.reduce(fits))
    if len(too_large):
        return Shortage(_too_large(problem, pipeline, int(too_large[0])), least, None)
    enough = _enough_accelerators(problem, pipeline, most_ideals, control)
    if not limited or (held.chain is None and held.complete):
        why = f"no chain of {_devices(problem)} supports the operators in their order"
        return Shortage(why, None, enough)
    why = f"{_devices(problem, of_memory=True)} hold the operators in no order of the flow"
    return Shortage(why, least, enough)


def _too_large(problem: PlacementProblem, pipeline: Pipeline, group: int) -> str:
    members, size = pipeline.members[group], pipeline.memory[group]
    supporting = [each for each in pipeline.classes if np.isfinite(each.time[group])]
    largest = max(supporting, key=lambda each: each.capacity)
    name = problem.graph.operators[members[0]].name
    beside = "" if len(members) == 1 else ", with what it must share a device with,"
    capacity = problem.devices[largest.devices[0]].memory_capacity or 0.0
    if problem.allowances:
        what = f"{problem.devices[largest.devices[0]].name} has {capacity:,.0f}"
    else:
        what = f"an accelerator has {capacity:,.0f}"
    return f"operator {name}{beside} holds {size:,.0f} bytes, {what}"


def _devices(problem: PlacementProblem, *, of_memory: bool = False) -> str:
    """The devices in words, such as "3 accelerators of 1,000 bytes"."""
    accelerators = problem.accelerators
    memories = sorted({device.memory_capacity for device in accelerators if device.memory_capacity is not None})
    if of_memory and memories:
        amounts = " and ".join(f"{each:,.0f}" for each in memories)
        return f"{len(accelerators)} accelerators of {amounts} bytes"
    return f"{len(accelerators)} accelerators and {len(problem.devices) - len(accelerators)} CPUs"


def _enough_accelerators(
    problem: PlacementProblem, pipeline: Pipeline, most_ideals: int, control: Control
) -> int | None:
    """The least number of accelerators with room for all, by doubling and halving: more never hurt."""
    classes = [i for i, each in enumerate(pipeline.classes) if not problem.devices[each.devices[0]].is_host]
    if len(classes) != 1 or (pipeline.memory > pipeline.classes[classes[0]].capacity).any():
        return None
    (position,) = classes
    accelerators = pipeline.classes[position]

    def do(count: int) -> bool:
        more = list(pipeline.classes)
        more[position] = replace(accelerators, devices=tuple(range(count)))
        best = best_chain(_of_memory(replace(pipeline, classes=tuple(more))), most_ideals, control)
        return best.chain is not None and best.chain.load <= accelerators.capacity

    low, high = len(accelerators.devices), len(pipeline.members)
    if not do(high):
        return None
    while high - low > 1:
        middle = min(2 * low, (low + high) // 2)
        low, high = (low, middle) if do(middle) else (middle, high)
    return None if control.stopped else high


def _of_memory(pipeline: Pipeline) -> Pipeline:
    """The same groups, but what loads a device is what it holds; devices without a limit hold for nothing."""
    return replace(pipeline, classes=tuple(_holds(each, pipeline) for each in pipeline.classes), nets=())


def _holds(each: DeviceClass, pipeline: Pipeline) -> DeviceClass:
    held = pipeline.memory if np.isfinite(each.capacity) else np.zeros_like(pipeline.memory)
    return DeviceClass(each.devices, np.where(np.isfinite(each.time), held, np.inf), False, np.inf, np.zeros_like(held))
