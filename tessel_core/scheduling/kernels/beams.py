"""Beam search: many beginnings of a schedule side by side, one more run in each at every step.

A beginning takes runs in the order of their starts.  A step appends a run as early as its devices, its predecessors,
memory and the pinned runs allow.  Of all the steps those are kept whose devices can end soonest: summed over devices,
the most of work that is left after it may begin and before what must follow it has to run.  What a device holds depends
on the order of its runs only.

Left out without loss is a beginning that

- another dominates: it has the same runs, and whatever completes the one completes the other;
- starts a run so late that another could have been brought forward before it  [Giffler, Thompson 1960];
- starts a run of a *sole* block, which excludes all others in time, though it could have started, with all that came
  since put off, when all devices were free before and no pinned run was between;
- starts a sole run that nothing waits for while another, as long, that waits for nothing is still to come;
- cannot end in time.

Of all schedules that end in time, take one whose sole runs start earliest in sum, each counted by its length, of these
one whose sole runs that wait for nothing do, and of these one whose other runs do: to bring a run forward, or two sole
runs of equal length into that order, would make the sum less.  So none of its beginnings is left out but for one that
dominates it, and where nothing else was dropped, a beam that dies out has shown that there is no such schedule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined, unmanaged
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Pins(NamedTuple):
    """Runs that have their starts, in rows per device in the order of these; a run is micro-batch · blocks + block."""

    row: IntColumn
    start: IntColumn
    end: IntColumn
    memory: IntColumn
    free: IntColumn
    """Ticks before the start in which the device has no pinned run."""
    moment: IntColumn
    """Starts of pinned runs on any device, in order: between two of them is a *stretch*."""
    over: IntColumn
    """Per moment, when all that start until then have ended."""
    alike: IntColumn
    """Micro-batches without pins: of each block their runs come in this order."""
    special: IntColumn
    """Others that have runs without a start."""
    is_special: NDArray[np.bool_]
    latest: IntColumn
    """The latest start that the pins allow, per run."""
    wait_row: IntColumn
    wait: IntColumn
    """Runs that a run waits for besides its predecessors."""


class Ways(NamedTuple):
    """What must follow blocks, and what blocks are alone in."""

    order: IntColumn
    """Blocks, each after its predecessors."""
    rest: IntColumn
    """The longest way from the end of a block to the end of everything, in ticks."""
    on: IntColumn
    """Blocks on a device, the longest rest first, in the rows of `Tables.on_row`."""
    lag: IntColumn
    """The longest lag after a block."""
    sole: IntColumn
    """Blocks that exclude all others in time and hold nothing, in a plan without lags; at most 62."""
    ahead_row: IntColumn
    ahead: IntColumn
    """Per sole block that nothing waits for, those as long that wait for nothing: two of their runs may swap."""


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
    waived: IntColumn
    """Bit i: the next run of `Ways.sole[i]` might have started before, so it waits for another stretch."""


class Steps(NamedTuple):
    """Runs with which beginnings may go on."""

    parent: IntColumn
    run: IntColumn
    start: IntColumn
    score: IntColumn
    key: IntColumn
    """Equal where the beginnings have the same runs."""
    waived: IntColumn


class Scratch(NamedTuple):
    """What the kernels note while they look at one step."""

    passed: IntColumn
    held: IntColumn
    busy: IntColumn
    """Per device."""
    taken: IntColumn
    left: IntColumn
    soonest: IntColumn
    early: IntColumn
    """Per block."""
    runs: IntColumn
    """Per candidate."""


@inlined
def _mixed(number: int) -> int:
    """The number spread over 62 bits."""
    number = (number ^ (number >> 31)) * 0x2545F4914F6CDD1D
    number = (number ^ (number >> 27)) * 0x1B873593CC9E2D51
    return (number ^ (number >> 33)) & 0x3FFFFFFFFFFFFFFF


@inlined
def _before(values: IntColumn, low: int, high: int, least: int) -> int:
    """How many of the rising values[low:high] are less than `least`."""
    begin = low
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low - begin


@inlined
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
    while moved and start >= 0:
        moved = False
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            while passed[d] < pins.row[d + 1] - pins.row[d] and start >= 0:
                pin = pins.row[d] + passed[d]
                fits = tables.memory[b] <= 0 or held[d] + tables.memory[b] <= tables.capacity[d]
                if fits and pins.start[pin] >= start + tables.duration[b]:
                    break
                if pins.memory[pin] > 0 and held[d] + pins.memory[pin] > tables.capacity[d]:
                    start = -1
                    break
                passed[d] += 1
                held[d] += pins.memory[pin]
                if pins.end[pin] > start:
                    start, moved = pins.end[pin], True
            if tables.memory[b] > 0 and held[d] + tables.memory[b] > tables.capacity[d]:
                start = -1
    return start


@inlined
def _after_overfull(tables: Tables, pins: Pins, b: int, passed: IntColumn, held: IntColumn) -> int:
    """The end of the pinned runs that would not fit after a run of block b, placed as `_placed` has set; -1 if all do.

    Then the run may have to wait for them, though it could go before.
    """
    after = -1
    if tables.memory[b] > 0:
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            holds = held[d] + tables.memory[b]
            for pin in range(pins.row[d] + passed[d], pins.row[d + 1]):
                holds += pins.memory[pin]
                if holds > tables.capacity[d]:
                    after = max(after, pins.end[pin])
                    break
    return after


@inlined
def _ready(tables: Tables, pins: Pins, starts: IntColumn, run: int, clock: int) -> int:
    """When the runs that it waits for have ended; -1 where one is still to come."""
    blocks = tables.duration.size
    m, b = run // blocks, run % blocks
    ready = clock
    for arc in range(tables.before_row[b], tables.before_row[b + 1]):
        before = starts[m * blocks + tables.before[arc]]
        if before < 0:
            ready = -1
            break
        ready = max(ready, before + tables.before_ticks[arc])
    if ready >= 0:
        for arc in range(pins.wait_row[run], pins.wait_row[run + 1]):
            before = starts[pins.wait[arc]]
            if before < 0:
                ready = -1
                break
            ready = max(ready, before + tables.duration[pins.wait[arc] % blocks])
    return ready


@inlined
def _end_of(pins: Pins, d: int, first: int, work: int) -> int:
    """When so many ticks of work have been done on a device that begins with them at `first`, its pinned runs aside."""
    low, high = pins.row[d], pins.row[d + 1]
    end = first + work
    if low < high:
        before = low + _before(pins.start, low, high, first)
        free = first if before == low else pins.free[before - 1] + max(0, first - pins.end[before - 1])
        before = low + _before(pins.free, low, high, free + work)
        end = free + work if before == low else pins.end[before - 1] + free + work - pins.free[before - 1]
    return end


@inlined
def _specials_in_time(
    tables: Tables, pins: Pins, ways: Ways, starts: IntColumn, busy: IntColumn, clock: int, limit: int,
    soonest: IntColumn, early: IntColumn,
) -> bool:  # fmt: skip
    """Whether all runs to come of special micro-batches can be in time; `soonest`, per block, is no later than they."""
    blocks, fine = tables.duration.size, True
    for m in pins.special:
        for j in range(blocks):
            b = ways.order[j]
            run = m * blocks + b
            at = starts[run]
            if at < 0:
                at = clock
                for place in range(tables.place_row[b], tables.place_row[b + 1]):
                    at = max(at, busy[tables.place_device[place]])
                for arc in range(tables.before_row[b], tables.before_row[b + 1]):
                    at = max(at, early[tables.before[arc]] + tables.before_ticks[arc])
                fine &= at <= pins.latest[run] and at + tables.duration[b] + ways.rest[b] <= limit
                soonest[b] = min(soonest[b], at)
            early[b] = at
    return fine


@inlined
def _score(
    tables: Tables, pins: Pins, ways: Ways, starts: IntColumn, taken: IntColumn, left: IntColumn, busy: IntColumn,
    clock: int, limit: int, soonest: IntColumn, early: IntColumn,
) -> int:  # fmt: skip
    """The least end of each device, summed; -1 where the schedule cannot end by `limit`."""
    blocks, alike, score = tables.duration.size, pins.alike.size, 0
    for b in range(blocks):
        soonest[b] = UNLIMITED
    if not _specials_in_time(tables, pins, ways, starts, busy, clock, limit, soonest, early):
        score = -1
    for j in range(blocks):
        b = ways.order[j]
        if taken[b] < alike:
            at, run = clock, pins.alike[taken[b]] * blocks
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                at = max(at, busy[tables.place_device[place]])
            for arc in range(tables.before_row[b], tables.before_row[b + 1]):
                p = tables.before[arc]
                if taken[p] > taken[b]:
                    at = max(at, starts[run + p] + tables.before_ticks[arc])
                else:
                    behind = (taken[b] - taken[p]) * tables.duration[p]
                    at = max(at, early[p] + behind + tables.before_ticks[arc])
            early[b] = at
            soonest[b] = min(soonest[b], at)
        if left[b] > 0 and soonest[b] + left[b] * tables.duration[b] + ways.rest[b] > limit:
            score = -1
            break
    for d in range(tables.capacity.size):
        if score < 0:
            break
        work, first, most = 0, UNLIMITED, busy[d]
        for j in range(tables.on_row[d], tables.on_row[d + 1]):
            b = ways.on[j]
            if left[b] > 0:
                work += left[b] * tables.duration[b]
                first = min(first, soonest[b])
                most = max(most, _end_of(pins, d, first, work) + ways.rest[b])
        score = -1 if most > limit else score + most
    return score


@inlined
def _waived(tables: Tables, pins: Pins, ways: Ways, beam: Beam, row: int, b: int, start: int) -> int:
    """`Beam.waived` after a run of block b that starts then."""
    moments = pins.moment.size
    stretch = _before(pins.moment, 0, moments, start)
    waived = beam.waived[row] if _before(pins.moment, 0, moments, beam.clock[row]) == stretch else 0
    free = not (stretch < moments and pins.moment[stretch] == start) and not (
        stretch and pins.over[stretch - 1] > start
    )
    for d in range(tables.capacity.size):
        free &= beam.busy[row, d] <= start
    for sole in ways.sole:
        free &= sole != b
    if free:
        for i in range(ways.sole.size):
            taken = beam.taken[row, ways.sole[i]]
            if taken < pins.alike.size:
                run = pins.alike[taken] * tables.duration.size + ways.sole[i]
                if _ready(tables, pins, beam.starts[row], run, start) == start:
                    waived |= 1 << i
    return waived


@inlined
def _movable(tables: Tables, pins: Pins, ways: Ways, beam: Beam, row: int, run: int, overfull: int) -> bool:
    """Whether the run, the next of its block, may come before whatever else may follow it would not wait for."""
    m, b = run // tables.duration.size, run % tables.duration.size
    movable = True
    for i in range(ways.sole.size):
        movable &= ways.sole[i] != b or not beam.waived[row] & (1 << i)
    if tables.memory[b] > 0:
        movable &= overfull < 0 and beam.left[row, b] == (
            1 if pins.is_special[m] else pins.alike.size - beam.taken[row, b]
        )
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            if tables.capacity[d] < UNLIMITED:
                for i in range(tables.on_row[d], tables.on_row[d + 1]):
                    other = tables.on[i]
                    movable &= other == b or tables.memory[other] <= 0 or beam.left[row, other] == 0
    return movable


@inlined
def _candidates(pins: Pins, ways: Ways, beam: Beam, row: int, runs: IntColumn) -> int:
    """Writes the next run of each block and all runs to come of special micro-batches; returns how many."""
    blocks, found = beam.taken.shape[1], 0
    for b in range(blocks):
        turn = beam.taken[row, b] < pins.alike.size
        for i in range(ways.ahead_row[b], ways.ahead_row[b + 1]):
            turn &= beam.taken[row, ways.ahead[i]] == pins.alike.size
        if turn:
            runs[found] = pins.alike[beam.taken[row, b]] * blocks + b
            found += 1
    for m in pins.special:
        for run in range(m * blocks, (m + 1) * blocks):
            if beam.starts[row, run] < 0:
                runs[found] = run
                found += 1
    return found


@unmanaged
def next_steps(
    tables: Tables, pins: Pins, ways: Ways, beam: Beam, rows: int, limit: int, steps: Steps, scratch: Scratch
) -> int:
    """Write to `steps` with which runs the first `rows` beginnings may go on to end by `limit`; returns how many, or -1
    where there is no room for all."""
    blocks, devices = tables.duration.size, tables.capacity.size
    passed, held, busy, taken, left, soonest, early, runs = scratch
    count, moments = 0, pins.moment.size
    for row in range(rows):
        starts, key, first = beam.starts[row], 0, count
        for b in range(blocks):
            key ^= _mixed(b * 2**32 + beam.taken[row, b] + 1)
        for m in pins.special:
            for run in range(m * blocks, (m + 1) * blocks):
                if starts[run] >= 0:
                    key ^= _mixed(-1 - run)
        soon = UNLIMITED  # What starts later leaves room for a run that could have been brought forward.
        for i in range(_candidates(pins, ways, beam, row, runs)):
            run = runs[i]
            b, again = run % blocks, False
            ready = _ready(tables, pins, starts, run, beam.clock[row])
            while ready >= 0:
                start = _placed(tables, pins, beam, row, b, ready, passed, held)
                end = start + tables.duration[b]
                if start < 0 or start > pins.latest[run] or end + ways.rest[b] > limit:
                    break
                if count == steps.run.size:
                    return -1
                steps.parent[count], steps.run[count], steps.start[count] = row, run, start
                count += 1
                ready = _after_overfull(tables, pins, b, passed, held)
                if end < soon and not again and _movable(tables, pins, ways, beam, row, run, ready):
                    soon = end
                again = True
        found, count = count, first
        for i in range(first, found):
            run, start = steps.run[i], steps.start[i]
            m, b = run // blocks, run % blocks
            if start >= soon:
                continue
            waived, barred = _waived(tables, pins, ways, beam, row, b, start), False
            for j in range(ways.sole.size):
                barred |= ways.sole[j] == b and not pins.is_special[m] and (waived >> j) & 1 == 1
            if barred or (waived and _before(pins.moment, 0, moments, start) == moments):
                continue
            for c in range(blocks):
                taken[c], left[c] = beam.taken[row, c], beam.left[row, c]
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
            score = _score(tables, pins, ways, starts, taken, left, busy, start, limit, soonest, early)
            starts[run] = -1
            if score >= 0:
                steps.parent[count], steps.run[count], steps.start[count] = row, run, start
                steps.score[count], steps.key[count], steps.waived[count] = score, after, waived
                count += 1
    return count


@inlined
def _end_after(tables: Tables, beam: Beam, steps: Steps, step: int, run: int) -> int:
    """When a run of the beginning to which a step leads ends; less than its duration where it is not in it."""
    start = steps.start[step] if steps.run[step] == run else beam.starts[steps.parent[step], run]
    end: int = start + tables.duration[run % tables.duration.size]
    return end


@inlined
def _dominates(tables: Tables, pins: Pins, ways: Ways, beam: Beam, steps: Steps, one: int, other: int) -> bool:
    """Whether whatever completes the beginning to which the `other` step leads completes that of the `one` as well.

    It does where nothing that counts later than `other`'s clock is later in the `one`, and no pinned run is between.
    """
    blocks = tables.duration.size
    parent, rival, clock, latest = steps.parent[one], steps.parent[other], steps.start[one], steps.start[other]
    run, other_run = steps.run[one], steps.run[other]
    b, other_b = run % blocks, other_run % blocks
    alike, other_alike = not pins.is_special[run // blocks], not pins.is_special[other_run // blocks]
    moments = pins.moment.size
    dominates: bool = clock <= latest
    if steps.waived[one] & ~steps.waived[other]:
        dominates &= _before(pins.moment, 0, moments, clock) < _before(pins.moment, 0, moments, latest)
    for d in range(tables.capacity.size):
        if not dominates:
            break
        busy, other_busy = beam.busy[parent, d], beam.busy[rival, d]
        passed, other_passed = beam.passed[parent, d], beam.passed[rival, d]
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            if tables.place_device[place] == d:
                busy = clock + tables.duration[b]
                passed = _before(pins.start, pins.row[d], pins.row[d + 1], clock)
        for place in range(tables.place_row[other_b], tables.place_row[other_b + 1]):
            if tables.place_device[place] == d:
                other_busy = latest + tables.duration[other_b]
                other_passed = _before(pins.start, pins.row[d], pins.row[d + 1], latest)
        dominates &= passed == other_passed and busy <= max(latest, other_busy)
    for c in range(blocks):
        if not dominates:
            break
        taken = beam.taken[parent, c] + (1 if alike and b == c else 0)
        dominates &= taken == beam.taken[rival, c] + (1 if other_alike and other_b == c else 0)
        if dominates:
            for j in range(taken - 1, -1, -1):
                each = pins.alike[j] * blocks + c
                end = _end_after(tables, beam, steps, one, each)
                if end + ways.lag[c] <= latest:
                    break
                dominates &= end <= _end_after(tables, beam, steps, other, each)
        for m in pins.special:
            each = m * blocks + c
            end, other_end = _end_after(tables, beam, steps, one, each), _end_after(tables, beam, steps, other, each)
            begun = end >= tables.duration[c]
            dominates &= begun == (other_end >= tables.duration[c])
            dominates &= not begun or end + ways.lag[c] <= latest or end <= other_end
    return dominates


@unmanaged
def undominated(
    tables: Tables, pins: Pins, ways: Ways, beam: Beam, steps: Steps, order: IntColumn, kept: IntColumn
) -> int:
    """Write to `kept` which steps no other dominates; returns how many.

    Of steps with one key, next to each other in `order`, those come first that may dominate the others.
    """
    count, group = 0, 0
    for step in order:
        if count and steps.key[kept[count - 1]] != steps.key[step]:
            group = count
        dominated = False
        for i in range(group, count):
            if _dominates(tables, pins, ways, beam, steps, kept[i], step):
                dominated = True
                break
        if not dominated:
            kept[count] = step
            count += 1
    return count


@compiled
def take_steps(
    tables: Tables, pins: Pins, beam: Beam, steps: Steps, chosen: IntColumn, after: Beam, scratch: Scratch
) -> None:
    """Write the beginnings to which the chosen steps lead into the first rows of `after`."""
    blocks, passed, held = tables.duration.size, scratch.passed, scratch.held
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
        after.starts[i, run], after.clock[i], after.waived[i] = start, start, steps.waived[chosen[i]]
        after.left[i, b] -= 1
        if not pins.is_special[run // blocks]:
            after.taken[i, b] += 1
