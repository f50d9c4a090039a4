"""How much the devices of a program stand idle, and why: the two splits of a schedule's idle time, on two streams."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tessel_core.inspection import Cause, IdleCauses, IdleSplit
from tessel_core.inspection.causes import ends_of, split_idle
from tessel_core.inspection.stretches import union, union_of
from tessel_core.simulation.trace import Trace

_BITS = 53
"""Of the latency in ticks: as many digits as a float has."""


@dataclass(frozen=True, slots=True)
class ProgramIdle:
    """Idle time of the devices of a trace, in its order; a device is idle while it does not compute."""

    split: IdleSplit
    """Without a bound: none is known of a program."""
    causes: IdleCauses
    """Warmup before the first operation of a device, cooldown after the last; between them, communication while it
    communicates, data the rest.  A device without operations that take time waits for data all the time."""
    tick: float
    """Seconds."""


def idle_of(trace: Trace) -> ProgramIdle | None:
    """The idle time of a trace from 0 to its latency; None where the program uses no device but the host.

    Seconds are rounded to ticks, 2^52 to 2^53 of them in the latency; of these both splits are exact.
    """
    if not trace.devices:
        return None
    shift = _BITS - math.frexp(trace.latency)[1]
    times = trace.start, trace.start + trace.seconds, np.array([trace.latency])
    start, end, (latency,) = (np.rint(np.ldexp(each, shift)).astype(np.int64) for each in times)
    order, length = np.argsort(trace.device, kind="stable"), int(latency)
    first, last = (np.searchsorted(trace.device[order], trace.devices, side) for side in ("left", "right"))
    busy, tests = [], []
    for mine in (order[a:b] for a, b in zip(first, last, strict=True)):
        communicates = trace.communicates[mine]
        computing, communicating = (union(start[some], end[some]) for some in (mine[~communicates], mine[communicates]))
        busy.append(computing)
        tests.append({**ends_of(union_of((computing, communicating)), length), Cause.COMMUNICATION: communicating})
    split = IdleSplit(tuple(each.ticks for each in busy), Fraction(length))
    return ProgramIdle(split, split_idle(length, busy, tests), math.ldexp(1.0, -shift))
