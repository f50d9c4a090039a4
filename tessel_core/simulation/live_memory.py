"""What devices hold over time, from when every value is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Program

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


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ValueUses:
    """Row j: operation `maker[j]` makes value `made[j]`; row k: operation `taker[k]` takes `taken[k]`; in order."""

    made: Numbers
    maker: Numbers
    taken: Numbers
    taker: Numbers

    @classmethod
    def of(cls, program: Program) -> ValueUses:
        """Of all operations."""
        made, maker = _columns(op.outputs for op in program.ops)
        taken, taker = _columns(op.inputs for op in program.ops)
        return cls(made, maker, taken, taker)


def _columns(values: Iterable[tuple[int, ...]]) -> tuple[Numbers, Numbers]:
    rows = list(values)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), np.repeat(
        np.arange(len(rows)), lengths
    )


def type_numbers(program: Program) -> list[int]:
    """Per value a number of its type; equal types that are one object have one number."""
    number: dict[int, int] = {}
    return [number.setdefault(id(each), len(number)) for each in program.types]


def devices_and_bytes(program: Program) -> tuple[NDArray[np.int32], Numbers]:
    """Per value."""
    different = {id(each): each for each in program.types}
    which = np.array(type_numbers(program), np.int64)
    devices = np.array([each.device for each in different.values()], np.int32)
    return devices[which], np.array([each.bytes for each in different.values()], np.int64)[which]
