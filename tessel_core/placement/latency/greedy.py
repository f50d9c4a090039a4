"""The greedy of the latency baseline: accelerators filled one after the other along one order of the flow."""

from __future__ import annotations

import math

from tessel_core.placement.latency.split import HOST, LatencyTask, Slots


def greedy(task: LatencyTask) -> Slots | None:
    """Units in one order of the flow, each accelerator filled until the next does not fit; what is left runs on hosts.

    As published an accelerator is closed at the first unit that is too large for what it has left, and a unit that
    alone is too large goes to the host.  [Tarnawski et al., NeurIPS 2020, appendix F]  Unlike the published program,
    what accelerators do not support goes to the host too, and None says that there is no host for what needs one.
    """
    found = [HOST] * len(task.units)
    waiting, accelerator = list(reversed(_order(task))), 0
    while waiting:
        unit = waiting[-1]
        if accelerator == len(task.accelerators) or math.isinf(task.time[task.accelerators[accelerator]][unit]):
            waiting.pop()
            continue
        device, held = task.accelerators[accelerator], 0.0
        while waiting and held + task.memory[waiting[-1]] <= task.capacity[device]:
            unit = waiting[-1]
            if math.isinf(task.time[device][unit]):
                break
            held += task.memory[unit]
            found[unit] = accelerator * task.subgraphs
            waiting.pop()
        accelerator += 1
    return tuple(found) if task.keeps_rules(found) else None


def _order(task: LatencyTask) -> list[int]:
    """Depth first along the flow, the last consumer first; without units that wait for each other in a circle."""
    after: list[list[int]] = [[] for _ in task.units]
    waits = [0] * len(task.units)
    for source, target in task.problem.graph.arcs:
        one, other = task.unit_of[source], task.unit_of[target]
        if one != other:
            after[one].append(other)
            waits[other] += 1
    ready, order = [unit for unit, count in enumerate(waits) if count == 0], list[int]()
    while ready:
        order.append(ready.pop())
        for unit in after[order[-1]]:
            waits[unit] -= 1
            if waits[unit] == 0:
                ready.append(unit)
    return order
