"""A lower bound on the largest load of a layout. The bound lets groups be on any device, without regard to the flow.

A group is a set of operators that must share a device. Groups with equal times and bytes, such as equal layers, are of
one kind. The share of a device is the number of groups of each kind on it. A place is the position of a device in
`LayoutTask.devices`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tessel_core.control import Control
from tessel_core.placement.layout_task import LayoutTask
from tessel_core.placement.pipeline import EQUAL_LOADS, Floats

_MAX_SHARES = 5_000
"""Largest number of ways to choose how many groups of each kind a device has.

With more, the dynamic program takes longer than a second.
"""

Counts = tuple[tuple[int, ...], ...]
"""Number of groups of each kind on each device, shaped (kinds, places)."""


@dataclass(frozen=True)
class Spread:
    """The least largest load if groups are spread freely over devices, and the numbers of groups on each device.

    If no spread fits in memory, `load` is infinite and `counts` is None.
    """

    load: float
    counts: Counts | None


def spread_freely(task: LayoutTask, most: float, control: Control) -> Spread | None:
    """Return the best spread with a load of at most `most`. None if there are too many kinds, or if `control` stopped.

        best[p][shares] = min over the share x of place p of max(best[p - 1][shares - x], time of x on p)

    best[p][shares] is the least largest load if places 0 … p together have `shares`, a number of groups of each kind.
    Groups with only one possible stage are fixed there. Transfers are left out, and activations count only for the
    least number of micro-batches in flight. So the load is a lower bound.
    """
    shape = tuple(len(members) + 1 for members in _free(task))
    if math.prod(shape) > _MAX_SHARES:
        return None
    best = np.full(shape, np.inf)
    best[(0,) * len(shape)] = 0.0
    stack = [best]
    loads = [_loads(task, place, shape, most) for place in range(len(task.devices))]
    for load in loads:
        if control.stopped:
            return None
        stack.append(_with_one_more(stack[-1], load))
    whole = tuple(size - 1 for size in shape)
    largest = float(stack[-1][whole])
    return Spread(largest, None if math.isinf(largest) else _counts(task, stack, loads))


def _free(task: LayoutTask) -> list[tuple[int, ...]]:
    """Return the kinds whose groups have several possible stages. A kind is a tuple of groups."""
    return [members for members in task.kinds if _stage(task, members) is None]


def _stage(task: LayoutTask, members: tuple[int, ...]) -> int | None:
    """Return the only possible stage of a kind of groups, or None if there are several."""
    first, last = task.windows[members[0]]
    return first if first == last else None


def _loads(task: LayoutTask, place: int, shape: tuple[int, ...], most: float) -> Floats:
    """Return the load of a device for each share. The array has one axis per kind, with the number of groups as index.

    A load is infinite if it is above `most`, if the groups exceed the capacity, or if the device does not support a
    group.
    """
    time, held = task.time[place], task.static + task.least_in_flight[place] * task.activation
    fixed = [v for v, (first, last) in enumerate(task.windows) if first == last and task.place_of[first] == place]
    load, memory = np.full(shape, time[fixed].sum()), np.full(shape, held[fixed].sum())
    for axis, members in enumerate(_free(task)):
        number = np.arange(shape[axis]).reshape([-1 if each == axis else 1 for each in range(len(shape))])
        load = load + np.where(number, number * time[members[0]] if np.isfinite(time[members[0]]) else np.inf, 0.0)
        memory = memory + number * held[members[0]]
    return np.where((load <= most * (1 + EQUAL_LOADS)) & (memory <= task.capacity[place]), load, np.inf)


def _shares(load: Floats) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield each possible share of a device, and its load."""
    for share in np.argwhere(np.isfinite(load)).tolist():
        yield tuple(share), float(load[tuple(share)])


def _with_one_more(best: Floats, load: Floats) -> Floats:
    """Return the table `best` of `spread_freely` for one more place, which has the load `load[x]` with the share x."""
    extended = np.full(best.shape, np.inf)
    for share, time in _shares(load):
        more = tuple(slice(number, None) for number in share)
        before = best[tuple(slice(0, size - number) for size, number in zip(best.shape, share, strict=True))]
        extended[more] = np.minimum(extended[more], np.maximum(before, time))
    return extended


def _counts(task: LayoutTask, stack: list[Floats], loads: list[Floats]) -> Counts:
    """Return the numbers of groups in the best spread, by walking back through the tables `stack`."""
    left = tuple(size - 1 for size in stack[0].shape)
    shares = [left] * len(loads)
    for place in reversed(range(len(loads))):
        target, before = stack[place + 1][left], stack[place]
        for share, time in _shares(loads[place]):
            rest = tuple(all_of - some for all_of, some in zip(left, share, strict=True))
            if min(rest, default=0) >= 0 and max(float(before[rest]), time) <= target:
                shares[place], left = share, rest
                break
    free, counts = iter(zip(*shares, strict=True)), list[tuple[int, ...]]()
    for members in task.kinds:
        stage = _stage(task, members)
        there = None if stage is None else task.place_of[stage]
        counts.append(next(free) if there is None else tuple(int(p == there) for p in range(len(loads))))
    return tuple(counts)
