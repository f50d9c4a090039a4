"""The search by CP-SAT for the split of least latency, and for the least memory with which a split exists.

A split gives each unit of operators a slot (one subgraph of one accelerator) or a host, which is a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask
from tessel_core.model import Latency
from tessel_core.model.checks import topological_order
from tessel_core.placement.latency.model import TICKS, LatencyModel, Ticks
from tessel_core.placement.latency.paths import Paths
from tessel_core.placement.latency.task import HOST, LatencyTask, Slots
from tessel_core.placement.shortage import least_bytes


@dataclass(frozen=True)
class Found:
    """Result of `search`: the best split or None, a lower bound in the graph's unit, and whether no split can exist."""

    slots: Slots | None
    bound: float
    impossible: bool = False


def search(task: LatencyTask, start: Slots | None, bound: float, effort: Effort, control: Control) -> Found:
    """Return the best split that CP-SAT finds, or `start` if none is better. `bound` is a known lower bound."""
    least = math.inf if start is None else task.latency(start)
    if start is not None and least <= bound:
        return Found(start, bound)
    ticks = Ticks(task, (least if start is not None else _highest(task)) or 1.0)
    times = None if start is None else timed(task, ticks, start)
    built = LatencyModel(task, ticks, TICKS if times is None else max(times.done))
    built.model.add(built.total >= ticks.of(bound) - len(task.problem.graph.operators))
    paths = Paths(built, ticks)
    if start is not None and times is not None:
        add_hint(built, start, times)
        paths.add_hint(start, times.slots)

    def report(objective: int, proved: float) -> None:
        now = Fraction(min(ticks.time(objective), least))
        control.report("subgraphs", now, Fraction(min(max(bound, ticks.time(proved)), float(now))))

    # Ticks are too fine for presolve: see `cpsat.LARGEST_SUM`.
    answer = ask(built.model, effort, control, presolve=False, on_solution=report)
    if answer.verdict is Verdict.IMPOSSIBLE and start is None:
        return Found(None, bound, impossible=True)
    if not answer.verdict.found:
        return Found(start, bound)
    bound = max(bound, ticks.time(answer.bound))
    slots = built.slots(answer.value)
    better = task.keeps_rules(slots) and task.latency(slots) < least
    return Found(slots if better else start, bound)


def _highest(task: LatencyTask) -> float:
    """Return an upper bound on the latency of any split, in the graph's unit."""
    times = (max((row[u] for row in task.time if row[u] < math.inf), default=0.0) for u in range(len(task.units)))
    return sum(times) + 2 * (task.slots + 1) * sum(task.moved)


def least_memory(task: LatencyTask, effort: Effort, control: Control) -> int | None:
    """Return the least bytes per accelerator with which a split exists, or None if that is not proved."""
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


@dataclass(frozen=True)
class Timed:
    """A split with its subgraphs in the order of their starts. Times are in ticks."""

    slots: tuple[int, ...]
    """Slot of each used position."""
    start: tuple[int, ...]
    finish: tuple[int, ...]
    done: tuple[int, ...]
    """Finish of each operator."""


def timed(task: LatencyTask, ticks: Ticks, slots: Slots) -> Timed:
    """Return a split with the starts and finishes of its subgraphs in ticks.

    Subgraphs that start at the same time come in the order in which they wait for each other. Times are rounded to the
    nearest tick. The rounded times satisfy the constraints of the model, because the model rounds costs down.
    """
    done = [0] * len(task.unit_of)
    runs = list[tuple[int, int, int]]()
    for step in Latency.of(task.placement(slots)).steps:
        slot, finish = slots[task.unit_of[step.operators[0]]], ticks.nearest(step.finish)
        for each in step.operators:
            done[each] = finish
        if slot != HOST:
            runs.append((ticks.nearest(step.start), finish, slot))
    runs.sort(key=lambda run: run[0])
    return Timed(tuple(s for *_, s in runs), tuple(r[0] for r in runs), tuple(r[1] for r in runs), tuple(done))


def add_hint(built: LatencyModel, slots: Slots, times: Timed) -> None:
    """Give CP-SAT a split as a hint: values for devices and times, which determine all other variables."""
    task, model = built.task, built.model
    position = {slot: p for p, slot in enumerate(times.slots)}
    for unit, slot in enumerate(slots):
        model.add_hint(built.on_host[unit], slot == HOST)
        for p, literal in enumerate(built.inside[unit]):
            model.add_hint(literal, position.get(slot) == p)
    level = _levels(task, slots, position)
    for v, places in enumerate(built.reached):
        for p, literal in enumerate(places):
            model.add_hint(literal, p <= level[v])
        model.add_hint(built.done[v], times.done[v])
    for p in range(task.slots):
        used, last = p < len(times.slots), max(times.finish, default=0)
        model.add_hint(built.start[p], times.start[p] if used else last)
        model.add_hint(built.finish[p], times.finish[p] if used else last)
    for p, literal in enumerate(built.used):
        model.add_hint(literal, p < len(times.slots))
    model.add_hint(built.total, max(times.done))
    _hint_crossings(built, slots, times)
    _hint_devices(built, times)


def _levels(task: LatencyTask, slots: Slots, position: dict[int, int]) -> list[int]:
    """Return the position of the subgraph of each operator.

    For an operator on a host, it is the largest position of its predecessors, or -1.
    """
    graph = task.problem.graph
    levels = [-1] * len(graph.operators)
    for v in topological_order(graph.predecessors):
        slot = slots[task.unit_of[v]]
        before = max((levels[u] for u in graph.predecessors[v]), default=-1)
        levels[v] = before if slot == HOST else position[slot]
    return levels


def _hint_crossings(built: LatencyModel, slots: Slots, times: Timed) -> None:
    task, consumers = built.task, built.task.problem.graph.consumers
    for (u, p), enters in built.enters.items():
        slot = times.slots[p] if p < len(times.slots) else None
        home = slots[task.unit_of[u]]
        there = {slots[task.unit_of[v]] for v in consumers[u]}
        built.model.add_hint(enters, slot is not None and home != slot and slot in there)
        built.model.add_hint(built.leaves[u, p], home == slot and there != {slot})


def _hint_devices(built: LatencyModel, times: Timed) -> None:
    """Give CP-SAT hints for the device of each position.

    Interchangeable devices are in the order of first use. Unused positions get the devices that are left.
    """
    task = built.task
    if task.is_uniform:
        return
    used = [task.accelerators[slot // task.subgraphs] for slot in times.slots]
    number = dict[int, int]()
    for alike in task.alike:
        firsts = [device for device in dict.fromkeys(used) if device in alike]
        number.update(zip(firsts, alike, strict=False))
    devices = [number[device] for device in used]
    for device in task.accelerators:
        devices += [device] * (task.subgraphs - devices.count(device))
    for p, at in enumerate(devices):
        for d, literal in built.device[p].items():
            built.model.add_hint(literal, d == at)
