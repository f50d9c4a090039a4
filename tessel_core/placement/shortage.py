"""Reasons why no placement exists, and the memory or number of accelerators that would be enough.

A group is a set of operators that must share a device. A split gives each group a device. An operator is pinned to a
device if it is only allowed there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from tessel_core.model import Operator, PlacementDevice, PlacementReport
from tessel_core.placement.answer import infeasible
from tessel_core.placement.groups import pipeline_of
from tessel_core.placement.pipeline import Best, DeviceClass, Pipeline
from tessel_core.placement.problem import PlacementProblem
from tessel_core.rules.placement_referee import with_rounding

_MAX_NAMES = 5

Search = Callable[[Pipeline], Best]
"""Function from a pipeline to the split of its groups over devices with the least largest load."""


def explain(problem: PlacementProblem, pipeline: Pipeline, search: Search) -> PlacementReport:
    """Return the report on a problem without a placement. `search` finds the best split of a pipeline.

    The report has the reason, and the least memory and number of accelerators that would be enough, if known.
    """
    held = search(of_memory(problem, pipeline))
    least = least_bytes(held.split.load, held.bound) if held.split is not None and held.complete else None
    if not any(device.memory_capacity is not None for device in problem.accelerators):
        least = None
    fits = [pipeline.memory <= each.capacity for each in pipeline.classes]
    too_large = np.flatnonzero(~np.logical_or.reduce(pipeline.supported & fits))
    reason = _too_large(problem, pipeline, int(too_large[0])) if len(too_large) else _overfilled(problem, pipeline)
    if reason:
        return infeasible(problem, reason, least)
    enough = _enough_accelerators(problem, search)
    if enough is not None and problem.transfers.groups is not None:
        enough *= problem.transfers.groups.size
    stages = "stages that follow the flow" + (" and keep branches apart" if problem.branches_apart else "")
    limited = any(np.isfinite(each.capacity) for each in pipeline.classes)
    if not limited or (held.split is None and held.complete):
        how = f"no {stages}" if problem.contiguous else "no parts"
        return infeasible(problem, f"{devices_text(problem)} can be given {how}{pins(problem)}", None, enough)
    how = stages if problem.contiguous else "any parts of the graph"
    reason = f"{devices_text(problem, of_memory=True)} have no room for {how}{pins(problem)}{in_flight_text(problem)}"
    if least is None and held.split is not None:
        reason += f"; {math.ceil(held.split.load):,} bytes each would be enough"
    return infeasible(problem, reason, least, enough)


def least_bytes(held: float, bound: float) -> int | None:
    """Return the least integer capacity, in bytes, that is enough for `held` bytes.

    Return None if the lower bound `bound` does not prove that it is the least.
    """
    least = math.floor(held)
    while with_rounding(least) < held:
        least += 1
    return least if least == 0 or with_rounding(least - 1) < bound else None


def _named(operators: Sequence[Operator]) -> str:
    names = [each.name for each in operators]
    if len(names) > _MAX_NAMES:
        return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"
    return ", ".join(names)


def pins(problem: PlacementProblem) -> str:
    """Return a clause about operators with allowances, which may be why nothing fits.

    Empty if there are no allowances.
    """
    graph = problem.graph
    operators = [graph.operators[graph.operator_index(each.operator)] for each in problem.allowances]
    return f" with {_named(operators)} only on allowed devices" if operators else ""


def too_large(problem: PlacementProblem, members: Sequence[int], held: float, device: PlacementDevice) -> str:
    """Return a clause about operators that must share a device and exceed the memory of `device`.

    `device` has the most memory of the devices that support the operators.
    """
    name = problem.graph.operators[members[0]].name
    beside = "" if len(members) == 1 else ", with the operators that must share its device,"
    who = device.name if problem.allowances or device.is_host else "an accelerator"
    return f"operator {name}{beside} holds {held:,.0f} bytes, but {who} has {device.memory_capacity or 0.0:,.0f}"


def _too_large(problem: PlacementProblem, pipeline: Pipeline, group: int) -> str:
    supporting = [each for each in pipeline.classes if np.isfinite(each.time[group])]
    largest = max(supporting, key=lambda each: each.capacity)
    return too_large(problem, pipeline.members[group], pipeline.memory[group], problem.devices[largest.devices[0]])


def _overfilled(problem: PlacementProblem, pipeline: Pipeline) -> str:
    """Return a clause about the first device that lacks memory for the operators pinned to it, or an empty string."""
    pinned = [any(problem.allowed_on[i] is not None for i in members) for members in pipeline.members]
    for each, supported in zip(pipeline.classes, pipeline.supported, strict=True):
        alone = np.flatnonzero(supported & (pipeline.supported.sum(axis=0) == 1) & pinned)
        held = float(pipeline.memory[alone].sum())
        if len(each.devices) == 1 and held > each.capacity:
            device, graph = problem.devices[each.devices[0]], problem.graph
            holding = [graph.operators[i] for group in alone for i in pipeline.members[group]]
            who = _named([each for each in holding if each.memory > 0])
            return (
                f"device {device.name} has {device.memory_capacity or 0.0:,.0f} bytes, but the operators pinned to it "
                f"({who}) hold {held:,.0f}"
            )
    return ""


def in_flight_text(problem: PlacementProblem) -> str:
    """Return a clause about the micro-batches in flight, or an empty string if each stage holds only one."""
    rule = problem.held
    if not any(problem.graph.kept_bytes) or rule.held_at(len(problem.devices)) == 1:
        return ""
    which = "1F1B's micro-batches" if rule.by_position else f"{rule.held_at(1):,} micro-batches"
    return f" with {which} in flight"


def devices_text(problem: PlacementProblem, *, of_memory: bool = False) -> str:
    """Return a description of the devices, such as "3 accelerators of 1,000 bytes"."""
    accelerators, groups = problem.accelerators, problem.transfers.groups
    memories = sorted({device.memory_capacity for device in accelerators if device.memory_capacity is not None})
    if of_memory and memories:
        amounts = " and ".join(f"{each:,.0f}" for each in memories)
        which = "" if groups is None else f"groups of {groups.size} "
        return f"{len(accelerators)} {which}accelerators of {amounts} bytes"
    return f"{len(accelerators)} accelerators and {len(problem.devices) - len(accelerators)} CPUs"


def _enough_accelerators(problem: PlacementProblem, search: Search) -> int | None:
    """Return the least number of accelerators that can hold all operators, by doubling and bisection.

    Return None if the search does not prove the number. Return None also if more accelerators may need more memory
    each. That is possible in non-contiguous placements, where each device holds one micro-batch per device of the
    problem.
    """
    counts_devices = not problem.contiguous and problem.held.by_position and any(problem.graph.kept_bytes)
    if counts_devices or len({(device.kind, device.memory_capacity) for device in problem.accelerators}) != 1:
        return None
    low = len(problem.accelerators)
    most = low + len(problem.graph.colocated)
    high = min(2 * low, most)
    while (enough := _is_room(problem, high, search)) is False and high < most:
        low, high = high, min(2 * high, most)
    while enough is not None and high - low > 1:
        middle = (low + high) // 2
        decided = _is_room(problem, middle, search)
        if decided is None:
            return None
        low, high = (low, middle) if decided else (middle, high)
    return high if enough else None


def _is_room(problem: PlacementProblem, count: int, search: Search) -> bool | None:
    """Return whether `count` accelerators hold all operators, or None if the search does not decide it.

    Additional accelerators are like the others, but operators with allowances stay on their allowed devices.
    """
    names, like = {device.name for device in problem.devices}, problem.accelerators[0]
    unused = (name for name in map("more{}".format, range(count + len(names))) if name not in names)
    added = islice(unused, count - len(problem.accelerators))
    more = [PlacementDevice(name, like.kind, like.memory_capacity) for name in added]
    grown = replace(problem, devices=(*problem.devices, *more))
    best = search(of_memory(grown, pipeline_of(grown)))
    capacity = np.inf if like.memory_capacity is None else with_rounding(like.memory_capacity)
    if best.split is not None and best.split.load <= capacity:
        return True
    return False if best.complete or best.bound > capacity else None


def of_memory(problem: PlacementProblem, pipeline: Pipeline) -> Pipeline:
    """Return the pipeline in which the load of an accelerator with limited memory is the bytes that it holds.

    Other devices have no load. Hosts keep their capacities.
    """
    return replace(pipeline, classes=tuple(_holds(problem, pipeline, each) for each in pipeline.classes), nets=())


def _holds(problem: PlacementProblem, pipeline: Pipeline, each: DeviceClass) -> DeviceClass:
    nothing, is_host = np.zeros_like(pipeline.memory), problem.devices[each.devices[0]].is_host
    held = nothing if is_host or np.isinf(each.capacity) else pipeline.memory
    capacity = each.capacity if is_host else np.inf
    supported = np.isfinite(each.time) & (pipeline.memory <= capacity)
    by_bytes = held is pipeline.memory
    return DeviceClass(each.devices, np.where(supported, held, np.inf), False, capacity, nothing, by_bytes)
