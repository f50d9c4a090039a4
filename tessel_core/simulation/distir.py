"""DistIR's clocks: one per device, which every operation that spans devices brings together."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.simulation.costs import Costs
from tessel_core.simulation.live_memory import MemorySteps, ValueUses, devices_and_bytes, owners, type_numbers
from tessel_core.simulation.trace import Trace

Effect = tuple[tuple[int, ...], tuple[tuple[int, float], ...]]
"""Of an operation: devices that wait for each other, and seconds of each of its devices."""


def simulate_in_order(program: Program, costs: Costs) -> Trace:
    """Operations in order: those on several devices wait until all are free, then keep each busy for its seconds.

    Memory: inputs are held from the start and for good; of each operation first all outputs are added, then what it
    was the last to take is freed.  What nothing takes stays.  What is made in place takes nothing, and whatever takes
    it keeps what it is made in; all else is a copy, as DistIR knows no views.
    """
    clock = [0.0] * (1 + max(program.devices, default=0))
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    effects: dict[object, Effect] = {}
    type_of = type_numbers(program)
    for i, op in enumerate(program.ops):
        key = (op.kind, op.attributes, *[type_of[value] for value in op.inputs])
        effect = effects.get(key)
        if effect is None:
            effect = effects[key] = _effect(program, op, costs)
        waiting, busy = effect
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
    events = _Events(np.array(ops, np.int32), np.array(on, np.int32), np.array(starts), np.array(spans))
    ready, steps = _values(program, events)
    workers = tuple(device for device in program.devices if device != HOST)
    return Trace(
        program,
        workers,
        events.op,
        events.device,
        events.start,
        events.seconds,
        ready,
        tuple(clock[device] for device in workers),
        tuple(int(steps.held[steps.device == device].max(initial=0)) for device in workers),
        steps.device,
        steps.time,
        steps.held,
        steps.value,
    )


def _effect(program: Program, op: Op, costs: Costs) -> Effect:
    types, outputs = program.types_of(op.inputs), program.types_of(op.outputs)
    seconds = costs.seconds(op.kind, types, outputs, dict(op.attributes))
    devices = program.devices_of(op)
    return devices if len(devices) > 1 else (), tuple((device, seconds.get(device, 0.0)) for device in devices)


class _Events:
    """Columns, an event for every device of every operation."""

    def __init__(
        self,
        op: NDArray[np.int32],
        device: NDArray[np.int32],
        start: NDArray[np.float64],
        seconds: NDArray[np.float64],
    ) -> None:
        self.op, self.device, self.start, self.seconds = op, device, start, seconds
        self._devices = 1 + int(device.max(initial=0))
        keys = op.astype(np.int64) * self._devices + device
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def end(self, op: NDArray[np.int64], device: NDArray[np.int32]) -> NDArray[np.float64]:
        """When operations are done on their devices."""
        found = self._order[np.searchsorted(self._keys, op * self._devices + device)]
        return np.asarray(self.start[found] + self.seconds[found])


def _values(program: Program, events: _Events) -> tuple[NDArray[np.float64], MemorySteps]:
    """When values are ready, and what devices hold: of each operation, what it takes memory for, then what it frees."""
    uses, inputs = ValueUses.of(program), np.array(program.inputs, np.int64)
    device, size = devices_and_bytes(program)
    place = owners(program, views=False)
    ready, last = np.zeros(len(device)), np.full(len(device), -1)
    ready[uses.made] = events.end(uses.maker, device[uses.made])
    np.maximum.at(last, place[uses.taken], uses.taker)
    last[inputs] = -1
    freed, fresh = np.flatnonzero(last >= 0), place[uses.made] == uses.made
    values = np.concatenate((inputs, uses.made[fresh], freed))
    # At the same operation what it makes goes before what it frees.
    turn = np.concatenate((np.full(len(inputs), -1), 2 * uses.maker[fresh], 2 * last[freed] + 1))
    change = np.concatenate((size[inputs], size[uses.made[fresh]], -size[freed]))
    time = np.concatenate((np.zeros(len(inputs)), ready[uses.made[fresh]], events.end(last[freed], device[freed])))
    told = np.concatenate((inputs, uses.made[fresh], -1 - freed)).astype(np.int32)
    order = np.lexsort((turn, device[values]))
    where = device[values][order]
    total = np.cumsum(change[order])
    first = np.searchsorted(where, where, side="left")
    held = total - np.where(first > 0, total[first - 1], 0)
    return ready, MemorySteps(where, time[order], held, told[order])
