"""The default simulation: operations start when their inputs are there and their streams are free."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.simulation.problem import Costs
from tessel_core.simulation.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

_COMPUTE, _TALK = 0, 1


def simulate_streams(program: Program, costs: Costs, *, overlap: bool = True) -> Trace:
    """Each device has a stream for computing and, with `overlap`, one for communication, each in program order.

    An operation on several devices starts when the streams of all of them are free.  A value is held from the start
    of the operation that makes it to the end of the last that takes it; program outputs to the end, inputs always.
    Views hold nothing of their own, and keep what they look at.
    """
    last = max(program.devices) + 1
    clock = [[0.0] * last, [0.0] * last]
    if not overlap:
        clock[_TALK] = clock[_COMPUTE]
    ready = [0.0] * len(program.types)
    until = array("d", bytes(8 * len(program.types)))
    since = array("d", bytes(8 * len(program.types)))
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    known: dict[object, tuple[int, tuple[tuple[int, float], ...]]] = {}
    types = program.types
    for i, op in enumerate(program.ops):
        key = (op.kind, op.attributes, *map(id, map(types.__getitem__, op.inputs)))
        found = known.get(key)
        if found is None:
            found = known[key] = _costs(program, op, costs)
        stream, seconds = found
        free = clock[stream]
        start = 0.0
        for value in op.inputs:
            start = max(start, ready[value])
        for device, _ in seconds:
            start = max(start, free[device])
        end = start
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
    return _trace(program, (ops, on, starts, spans), (np.array(since), np.array(until)), ends)


def _costs(program: Program, op: Op, costs: Costs) -> tuple[int, tuple[tuple[int, float], ...]]:
    seconds = costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))
    return _TALK if find_operator(op.kind).pattern else _COMPUTE, tuple(seconds.items())


def _trace(
    program: Program,
    columns: tuple[array[int], array[int], array[float], array[float]],
    held: tuple[Floats, Floats],
    ends: Sequence[float],
) -> Trace:
    ops, on, starts, spans = columns
    workers = tuple(device for device in program.devices if device != HOST)
    device, time, amount = _steps(program, *held, max(ends))
    peaks = {each: int(amount[device == each].max(initial=0)) for each in workers}
    return Trace(
        program,
        workers,
        np.array(ops, np.int32),
        np.array(on, np.int32),
        np.array(starts),
        np.array(spans),
        tuple(ends[each] for each in workers),
        tuple(peaks[each] for each in workers),
        device,
        time,
        amount,
    )


def _steps(program: Program, since: Floats, until: Floats, end: float) -> tuple[Ints, Floats, NDArray[np.int64]]:
    """What each device holds over time: releases before acquires at one moment."""
    owner = _owners(program)
    np.maximum.at(until, owner, until)
    until[list(program.outputs)] = end
    until[list(program.inputs)] = np.inf
    size = np.array([each.bytes for each in program.types], np.int64)
    size[owner != np.arange(len(owner))] = 0
    device = np.array([each.device for each in program.types], np.int32)
    leaving = np.isfinite(until) & (until > since)
    kept = np.flatnonzero(size)
    gone = kept[leaving[kept]]
    devices = np.concatenate([device[kept], device[gone]])
    times = np.concatenate([since[kept], until[gone]])
    change = np.concatenate([size[kept], -size[gone]])
    order = np.lexsort((change, times, devices))
    devices, times, change = devices[order], times[order], change[order]
    total = np.cumsum(change)
    first = np.searchsorted(devices, devices, side="left")
    return devices, times, total - np.where(first > 0, total[first - 1], 0)


def _owners(program: Program) -> NDArray[np.int64]:
    """Per value, the one whose memory it is: itself, unless it was made in place or is a view."""
    owner = np.arange(len(program.types))
    for op in program.ops:
        operator = find_operator(op.kind)
        if operator.in_place:
            owner[list(op.outputs)] = owner[list(op.inputs[: len(op.outputs)])]
        elif operator.view:
            owner[list(op.outputs)] = owner[op.inputs[0]]
    return owner
