"""Idle time of the devices of a simulated program, and its causes.

A device computes and communicates on two streams.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tessel_core.inspection import Cause, IdleCauses, IdleSplit
from tessel_core.inspection.causes import ends_of, split_idle
from tessel_core.inspection.stretches import union, union_of
from tessel_core.simulation.trace import Trace

_LATENCY_BITS = 53
"""Number of binary digits of the latency in ticks. A float has as many digits."""


@dataclass(frozen=True, slots=True)
class ProgramIdle:
    """Idle time of the devices of a trace, ordered by device. A device is idle while it does not compute."""

    split: IdleSplit
    """Parts of the idle time. There is no part for a lower bound, because none is known for programs."""
    causes: IdleCauses
    """Causes of each device's idle time.

    Warmup is the time before a device's first computation, and cooldown the time after its last. Between them, the
    cause is communication while the device communicates, and otherwise missing data. A device without operations waits
    for data all the time.
    """
    tick: float
    """Duration of a tick in seconds."""


def idle_of(trace: Trace) -> ProgramIdle | None:
    """Return the idle time of a trace from 0 to its latency. Return None if the program uses only the host.

    Seconds are rounded to ticks, such that the latency has between 2^52 and 2^53 ticks. Sums in ticks are exact.
    """
    if not trace.devices:
        return None
    shift = _LATENCY_BITS - math.frexp(trace.latency)[1]
    times = trace.start, trace.start + trace.seconds, np.array([trace.latency])
    start, end, (latency,) = (np.rint(np.ldexp(each, shift)).astype(np.int64) for each in times)
    order, length = np.argsort(trace.device, kind="stable"), int(latency)
    first, last = (np.searchsorted(trace.device[order], trace.devices, side) for side in ("left", "right"))
    busy, tests = [], []
    for events in (order[a:b] for a, b in zip(first, last, strict=True)):
        communicates = trace.communicates[events]
        computing, communicating = (
            union(start[some], end[some]) for some in (events[~communicates], events[communicates])
        )
        busy.append(computing)
        tests.append({**ends_of(union_of((computing, communicating)), length), Cause.COMMUNICATION: communicating})
    split = IdleSplit(tuple(each.ticks for each in busy), Fraction(length))
    return ProgramIdle(split, split_idle(length, busy, tests), math.ldexp(1.0, -shift))
