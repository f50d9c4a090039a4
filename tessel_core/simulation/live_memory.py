"""Memory that devices hold over time, from who makes and who takes every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.operators import find_operator
from tessel_core.ir.program import Op, Program

T = TypeVar("T")
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Numbers = NDArray[np.int64]

SAME_MOMENT = 2.0**-40
"""Share of the whole time; moments that are closer differ by rounding only."""


@dataclass(frozen=True, slots=True)
class MemorySteps:
    """Columns: at `time[j]` device `device[j]` takes or frees value `value[j]`, and from then on holds `held[j]` bytes.

    A value v that is freed stands as -1 - v.
    """

    device: Ints
    time: Floats
    held: Numbers
    value: Ints

    @classmethod
    def summed(cls, order: Numbers, device: Ints, time: Floats, change: Numbers, value: Ints) -> MemorySteps:
        """Changes of memory as steps, in an `order` that sorts by device first."""
        device, total = device[order], np.cumsum(change[order])
        first = np.searchsorted(device, device, side="left")
        return cls(device, time[order], total - np.where(first > 0, total[first - 1], 0), value[order])


def memory_steps(
    program: Program, since: Floats, until: Floats, end: float, spans: tuple[Floats, Floats]
) -> MemorySteps:
    """Steps of all devices, from the seconds from and to which operations need each value; `until` is changed.

    Program outputs are held for good and inputs always.  Views and what is made in place hold nothing, and keep what
    they look at.  At one moment what is freed goes before what is taken.  `spans` are the starts and ends of
    operations; while one runs it holds its workspace, which stands as a value behind the others, by its number.
    """
    ops, places, bytes_ = _workspaces(program)
    spaces = (ops + len(program.types)).astype(np.int32)
    owner = owners(program)
    np.maximum.at(until, owner, until)
    until[[*program.outputs, *program.inputs]] = np.inf
    device, size = devices_and_bytes(program)
    size[owner != np.arange(len(owner))] = 0
    taken = np.flatnonzero((size > 0) & (until > since)).astype(np.int32)
    freed = taken[np.isfinite(until[taken])]
    devices = np.concatenate([device[taken], device[freed], places, places])
    when = np.concatenate([since[taken], until[freed], spans[0][ops], spans[1][ops]])
    moment, times = _moments(when, end * SAME_MOMENT)
    change = np.concatenate([size[taken], -size[freed], bytes_, -bytes_])
    order = np.lexsort((change, moment, devices))
    return MemorySteps.summed(order, devices, times, change, np.concatenate([taken, -1 - freed, spaces, -1 - spaces]))


def workspace_of(program: Program, op: Op) -> int:
    """Bytes that an operation holds while it runs, beside its inputs and outputs."""
    rule = find_operator(op.kind).workspace
    return 0 if rule is None else round(rule(program.types_of(op.inputs), dict(op.attributes)))


def _workspaces(program: Program) -> tuple[Numbers, Ints, Numbers]:
    """Operations with a workspace, their devices and its bytes."""
    found = [
        (i, program.types[op.outputs[0]].device, size)
        for i, op in enumerate(program.ops)
        if (size := workspace_of(program, op))
    ]
    rows = np.array(found, np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1].astype(np.int32), rows[:, 2]


def _moments(times: Floats, tolerance: float) -> tuple[Numbers, Floats]:
    """Per time, the number of its moment and when that is: times that lie close together are one."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    begins = np.diff(ordered, prepend=-np.inf) > tolerance
    moment = np.empty(len(times), np.int64)
    moment[order] = np.cumsum(begins) - 1
    return moment, ordered[begins][moment]


def owners(program: Program, *, views: bool = True) -> Numbers:
    """Per value, the one whose memory it is: itself, unless it was made in place or, with `views`, is a view."""
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


def makers(program: Program) -> tuple[Numbers, Numbers]:
    """Values that operations make, in order, and the operation that makes each."""
    return _columns(op.outputs for op in program.ops)


def takers(program: Program) -> tuple[Numbers, Numbers]:
    """Values that operations take, in order, and the operation that takes each."""
    return _columns(op.inputs for op in program.ops)


def _columns(values: Iterable[tuple[int, ...]]) -> tuple[Numbers, Numbers]:
    rows = list(values)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return flat, np.repeat(np.arange(len(rows)), lengths)


def per_operation(program: Program, find: Callable[[Op], T]) -> Iterator[T]:
    """Yield `find` of each operation, called once for all of one kind with equal attributes and input types."""
    type_of, known = _type_numbers(program), dict[object, T]()
    for op in program.ops:
        key = (op.kind, op.attributes, *[type_of[value] for value in op.inputs])
        found = known.get(key)
        if found is None:
            found = known[key] = find(op)
        yield found


def _type_numbers(program: Program) -> list[int]:
    """Per value a number of its type; equal types that are one object have one number."""
    number: dict[int, int] = {}
    return [number.setdefault(id(each), len(number)) for each in program.types]


def devices_and_bytes(program: Program) -> tuple[Ints, Numbers]:
    """Per value, its device and its size."""
    different = {id(each): each for each in program.types}
    which = np.array(_type_numbers(program), np.int64)
    devices = np.array([each.device for each in different.values()], np.int32)
    return devices[which], np.array([each.bytes for each in different.values()], np.int64)[which]
