"""The default simulation: operations start when their inputs are there and their streams are free."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.simulation.live_memory import Floats, memory_steps
from tessel_core.simulation.problem import Costs
from tessel_core.simulation.trace import Trace

COMPUTE, TALK = 0, 1
"""Streams of a device."""

Effect = tuple[int, tuple[tuple[int, float], ...], float]
"""Of an operation: its stream, seconds per device that it keeps busy, and how long it takes at least."""


def simulate_streams(program: Program, costs: Costs, *, overlap: bool = True) -> Trace:
    """Each device has a stream for computing and, with `overlap`, one for communication, each in program order.

    An operation on several devices starts when the streams of all of them are free.  A value is held from the start
    of the operation that makes it to the end of the last that takes it; program outputs to the end, inputs always.
    Views hold nothing of their own, and keep what they look at.
    """
    last = max(program.devices) + 1
    clock = [[0.0] * last, [0.0] * last]
    if not overlap:
        clock[TALK] = clock[COMPUTE]
    ready = array("d", bytes(8 * len(program.types)))
    until = array("d", bytes(8 * len(program.types)))
    since = array("d", bytes(8 * len(program.types)))
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    known: dict[object, Effect] = {}
    types = program.types
    for i, op in enumerate(program.ops):
        key = (op.kind, op.attributes, *map(id, map(types.__getitem__, op.inputs)))
        found = known.get(key)
        if found is None:
            found = known[key] = effect_of(program, op, costs)
        stream, seconds, least = found
        free = clock[stream]
        start = 0.0
        for value in op.inputs:
            start = max(start, ready[value])
        for device, _ in seconds:
            start = max(start, free[device])
        end = start + least
        for device, span in seconds:
            ops.append(i)
            on.append(device)
            starts.append(start)
            spans.append(span)
            free[device] = start + span
            end = max(end, start + span)
        for value in op.inputs:
            until[value] = max(until[value], end)
        for value in op.outputs:
            ready[value], since[value], until[value] = end, start, end
    ends = [max(one, other) for one, other in zip(*clock, strict=True)]
    return traced(program, (ops, on, starts, spans), np.array(ready), (np.array(since), np.array(until)), ends)


def effect_of(program: Program, op: Op, costs: Costs) -> Effect:
    """What an operation does to its devices."""
    operator = find_operator(op.kind)
    seconds = costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))
    stream = TALK if operator.pattern else COMPUTE
    if not operator.occupies:
        return stream, (), max(seconds.values())
    return stream, tuple(seconds.items()), 0.0


def traced(
    program: Program,
    columns: tuple[array[int], array[int], array[float], array[float]],
    ready: Floats,
    held: tuple[Floats, Floats],
    ends: Sequence[float],
) -> Trace:
    """The trace of events (operation, device, start, seconds), of when values are ready and held, of devices' ends."""
    ops, on, starts, spans = columns
    workers = tuple(device for device in program.devices if device != HOST)
    steps = memory_steps(program, *held, max(ends))
    return Trace(
        program,
        workers,
        np.array(ops, np.int32),
        np.array(on, np.int32),
        np.array(starts),
        np.array(spans),
        ready,
        tuple(ends[each] for each in workers),
        tuple(int(steps.held[steps.device == each].max(initial=0)) for each in workers),
        steps.device,
        steps.time,
        steps.held,
        steps.value,
    )
