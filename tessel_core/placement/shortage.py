"""Why no placement exists, and what would do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tessel_core.placement.best import Best
from tessel_core.placement.problem import PlacementProblem
from tessel_core.placement.stages import DeviceClass, Pipeline


@dataclass(frozen=True)
class Shortage:
    """What binds, in a sentence, and the least that would do; None where that is not known, or nothing would."""

    reason: str
    least_memory: int | None = None
    least_accelerators: int | None = None


_MOST_NAMES = 5

Search = Callable[[Pipeline], Best]
"""Finds the split of least largest load."""


def explain(problem: PlacementProblem, pipeline: Pipeline, search: Search) -> Shortage:
    """Why a problem that has no placement has none; what would do is looked for where all accelerators are alike."""
    held = search(_of_memory(pipeline))
    limited = [each for each in pipeline.classes if np.isfinite(each.capacity)]
    alike = len({each.capacity for each in limited}) == 1
    least = math.ceil(held.split.load) if alike and held.split is not None and held.complete else None
    fits = [np.isfinite(each.time) & (pipeline.memory <= each.capacity) for each in pipeline.classes]
    too_large = np.flatnonzero(~np.logical_or.reduce(fits))
    if len(too_large):
        return Shortage(_too_large(problem, pipeline, int(too_large[0])), least, None)
    enough = _enough_accelerators(problem, pipeline, search)
    if not limited or (held.split is None and held.complete):
        how = "no stages that follow the flow" if problem.contiguous else "no parts"
        return Shortage(f"{_devices(problem)} can be given {how}{_pins(problem)}", None, enough)
    how = "stages that follow the flow" if problem.contiguous else "any parts of the graph"
    return Shortage(f"{_devices(problem, of_memory=True)} have no room for {how}{_pins(problem)}", least, enough)


def _pins(problem: PlacementProblem) -> str:
    """The operators that may not go everywhere, for they may be why."""
    names = [each.operator for each in problem.allowances]
    if not names:
        return ""
    shown = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )
    return f" with {shown} only where they may go"


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


def _enough_accelerators(problem: PlacementProblem, pipeline: Pipeline, search: Search) -> int | None:
    """The least number of accelerators with room for all, by doubling and halving: more never hurt."""
    classes = [i for i, each in enumerate(pipeline.classes) if not problem.devices[each.devices[0]].is_host]
    if len(classes) != 1 or (pipeline.memory > pipeline.classes[classes[0]].capacity).any():
        return None
    (position,) = classes
    low = high = len(pipeline.classes[position].devices)
    while (enough := _is_room(pipeline, position, high, search)) is False and high < len(pipeline.members):
        low, high = high, min(2 * high, len(pipeline.members))
    while enough is not None and high - low > 1:
        middle = (low + high) // 2
        decided = _is_room(pipeline, position, middle, search)
        if decided is None:
            return None
        low, high = (low, middle) if decided else (middle, high)
    return high if enough else None


def _is_room(pipeline: Pipeline, position: int, count: int, search: Search) -> bool | None:
    """Whether so many devices of the class at `position` hold all; None where the search does not tell."""
    capacity, classes, first = pipeline.classes[position].capacity, list[DeviceClass](), 0
    for i, each in enumerate(pipeline.classes):
        devices = tuple(range(first, first + (count if i == position else len(each.devices))))
        classes.append(replace(each, devices=devices))
        first += len(devices)
    best = search(_of_memory(replace(pipeline, classes=tuple(classes))))
    if best.split is not None and best.split.load <= capacity:
        return True
    return False if best.complete or best.bound > capacity else None


def _of_memory(pipeline: Pipeline) -> Pipeline:
    """The same groups, but what loads a device is what it holds; devices without a limit hold for nothing."""
    return replace(pipeline, classes=tuple(_holds(each, pipeline) for each in pipeline.classes), nets=())


def _holds(each: DeviceClass, pipeline: Pipeline) -> DeviceClass:
    held = pipeline.memory if np.isfinite(each.capacity) else np.zeros_like(pipeline.memory)
    return DeviceClass(each.devices, np.where(np.isfinite(each.time), held, np.inf), False, np.inf, np.zeros_like(held))
