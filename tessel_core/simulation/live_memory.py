"""Memory that devices hold over time. It follows from the operations that compute and use each value."""

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
"""Times count as equal if they differ by less than this fraction of the whole time.

Such differences come from rounding.
"""


@dataclass(frozen=True, slots=True)
class MemorySteps:
    """Columns of memory steps: from `time[j]` seconds on, device `device[j]` holds `held[j]` bytes.

    The step allocates the memory of value `value[j]`. If `value[j]` is negative, the step frees that of value -1 -
    `value[j]`.
    """

    device: Ints
    time: Floats
    held: Numbers
    value: Ints

    @classmethod
    def summed(cls, order: Numbers, device: Ints, time: Floats, change: Numbers, value: Ints) -> MemorySteps:
        """Return changes of memory as steps. `order` must sort the changes by device first."""
        device, total = device[order], np.cumsum(change[order])
        first = np.searchsorted(device, device, side="left")
        return cls(device, time[order], total - np.where(first > 0, total[first - 1], 0), value[order])


def memory_steps(
    program: Program, since: Floats, until: Floats, end: float, spans: tuple[Floats, Floats]
) -> MemorySteps:
    """Return the memory steps of all devices.

    Operations need each value from `since` to `until`, in seconds. The function changes `until`. Program outputs are
    held to the end, and inputs all the time. Views and values that are computed in place have no memory of their own.
    They keep the memory of the value that they refer to. If several steps happen at the same time, memory is freed
    before other memory is allocated. `spans` are the starts and ends of operations. While an operation runs, it also
    holds its workspace. The number of a workspace is larger than those of all values.
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
    """Return the bytes of temporary memory that an operation holds while it runs, besides inputs and outputs."""
    rule = find_operator(op.kind).workspace
    return 0 if rule is None else round(rule(program.types_of(op.inputs), dict(op.attributes)))


def _workspaces(program: Program) -> tuple[Numbers, Ints, Numbers]:
    """Return the operations that have a workspace, their devices, and the bytes of the workspaces."""
    found = [
        (i, program.types[op.outputs[0]].device, size)
        for i, op in enumerate(program.ops)
        if (size := workspace_of(program, op))
    ]
    rows = np.array(found, np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1].astype(np.int32), rows[:, 2]


def _moments(times: Floats, tolerance: float) -> tuple[Numbers, Floats]:
    """Group times that differ by less than `tolerance`. Return the group of each time, and the time of that group."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    begins = np.diff(ordered, prepend=-np.inf) > tolerance
    moment = np.empty(len(times), np.int64)
    moment[order] = np.cumsum(begins) - 1
    return moment, ordered[begins][moment]


def owners(program: Program, *, views: bool = True) -> Numbers:
    """Return, for each value, the value whose memory it uses.

    A value uses its own memory, unless it is computed in place. With `views`, a view also uses the memory of another
    value.
    """
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
    """Return two columns, in program order: values that operations compute, and the operation that computes each."""
    return _columns(op.outputs for op in program.ops)


def takers(program: Program) -> tuple[Numbers, Numbers]:
    """Return two columns: the values that operations use, in program order, and the operation that uses each."""
    return _columns(op.inputs for op in program.ops)


def _columns(values: Iterable[tuple[int, ...]]) -> tuple[Numbers, Numbers]:
    rows = list(values)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    flat = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return flat, np.repeat(np.arange(len(rows)), lengths)


def per_operation(program: Program, find: Callable[[Op], T]) -> Iterator[T]:
    """Yield `find(op)` for each operation.

    `find` is called only once for operations of equal kind, attributes and input types.
    """
    type_of, known = _type_numbers(program), dict[object, T]()
    for op in program.ops:
        key = (op.kind, op.attributes, *[type_of[value] for value in op.inputs])
        found = known.get(key)
        if found is None:
            found = known[key] = find(op)
        yield found


def _type_numbers(program: Program) -> list[int]:
    """Return a number for each value's type. Values share a number if their types are the same object."""
    number: dict[int, int] = {}
    return [number.setdefault(id(each), len(number)) for each in program.types]


def devices_and_bytes(program: Program) -> tuple[Ints, Numbers]:
    """Return the device and the bytes of each value."""
    different = {id(each): each for each in program.types}
    which = np.array(_type_numbers(program), np.int64)
    devices = np.array([each.device for each in different.values()], np.int32)
    return devices[which], np.array([each.bytes for each in different.values()], np.int64)[which]
