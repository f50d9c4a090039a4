"""DistIR's clocks and memory in simple Python, the oracle of the simulator."""

from __future__ import annotations

from tessel_core.ir.program import Program
from tessel_core.simulation.costs import Costs

IN_PLACE = ("sgd", "adam", "write", "allgather_in_place")
"""Operators whose output is in the memory of their first input."""


def slowly(program: Program, costs: Costs) -> tuple[dict[int, float], dict[int, int]]:
    """Return the end time and the peak memory of each device."""
    place = {value: value for value in range(len(program.types))}
    for op in program.ops:
        if op.kind in IN_PLACE:
            place.update(zip(op.outputs, (place[value] for value in op.inputs), strict=False))
    clock = {each.device: 0.0 for each in program.types}
    live: dict[int, set[int]] = {device: set() for device in clock}
    for value in program.inputs:
        live[program.types[value].device].add(value)
    peak = {device: _held(program, live[device]) for device in clock}
    for i, op in enumerate(program.ops):
        taken = [program.types[value] for value in op.inputs]
        made = [program.types[value] for value in op.outputs]
        devices = {each.device for each in taken + made}
        start = max(clock[device] for device in devices)
        for device in devices:
            clock[device] = start
        for device, seconds in costs.seconds(op.kind, taken, made, dict(op.attributes)).items():
            clock[device] += seconds
        if op.kind not in IN_PLACE:
            for value in op.outputs:
                live[program.types[value].device].add(value)
        for device in devices:
            peak[device] = max(peak[device], _held(program, live[device]))
        later = {place[value] for other in program.ops[i + 1 :] for value in other.inputs}
        for value in map(place.__getitem__, op.inputs):
            if value not in later and value not in program.inputs:
                live[program.types[value].device].discard(value)
    return clock, peak


def _held(program: Program, values: set[int]) -> int:
    return sum(program.types[value].bytes for value in values)
