"""The default simulation. An operation starts when its inputs are ready and its streams are free."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.simulation.costs import Costs
from tessel_core.simulation.live_memory import makers, memory_steps, per_operation, takers
from tessel_core.simulation.trace import COMPUTE, Stream, Trace, stream_of

Effect = tuple[Stream, tuple[tuple[int, float], ...], float]
"""Stream of an operation, seconds for which it keeps each device busy, and its shortest duration."""


def simulate_streams(program: Program, costs: Costs, *, overlap: bool = True) -> Trace:
    """Simulate with one compute stream per device. With `overlap`, each process group has a stream of its own.

    Each stream runs its operations in program order. An operation on several devices starts when its stream is free on
    all of them. A value is held from the start of the operation that computes it to the end of the last operation that
    uses it. Program outputs are held to the end, and inputs all the time. A view has no memory of its own, but keeps
    that of the value that it shows. Transfers do not slow each other down.

    Raises InputError for devices that the costs do not know.
    """
    clock: dict[Stream, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    ready = [0.0] * len(program.types)
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    op_start, op_end = array("d"), array("d")
    effects = per_operation(program, lambda op: effect_of(program, op, costs))
    for i, (op, (stream, seconds, least)) in enumerate(zip(program.ops, effects, strict=True)):
        free = clock[stream if overlap else COMPUTE]
        start = max([ready[value] for value in op.inputs], default=0.0)
        for device, _ in seconds:
            start = max(start, free[device])
        end = start + least
        for device, span in seconds:
            ops.append(i)
            on.append(device)
            starts.append(start)
            spans.append(span)
            done = free[device] = start + span
            end = max(end, done)
        op_start.append(start)
        op_end.append(end)
        for value in op.outputs:
            ready[value] = end
    ends = [0.0] * (max(program.devices) + 1)
    for of_stream in clock.values():
        for device, end in of_stream.items():
            ends[device] = max(ends[device], end)
    return traced(program, (ops, on, starts, spans), op_start, op_end, ends)


def effect_of(program: Program, op: Op, costs: Costs) -> Effect:
    """Return the stream of an operation, its busy time on each device, and its shortest duration."""
    operator = find_operator(op.kind)
    seconds = costs.seconds(op.kind, program.types_of(op.inputs), program.types_of(op.outputs), dict(op.attributes))
    stream = stream_of(program, op)
    if not operator.occupies:
        return stream, (), max(seconds.values())
    return stream, tuple(seconds.items()), 0.0


def traced(
    program: Program,
    columns: tuple[array[int], array[int], array[float], array[float]],
    op_start: Sequence[float],
    op_end: Sequence[float],
    ends: Sequence[float],
) -> Trace:
    """Build a trace.

    `columns` describe the events by operation, device, start and seconds. `op_start` and `op_end` are the starts and
    ends of operations, and `ends` those of devices.
    """
    start, end, count = np.array(op_start), np.array(op_end), len(program.types)
    (made, maker), (taken, taker) = makers(program), takers(program)
    since, until = np.zeros(count), np.zeros(count)
    since[made], until[made] = start[maker], end[maker]
    ready = until.copy()
    np.maximum.at(until, taken, end[taker])
    ops, on, starts, spans = columns
    events = np.array(ops, np.int32), np.array(on, np.int32), np.array(starts), np.array(spans)
    return Trace.of(program, events, ready, ends, memory_steps(program, since, until, max(ends), (start, end)))
