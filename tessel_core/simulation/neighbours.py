"""One operation of a simulation closely: when it ran, what it waited for, and what came after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class OpRun:
    """An operation on one of its devices; times in seconds."""

    device: int
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An operation before or after another one."""

    op: int
    why: str
    """What ties the two: the value that the one makes and the other takes, or the device that runs both in turn."""
    gap: float
    """Seconds from the end of the earlier to the start of the later; with 0 the one held the other up."""


def runs_of(trace: Trace, op: int) -> tuple[OpRun, ...]:
    """One for each device; none of an operation that keeps nobody busy."""
    return tuple(
        OpRun(int(trace.device[i]), float(trace.start[i]), float(trace.seconds[i])) for i in _events(trace, op)
    )


def longest_operation(trace: Trace) -> int | None:
    """The one that keeps a device busy for longest, the first of several; None where none does."""
    return int(trace.op[trace.seconds.argmax()]) if trace.seconds.any() else None


def waited_for(trace: Trace, op: int) -> tuple[Neighbour, ...]:
    """The operations that make its inputs and those before it on its devices, the last to end first.

    Computing and communication of a device have a stream each; the one before on the other stream counts only where
    nothing else says why the operation did not start sooner.
    """
    program, start = trace.program, _start(trace, op)
    found = dict[int, Neighbour]()
    for value in program.ops[op].inputs:
        maker = int(trace.made_by[value])
        if maker >= 0:
            _keep(found, Neighbour(maker, f"%{program.value_name(value)}", start - float(trace.ready[value])))
    others = list[Neighbour]()
    for event in _events(trace, op):
        for before, same in _before(trace, event):
            gap = start - float(trace.start[before] + trace.seconds[before])
            each = Neighbour(int(trace.op[before]), f"in turn on device {int(trace.device[event])}", gap)
            if same:
                _keep(found, each)
            else:
                others.append(each)
    tolerance = trace.latency * SAME_MOMENT
    if all(each.gap > tolerance for each in found.values()):
        for each in others:
            if abs(each.gap) <= tolerance:
                _keep(found, each)
    return _sorted(found, tolerance)


def came_after(trace: Trace, op: int) -> tuple[Neighbour, ...]:
    """The operations that count this one among those that they waited for, the first to start first."""
    made = set(trace.program.ops[op].outputs)
    later = {i for i, each in enumerate(trace.program.ops[op + 1 :], op + 1) if not made.isdisjoint(each.inputs)}
    for event in _events(trace, op):
        later.update(int(trace.op[after]) for after in _after(trace, event))
    found = dict[int, Neighbour]()
    for number in later:
        for each in waited_for(trace, number):
            if each.op == op:
                _keep(found, Neighbour(number, each.why, each.gap))
    return _sorted(found, 0.0)


def _keep(found: dict[int, Neighbour], each: Neighbour) -> None:
    """Of two ties between the same operations, the one that binds."""
    if each.op not in found or each.gap < found[each.op].gap:
        found[each.op] = each


def _sorted(found: dict[int, Neighbour], tolerance: float) -> tuple[Neighbour, ...]:
    rounded = (Neighbour(each.op, each.why, each.gap if each.gap > tolerance else 0.0) for each in found.values())
    return tuple(sorted(rounded, key=lambda each: (each.gap, each.op)))


def _events(trace: Trace, op: int) -> range:
    """Events come in the order of the program."""
    return range(int(np.searchsorted(trace.op, op, "left")), int(np.searchsorted(trace.op, op, "right")))


def _start(trace: Trace, op: int) -> float:
    """Of an operation that keeps nobody busy: when its inputs are there."""
    events = _events(trace, op)
    if events:
        return float(trace.start[events[0]])
    return max((float(trace.ready[value]) for value in trace.program.ops[op].inputs), default=0.0)


def _before(trace: Trace, event: int) -> Iterator[tuple[int, bool]]:
    """The event before this one on each stream of its device, and whether that is its own stream."""
    here = trace.device[:event] == trace.device[event]
    for talks in (True, False):
        earlier = np.flatnonzero(here & (trace.communicates[:event] == talks))
        if len(earlier):
            yield int(earlier[-1]), bool(trace.communicates[event]) == talks


def _after(trace: Trace, event: int) -> Iterator[int]:
    """The event after this one on each stream of its device."""
    here = trace.device[event + 1 :] == trace.device[event]
    for talks in (True, False):
        later = np.flatnonzero(here & (trace.communicates[event + 1 :] == talks))
        if len(later):
            yield event + 1 + int(later[0])
