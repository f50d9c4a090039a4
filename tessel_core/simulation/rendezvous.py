"""DistIR's clocks: one per device, which every operation that spans devices brings together."""

from __future__ import annotations

from array import array
from itertools import repeat

import numpy as np

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program
from tessel_core.ir.types import HOST
from tessel_core.simulation.problem import Costs
from tessel_core.simulation.trace import Trace

Effect = tuple[tuple[int, ...], tuple[tuple[int, float], ...], bool]
"""Of an operation: devices that wait for each other, seconds per device, whether its outputs take memory."""


def simulate_in_order(program: Program, costs: Costs) -> Trace:
    """Operations in order: those on several devices wait until all are free, then keep each busy for its seconds.

    Memory: inputs are held from the start and for good; of each operation first all outputs are added, unless it
    works in place, then what it was the last to take is freed.  What nothing takes stays.
    """
    clock = dict.fromkeys(program.devices, 0.0)
    live = dict.fromkeys(program.devices, 0)
    peak = _Steps()
    sizes = {id(each): (each.device, each.bytes) for each in set(program.types)}
    where = [sizes.get(id(each), (each.device, each.bytes)) for each in program.types]
    ready = array("d", bytes(8 * len(program.types)))
    for value in program.inputs:
        device, amount = where[value]
        live[device] += amount
        peak.step(device, 0.0, live[device], value)
    uses = _left(program)
    ops, on, starts, spans = array("i"), array("i"), array("d"), array("d")
    effects: dict[object, Effect] = {}
    types = program.types
    for i, op in enumerate(program.ops):
        key = (op.kind, op.attributes, *map(id, map(types.__getitem__, op.inputs)))
        effect = effects.get(key)
        if effect is None:
            effect = effects[key] = _effect(program, op, costs)
        waiting, busy, acquires = effect
        if waiting:
            now = max(map(clock.__getitem__, waiting))
            clock.update(zip(waiting, repeat(now)))
        for device, seconds in busy:
            ops.append(i)
            on.append(device)
            starts.append(clock[device])
            spans.append(seconds)
            clock[device] += seconds
        for value in op.outputs:
            device, amount = where[value]
            ready[value] = clock[device]
            if acquires:
                live[device] += amount
                peak.step(device, clock[device], live[device], value)
        for value in op.inputs:
            uses[value] -= 1
            if not uses[value]:
                device, amount = where[value]
                live[device] -= amount
                peak.step(device, clock[device], live[device], -1 - value)
    workers = tuple(device for device in program.devices if device != HOST)
    return Trace(
        program,
        workers,
        np.array(ops, np.int32),
        np.array(on, np.int32),
        np.array(starts, np.float64),
        np.array(spans, np.float64),
        np.array(ready),
        tuple(clock[device] for device in workers),
        tuple(peak.highest.get(device, 0) for device in workers),
        np.array(peak.device, np.int32),
        np.array(peak.time, np.float64),
        np.array(peak.held, np.int64),
        np.array(peak.value, np.int32),
    )


class _Steps:
    """What devices hold over time."""

    def __init__(self) -> None:
        self.device, self.time, self.held = array("i"), array("d"), array("q")
        self.value = array("i")
        self.highest: dict[int, int] = {}

    def step(self, device: int, time: float, held: int, value: int) -> None:
        self.device.append(device)
        self.time.append(time)
        self.held.append(held)
        self.value.append(value)
        if held > self.highest.get(device, -1):
            self.highest[device] = held


def _left(program: Program) -> list[int]:
    """Per value, how often it is still taken; inputs are never used up."""
    uses = list(program.uses)
    for value in program.inputs:
        uses[value] = -1
    return uses


def _effect(program: Program, op: Op, costs: Costs) -> Effect:
    types, outputs = program.types_of(op.inputs), program.types_of(op.outputs)
    seconds = costs.seconds(op.kind, types, outputs, dict(op.attributes))
    devices = tuple(dict.fromkeys(each.device for each in (*types, *outputs)))
    takes_memory = not find_operator(op.kind).in_place
    return devices if len(devices) > 1 else (), tuple(seconds.items()), takes_memory
