"""What devices hold over time, from when every value is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program
from tessel_core.simulation.uses import devices_and_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

SAME_MOMENT = 2.0**-40
"""Of the whole time: moments that are closer differ by rounding only."""


@dataclass(frozen=True, slots=True)
class MemorySteps:
    """Columns: at `time[j]` device `device[j]` takes or frees value `value[j]`, and from then on holds `held[j]` bytes.

    A value v that is freed stands as -1 - v.
    """

    device: Ints
    time: Floats
    held: NDArray[np.int64]
    value: Ints


def memory_steps(program: Program, since: Floats, until: Floats, end: float) -> MemorySteps:
    """Steps of all devices, from the seconds from and to which operations need each value; `until` is changed.

    Program outputs are held for good and inputs always.  Views and what is made in place hold nothing, and keep what
    they look at.  At one moment what is freed goes before what is taken.
    """
    owner = owners(program)
    np.maximum.at(until, owner, until)
    until[[*program.outputs, *program.inputs]] = np.inf
    device, size = devices_and_bytes(program)
    size[owner != np.arange(len(owner))] = 0
    kept = np.flatnonzero((size > 0) & (until > since)).astype(np.int32)
    gone = kept[np.isfinite(until[kept])]
    devices = np.concatenate([device[kept], device[gone]])
    moment, times = _moments(np.concatenate([since[kept], until[gone]]), end * SAME_MOMENT)
    change = np.concatenate([size[kept], -size[gone]])
    values = np.concatenate([kept, -1 - gone])
    order = np.lexsort((change, moment, devices))
    devices, total = devices[order], np.cumsum(change[order])
    first = np.searchsorted(devices, devices, side="left")
    held = total - np.where(first > 0, total[first - 1], 0)
    return MemorySteps(devices, times[order], held, values[order])


def _moments(times: Floats, tolerance: float) -> tuple[NDArray[np.int64], Floats]:
    """Per time, the number of its moment and when that is: times that lie close together are one."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    begins = np.diff(ordered, prepend=-np.inf) > tolerance
    moment = np.empty(len(times), np.int64)
    moment[order] = np.cumsum(begins) - 1
    return moment, ordered[begins][moment]


def owners(program: Program, *, views: bool = True) -> NDArray[np.int64]:
    """Per value, the one whose memory it is: itself, unless it was made in place or is a view, where there are any."""
    owner = np.arange(len(program.types))
    known = {kind: find_operator(kind) for kind in {op.kind for op in program.ops}}
    in_place = {kind for kind, operator in known.items() if operator.in_place}
    looking = {kind for kind, operator in known.items() if operator.view and views}
    for op in program.ops:
        if op.kind in in_place:
            owner[list(op.outputs)] = owner[list(op.inputs[: len(op.outputs)])]
        elif op.kind in looking:
            owner[list(op.outputs)] = owner[op.inputs[0]]
    return owner
