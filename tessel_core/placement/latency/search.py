"""CP-SAT from the best start: the split of least latency, what no split can beat, and why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.placement.latency.hint import add_hint, timed
from tessel_core.placement.latency.model import TICKS, LatencyModel, Ticks
from tessel_core.placement.latency.paths import Paths
from tessel_core.placement.latency.task import LatencyTask, Slots
from tessel_core.placement.shortage import least_bytes


@dataclass(frozen=True)
class Found:
    """The best split, None where there is none yet; the bound in the graph's unit; whether none can exist."""

    slots: Slots | None
    bound: float
    impossible: bool = False


def search(task: LatencyTask, start: Slots | None, bound: float, effort: Effort, control: Control) -> Found:
    """The best split that CP-SAT finds, no worse than `start`; `bound` is known already."""
    least = math.inf if start is None else task.latency(start)
    if start is not None and least <= bound:
        return Found(start, bound)
    ticks = Ticks(task, (least if start is not None else _highest(task)) or 1.0)
    times = None if start is None else timed(task, ticks, start)
    built = LatencyModel(task, ticks, TICKS if times is None else times.total)
    built.model.add(built.total >= ticks.of(bound) - len(task.problem.graph.operators))
    paths = Paths(built, ticks)
    if start is not None and times is not None:
        add_hint(built, start, times)
        paths.add_hint(start, times.slots)

    def tell(objective: int, proved: float) -> None:
        now = Fraction(min(ticks.time(objective), least))
        control.report("subgraphs", now, Fraction(min(max(bound, ticks.time(proved)), float(now))))

    # Ticks are too fine for presolve: see `cpsat.LARGEST_SUM`.
    answer = ask(built.model, effort, control, presolve=False, on_solution=tell)
    if answer.verdict is Verdict.IMPOSSIBLE and start is None:
        return Found(None, bound, impossible=True)
    if not answer.verdict.found:
        return Found(start, bound)
    bound = max(bound, ticks.time(answer.bound))
    slots = built.slots(answer.value)
    better = task.keeps_rules(slots) and task.latency(slots) < least
    return Found(slots if better else start, bound)


def _highest(task: LatencyTask) -> float:
    """More than any split takes, whatever waits for whatever."""
    times = (max((row[u] for row in task.time if row[u] < math.inf), default=0.0) for u in range(len(task.units)))
    return sum(times) + 2 * (task.slots + 1) * sum(task.moved)


def least_memory(task: LatencyTask, effort: Effort, control: Control) -> int | None:
    """The least bytes of each accelerator at which a split exists; None where that is not known, or nothing does."""
    problem = task.problem
    limits = {device.memory_capacity for device in problem.accelerators}
    if not limits or None in limits or not all(float(each).is_integer() for each in task.memory):
        return None
    roomy = tuple(each if each.is_host else replace(each, memory_capacity=None) for each in problem.devices)
    free = LatencyTask(replace(problem, devices=roomy), task.subgraphs)
    built = LatencyModel(free, Ticks(free, math.inf), 0)
    largest = built.minimize_memory()
    answer = ask(built.model, effort, control, presolve=False)
    if answer.verdict is not Verdict.PROVED:
        return None
    return least_bytes(answer.value(largest), answer.value(largest))
