"""The simulation of DistIR. Each device has one clock. An operation on several devices synchronizes their clocks."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.program import Op, Program
from tessel_core.simulation.costs import Costs
from tessel_core.simulation.live_memory import (
    Floats,
    Ints,
    MemorySteps,
    Numbers,
    devices_and_bytes,
    makers,
    owners,
    per_operation,
    takers,
)
from tessel_core.simulation.trace import Events, Trace

Effect = tuple[tuple[int, ...], tuple[tuple[int, float], ...]]
"""Devices that wait for each other to run an operation, and the seconds for which it keeps each of them busy."""


def simulate_distir(program: Program, costs: Costs) -> Trace:
    """Simulate the operations in order, with the rules of DistIR.

    An operation on several devices starts when all of them are free. It keeps each device busy for its own number of
    seconds.

    Memory: inputs are held from the start to the end. Each operation first adds all of its outputs. Then it frees its
    inputs that have no later use. Values that no operation uses stay. An output that overwrites an input needs no
    memory of its own. As long as it is used, the memory of the input stays. Every other output is a copy, because
    DistIR has no views.
    """
    clock = [0.0] * (1 + max(program.devices, default=0))
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    for i, (waiting, busy) in enumerate(per_operation(program, lambda op: _effect(program, op, costs))):
        if waiting:
            now = max([clock[device] for device in waiting])
            for device in waiting:
                clock[device] = now
        for device, seconds in busy:
            start = clock[device]
            ops.append(i)
            on.append(device)
            starts.append(start)
            spans.append(seconds)
            clock[device] = start + seconds
    events = np.array(ops, np.int32), np.array(on, np.int32), np.array(starts), np.array(spans)
    ready, steps = _values(program, events)
    return Trace.of(program, events, ready, clock, steps)


def _effect(program: Program, op: Op, costs: Costs) -> Effect:
    types, outputs = program.types_of(op.inputs), program.types_of(op.outputs)
    seconds = costs.seconds(op.kind, types, outputs, dict(op.attributes))
    devices = program.devices_of(op)
    return devices if len(devices) > 1 else (), tuple((device, seconds.get(device, 0.0)) for device in devices)


def _values(program: Program, events: Events) -> tuple[Floats, MemorySteps]:
    """Return the time at which each value is ready, and the memory steps of all devices.

    Each operation first adds memory, then frees memory.
    """
    op, on, start, seconds = events
    width = 1 + int(on.max(initial=0))
    keys = op.astype(np.int64) * width + on
    by_key = np.argsort(keys, kind="stable")

    def end(ops: Numbers, devices: Ints) -> NDArray[np.float64]:
        """Return the end of each operation on its device."""
        found = by_key[np.searchsorted(keys, ops * width + devices, sorter=by_key)]
        return np.asarray(start[found] + seconds[found])

    (made, maker), (taken, taker), inputs = makers(program), takers(program), np.array(program.inputs, np.int64)
    device, size = devices_and_bytes(program)
    owner = owners(program, views=False)
    ready, last = np.zeros(len(device)), np.full(len(device), -1)
    ready[made] = end(maker, device[made])
    np.maximum.at(last, owner[taken], taker)
    last[inputs] = -1
    freed, own = np.flatnonzero(last >= 0), owner[made] == made
    made, maker = made[own], maker[own]
    devices = device[np.concatenate((inputs, made, freed))]
    # Sort by operation. Values that an operation computes come before values that it frees.
    turn = np.concatenate((np.full(len(inputs), -1), 2 * maker, 2 * last[freed] + 1))
    change = np.concatenate((size[inputs], size[made], -size[freed]))
    time = np.concatenate((np.zeros(len(inputs)), ready[made], end(last[freed], device[freed])))
    value = np.concatenate((inputs, made, -1 - freed)).astype(np.int32)
    return ready, MemorySteps.summed(np.lexsort((turn, devices)), devices, time, change, value)
