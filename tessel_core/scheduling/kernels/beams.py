"""Beam search: many beginnings of a schedule side by side, one more run in each at every step.

A beginning takes runs in the order of their starts.  A step appends a run as early as its devices, its predecessors,
memory and the pinned runs allow.  Of all the steps those are kept whose devices can end soonest: summed over devices,
the most of work that is left after it may begin and before what must follow it has to run.  What a device holds depends
on the order of its runs only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.compiled import compiled, inlined
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Pins(NamedTuple):
    """Runs that have their starts, in rows per device in the order of these; a run is micro-batch · blocks + block."""

    row: IntColumn
    start: IntColumn
    end: IntColumn
    memory: IntColumn
    free: IntColumn
    """Ticks before the start in which the device has no pinned run."""
    alike: IntColumn
    """Micro-batches without pins: of each block their runs come in this order."""
    special: IntColumn
    """The others."""
    is_special: NDArray[np.bool_]
    latest: IntColumn
    """The latest start that the pins allow, per run."""
    wait_row: IntColumn
    wait: IntColumn
    """Runs that a run waits for besides its predecessors."""


class Ways(NamedTuple):
    """What must follow blocks."""

    order: IntColumn
    """Blocks, each after its predecessors."""
    rest: IntColumn
    """The longest way from the end of a block to the end of everything, in ticks."""
    on: IntColumn
    """Blocks on a device, the longest rest first, in the rows of `Tables.on_row`."""


class Beam(NamedTuple):
    """Beginnings of a schedule, a row each."""

    starts: IntColumn
    """Per run, -1 where it is not in the beginning; pinned runs are from the first."""
    taken: IntColumn
    """Per block, runs of micro-batches that are alike."""
    left: IntColumn
    """Per block, runs still to come."""
    busy: IntColumn
    """Per device, the end of its last run, pinned ones apart."""
    passed: IntColumn
    """Per device, pinned runs before that."""
    held: IntColumn
    """Per device, after all of these."""
    clock: IntColumn
    """The last start."""


class Steps(NamedTuple):
    """Runs with which beginnings may go on."""

    parent: IntColumn
    run: IntColumn
    start: IntColumn
    score: IntColumn
    key: IntColumn
    """Equal where the beginnings have the same runs."""


@inlined
def _mixed(number: int) -> int:
    """The number spread over 62 bits."""
    number = (number ^ (number >> 31)) * 0x2545F4914F6CDD1D
    number = (number ^ (number >> 27)) * 0x1B873593CC9E2D51
    return (number ^ (number >> 33)) & 0x3FFFFFFFFFFFFFFF


@compiled
def _placed(
    tables: Tables, pins: Pins, beam: Beam, row: int, b: int, ready: int, passed: IntColumn, held: IntColumn
) -> int:
    """The earliest start from `ready` on of a run of block b at the end of a beginning; -1 where memory allows none.

    Sets which pinned runs the block's devices have passed before it, and what they hold then.
    """
    start, moved = ready, True
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        d = tables.place_device[place]
        passed[d], held[d] = beam.passed[row, d], beam.held[row, d]
        start = max(start, beam.busy[row, d])
    while moved:
        moved = False
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            while passed[d] < pins.row[d + 1] - pins.row[d]:
                pin = pins.row[d] + passed[d]
                fits = tables.memory[b] <= 0 or held[d] + tables.memory[b] <= tables.capacity[d]
                if fits and pins.start[pin] >= start + tables.duration[b]:
                    break
                if pins.memory[pin] > 0 and held[d] + pins.memory[pin] > tables.capacity[d]:
                    return -1
                passed[d] += 1
                held[d] += pins.memory[pin]
                if pins.end[pin] > start:
                    start, moved = pins.end[pin], True
            if tables.memory[b] > 0 and held[d] + tables.memory[b] > tables.capacity[d]:
                return -1
    return start


@compiled
def _ready(tables: Tables, pins: Pins, starts: IntColumn, run: int, clock: int) -> int:
    """When the runs that it waits for have ended; -1 where one is still to come."""
    blocks = tables.duration.size
    m, b = run // blocks, run % blocks
    ready = clock
    for arc in range(tables.before_row[b], tables.before_row[b + 1]):
        before = starts[m * blocks + tables.before[arc]]
        if before < 0:
            return -1
        ready = max(ready, before + tables.before_ticks[arc])
    for arc in range(pins.wait_row[run], pins.wait_row[run + 1]):
        before = starts[pins.wait[arc]]
        if before < 0:
            return -1
        ready = max(ready, before + tables.duration[pins.wait[arc] % blocks])
    return ready


@compiled
def _end_of(pins: Pins, d: int, first: int, work: int) -> int:
    """When so many ticks of work have been done on a device that begins with them at `first`, its pinned runs aside."""
    low, high = pins.row[d], pins.row[d + 1]
    if low == high:
        return first + work
    before = low + np.searchsorted(pins.start[low:high], first)
    free = first if before == low else pins.free[before - 1] + max(0, first - pins.end[before - 1])
    before = low + np.searchsorted(pins.free[low:high], free + work)
    return free + work if before == low else pins.end[before - 1] + free + work - pins.free[before - 1]


@compiled
def _score(
    tables: Tables, pins: Pins, ways: Ways, starts: IntColumn, taken: IntColumn, left: IntColumn, busy: IntColumn,
    clock: int, limit: int, soonest: IntColumn,
) -> int:  # fmt: skip
    """The least end of each device, summed; -1 where the schedule cannot end by `limit`."""
    blocks, alike = tables.duration.size, pins.alike.size
    for j in range(blocks):
        b = ways.order[j]
        at = clock
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            at = max(at, busy[tables.place_device[place]])
        if taken[b] < alike:
            m = pins.alike[taken[b]]
            for arc in range(tables.before_row[b], tables.before_row[b + 1]):
                p = tables.before[arc]
                if taken[p] > taken[b]:
                    at = max(at, starts[m * blocks + p] + tables.before_ticks[arc])
                else:
                    behind = (taken[b] - taken[p]) * tables.duration[p]
                    at = max(at, soonest[p] + behind + tables.before_ticks[arc])
        soonest[b] = at
        if left[b] > 0 and at + left[b] * tables.duration[b] + ways.rest[b] > limit:
            return -1
    score = 0
    for d in range(tables.capacity.size):
        work, first, most = 0, UNLIMITED, busy[d]
        for j in range(tables.on_row[d], tables.on_row[d + 1]):
            b = ways.on[j]
            if left[b] > 0:
                work += left[b] * tables.duration[b]
                first = min(first, soonest[b])
                most = max(most, _end_of(pins, d, first, work) + ways.rest[b])
        if most > limit:
            return -1
        score += most
    return score


@compiled
def _candidates(pins: Pins, beam: Beam, row: int, runs: IntColumn) -> int:
    """Writes the next run of each block and all runs to come of special micro-batches; returns how many."""
    blocks, found = beam.taken.shape[1], 0
    for b in range(blocks):
        if beam.taken[row, b] < pins.alike.size:
            runs[found] = pins.alike[beam.taken[row, b]] * blocks + b
            found += 1
    for m in pins.special:
        for run in range(m * blocks, (m + 1) * blocks):
            if beam.starts[row, run] < 0:
                runs[found] = run
                found += 1
    return found


@compiled
def next_steps(tables: Tables, pins: Pins, ways: Ways, beam: Beam, rows: int, limit: int, steps: Steps) -> int:
    """Write to `steps` with which runs the first `rows` beginnings may go on to end by `limit`; returns how many."""
    blocks, devices = tables.duration.size, tables.capacity.size
    passed, held = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    taken, left, soonest = np.zeros(blocks, np.int64), np.zeros(blocks, np.int64), np.zeros(blocks, np.int64)
    busy = np.zeros(devices, np.int64)
    runs = np.zeros(blocks * (1 + pins.special.size), np.int64)
    count = 0
    for row in range(rows):
        starts, key = beam.starts[row], 0
        for b in range(blocks):
            key ^= _mixed(b * 2**32 + beam.taken[row, b] + 1)
        for m in pins.special:
            for run in range(m * blocks, (m + 1) * blocks):
                if starts[run] >= 0:
                    key ^= _mixed(-1 - run)
        for i in range(_candidates(pins, beam, row, runs)):
            run = runs[i]
            m, b = run // blocks, run % blocks
            ready = _ready(tables, pins, starts, run, beam.clock[row])
            if ready < 0:
                continue
            start = _placed(tables, pins, beam, row, b, ready, passed, held)
            if start < 0 or start > pins.latest[run] or start + tables.duration[b] + ways.rest[b] > limit:
                continue
            taken[:], left[:] = beam.taken[row], beam.left[row]
            for d in range(devices):
                busy[d] = max(start, beam.busy[row, d])
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                busy[tables.place_device[place]] = start + tables.duration[b]
            left[b] -= 1
            after = key ^ _mixed(-1 - run)
            if not pins.is_special[m]:
                taken[b] += 1
                after = key ^ _mixed(b * 2**32 + taken[b]) ^ _mixed(b * 2**32 + taken[b] + 1)
            starts[run] = start
            score = _score(tables, pins, ways, starts, taken, left, busy, start, limit, soonest)
            starts[run] = -1
            if score >= 0:
                steps.parent[count], steps.run[count], steps.start[count] = row, run, start
                steps.score[count], steps.key[count] = score, after
                count += 1
    return count


@compiled
def take_steps(tables: Tables, pins: Pins, beam: Beam, steps: Steps, chosen: IntColumn, after: Beam) -> None:
    """Write the beginnings to which the chosen steps lead into the first rows of `after`."""
    blocks, devices = tables.duration.size, tables.capacity.size
    passed, held = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    for i in range(chosen.size):
        step = chosen[i]
        row, run, start = steps.parent[step], steps.run[step], steps.start[step]
        b = run % blocks
        after.starts[i], after.taken[i], after.left[i] = beam.starts[row], beam.taken[row], beam.left[row]
        after.busy[i], after.passed[i], after.held[i] = beam.busy[row], beam.passed[row], beam.held[row]
        _placed(tables, pins, beam, row, b, start, passed, held)
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            after.busy[i, d], after.passed[i, d] = start + tables.duration[b], passed[d]
            after.held[i, d] = held[d] + tables.memory[b]
        after.starts[i, run], after.clock[i] = start, start
        after.left[i, b] -= 1
        if not pins.is_special[run // blocks]:
            after.taken[i, b] += 1
