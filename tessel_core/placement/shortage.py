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
    """Why a problem that has no placement has none."""
    pool, held = problem.pool, best_chain(_of_memory(pipeline), most_ideals, control)
    least = math.ceil(held.chain.load) if held.chain is not None and held.complete else None
    fits = [np.isfinite(each.time) & (pipeline.memory <= each.capacity) for each in pipeline.classes]
    too_large = np.flatnonzero(~np.logical_or.reduce(fits))
    if pool.memory is not None and len(too_large):
        group, size = pipeline.members[too_large[0]], pipeline.memory[too_large[0]]
        beside = "" if len(group) == 1 else ", with what it must share a device with,"
        why = f"operator {problem.graph.operators[group[0]].name}{beside} holds {size:,.0f} bytes"
        return Shortage(f"{why}, an accelerator has {pool.memory:,.0f}", least, None)
    enough = _enough_accelerators(problem, pipeline, most_ideals, control)
    if pool.memory is None or (held.chain is None and held.complete):
        why = f"no chain of {pool.accelerators} accelerators and {pool.cpus} CPUs supports the operators in their order"
        return Shortage(why, None, enough)
    why = f"{pool.accelerators} accelerators of {pool.memory:,.0f} bytes hold the operators in no order of the flow"
    return Shortage(why, least, enough)


def _enough_accelerators(
    problem: PlacementProblem, pipeline: Pipeline, most_ideals: int, control: Control
) -> int | None:
    """The least number of accelerators with room for all, by doubling and halving: more never hurt."""
    accelerators = pipeline.classes[0]
    if not problem.pool.accelerators or (pipeline.memory > accelerators.capacity).any():
        return None

    def do(count: int) -> bool:
        more = replace(accelerators, devices=tuple(range(count)))
        best = best_chain(_of_memory(replace(pipeline, classes=(more, *pipeline.classes[1:]))), most_ideals, control)
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
    return DeviceClass(each.devices, np.where(np.isfinite(each.time), held, np.inf), False, np.inf)
