"""Why no placement exists, and how much memory or how many accelerators would suffice."""

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

_MOST_NAMES = 5

Search = Callable[[Pipeline], Best]
"""Finds the split of least largest load."""


def explain(problem: PlacementProblem, pipeline: Pipeline, search: Search) -> PlacementReport:
    """The report on a problem that has no placement: what binds, and the least that would do where that is known."""
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
        reason += f"; {math.ceil(held.split.load):,} bytes each would do"
    return infeasible(problem, reason, least, enough)


def least_bytes(held: float, bound: float) -> int | None:
    """The least capacity that holds so much; None where less than a byte less may do, because the bound is lower."""
    least = math.floor(held)
    while with_rounding(least) < held:
        least += 1
    return least if least == 0 or with_rounding(least - 1) < bound else None


def _named(operators: Sequence[Operator]) -> str:
    names = [each.name for each in operators]
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
    return ", ".join(names)


def pins(problem: PlacementProblem) -> str:
    """The operators that may not go everywhere, for they may be why."""
    graph = problem.graph
    operators = [graph.operators[graph.operator_index(each.operator)] for each in problem.allowances]
    return f" with {_named(operators)} only where they may go" if operators else ""


def too_large(problem: PlacementProblem, members: Sequence[int], held: float, device: PlacementDevice) -> str:
    """The clause that the operators `members`, which share a device, hold more than the largest `device` has."""
    name = problem.graph.operators[members[0]].name
    beside = "" if len(members) == 1 else ", with what it must share a device with,"
    who = device.name if problem.allowances or device.is_host else "an accelerator"
    return f"operator {name}{beside} holds {held:,.0f} bytes, {who} has {device.memory_capacity or 0.0:,.0f}"


def _too_large(problem: PlacementProblem, pipeline: Pipeline, group: int) -> str:
    supporting = [each for each in pipeline.classes if np.isfinite(each.time[group])]
    largest = max(supporting, key=lambda each: each.capacity)
    return too_large(problem, pipeline.members[group], pipeline.memory[group], problem.devices[largest.devices[0]])


def _overfilled(problem: PlacementProblem, pipeline: Pipeline) -> str:
    """The first device that lacks the memory for the operators pinned to it alone; empty where there is none."""
    pinned = [any(problem.allowed_on[i] is not None for i in members) for members in pipeline.members]
    for each, supported in zip(pipeline.classes, pipeline.supported, strict=True):
        alone = np.flatnonzero(supported & (pipeline.supported.sum(axis=0) == 1) & pinned)
        held = float(pipeline.memory[alone].sum())
        if len(each.devices) == 1 and held > each.capacity:
            device, graph = problem.devices[each.devices[0]], problem.graph
            holding = [graph.operators[i] for group in alone for i in pipeline.members[group]]
            who = _named([each for each in holding if each.memory > 0])
            return (
                f"device {device.name} has {device.memory_capacity or 0.0:,.0f} bytes, and what is pinned to it alone "
                f"({who}) holds {held:,.0f}"
            )
    return ""


def in_flight_text(problem: PlacementProblem) -> str:
    """The micro-batches whose activations stages hold, where they hold those of several."""
    rule = problem.held
    if not any(problem.graph.kept_bytes) or rule.held_at(len(problem.devices)) == 1:
        return ""
    which = "1F1B's micro-batches" if rule.by_position else f"{rule.held_at(1):,} micro-batches"
    return f" with {which} in flight"


def devices_text(problem: PlacementProblem, *, of_memory: bool = False) -> str:
    """The devices in words, such as "3 accelerators of 1,000 bytes"."""
    accelerators, groups = problem.accelerators, problem.transfers.groups
    memories = sorted({device.memory_capacity for device in accelerators if device.memory_capacity is not None})
    if of_memory and memories:
        amounts = " and ".join(f"{each:,.0f}" for each in memories)
        which = "" if groups is None else f"groups of {groups.size} "
        return f"{len(accelerators)} {which}accelerators of {amounts} bytes"
    return f"{len(accelerators)} accelerators and {len(problem.devices) - len(accelerators)} CPUs"


def _enough_accelerators(problem: PlacementProblem, search: Search) -> int | None:
    """The least number of accelerators with room for all, by doubling and halving: more never hurt.

    None where more might hurt: in any sets, each device holds as many micro-batches as there are devices.
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
    """Whether `count` accelerators hold all operators; None where the search does not decide that.

    The additional ones are like the others; operators that may only go to some devices stay there.
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
    """The same groups, but the load of an accelerator is the memory it holds, if that is limited; hosts keep theirs."""
    return replace(pipeline, classes=tuple(_holds(problem, pipeline, each) for each in pipeline.classes), nets=())


def _holds(problem: PlacementProblem, pipeline: Pipeline, each: DeviceClass) -> DeviceClass:
    nothing, is_host = np.zeros_like(pipeline.memory), problem.devices[each.devices[0]].is_host
    held = nothing if is_host or np.isinf(each.capacity) else pipeline.memory
    capacity = each.capacity if is_host else np.inf
    supported = np.isfinite(each.time) & (pipeline.memory <= capacity)
    by_bytes = held is pipeline.memory
    return DeviceClass(each.devices, np.where(supported, held, np.inf), False, capacity, nothing, by_bytes)
