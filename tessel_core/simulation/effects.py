"""What operations do to their devices, and the trace that comes of it."""

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
