"""Beam search: extends many partial schedules in parallel, by one run per step.

A partial schedule ("beginning") contains runs in order of their starts. A step appends a run as early as its devices,
its predecessors, memory and the pinned runs allow. The beam keeps the beginnings with the least score, which is the sum
of a lower bound on the end of each device. Memory depends on the order of runs on a device only.

A *sole* block shares a device with every other block and holds no memory. A beginning is dropped without loss if:

- another beginning with the same runs dominates it: every completion of the dropped one also completes the other;
- it starts a run so late that another run could have run before it [Giffler, Thompson 1960];
- it starts a sole run that could have started earlier, at a time when all devices were free, by delaying all later
  runs, and no pinned run lies in between;
- it starts a sole run without successors, although an equally long sole run without predecessors is still missing;
- it cannot end in time.

Why nothing is lost: among all schedules that end in time, choose one with the least sum of starts of sole runs,
weighted by length. Among these choose the least sum for sole runs without predecessors, and then for all other runs.
Moving a run forward, or swapping two sole runs of equal length, would reduce one of these sums. So no beginning of the
chosen schedule is dropped, except in favour of one that dominates it. If the beam dies out and dropped beginnings only
for these reasons, no schedule exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined, unmanaged
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Pins(NamedTuple):
    """Pinned runs, and what they mean for other runs. A run is the number micro-batch · blocks + block.

    Device d has the pinned runs `row[d]` … `row[d + 1] - 1`, in order of their starts. `start`, `end`, `memory` and
    `free` have one entry for each of them.
    """

    row: IntColumn
    start: IntColumn
    end: IntColumn
    memory: IntColumn
    free: IntColumn
    """Ticks before the start of the pinned run in which its device has no pinned run."""
    moment: IntColumn
    """Starts of pinned runs on any device, in order. The time between two of them is a *stretch*."""
    over: IntColumn
    """For each moment, the time at which all pinned runs that started by then have ended."""
    alike: IntColumn
    """Micro-batches without pins, in the order in which each block runs them."""
    special: IntColumn
    """Micro-batches that have pins or orders, and also runs without a fixed start."""
    is_special: NDArray[np.bool_]
    latest: IntColumn
    """Latest start of each run with which all pinned runs can keep their starts."""
    wait_row: IntColumn
    wait: IntColumn
    """For each run, the runs that must end before it because of `orders`, in rows of `wait_row`."""


class Ways(NamedTuple):
    """Longest paths of blocks, and sole blocks."""

    order: IntColumn
    """Blocks in topological order."""
    rest: IntColumn
    """Longest path from the end of each block to the end of the micro-batch, in ticks."""
    on: IntColumn
    """Blocks on each device, those with the longest `rest` first. The row offsets are `Tables.on_row`."""
    lag: IntColumn
    """Longest lag after each block."""
    sole: IntColumn
    """Sole blocks, at most 62. There are none in a plan with lags."""
    ahead_row: IntColumn
    ahead: IntColumn
    """For each block, the sole blocks whose runs all come before its own, in rows of `ahead_row`."""


class Beam(NamedTuple):
    """Partial schedules, one per row of each array."""

    starts: IntColumn
    """Start of each run, or -1 if it is not placed. Pinned runs are always placed."""
    taken: IntColumn
    """Number of placed runs of each block, in micro-batches without pins."""
    left: IntColumn
    """Number of missing runs of each block."""
    busy: IntColumn
    """End of the last run on each device. Pinned runs do not count."""
    passed: IntColumn
    """Number of pinned runs that come before the end of the last placed run on each device."""
    held: IntColumn
    """Memory that each device holds after the end of its last placed run."""
    clock: IntColumn
    """Start of the last placed run, in ticks."""
    waived: IntColumn
    """Bit i is set if the next run of `Ways.sole[i]` could have started earlier.

    So it may not start in this stretch.
    """


class Steps(NamedTuple):
    """Runs that may extend beginnings. `parent` is the row of the beginning in `Beam`."""

    parent: IntColumn
    run: IntColumn
    start: IntColumn
    score: IntColumn
    key: IntColumn
    """Hash of the set of runs in the extended beginning. Equal sets have equal hashes."""
    waived: IntColumn


class Scratch(NamedTuple):
    """Arrays that the kernels reuse for each step."""

    passed: IntColumn
    held: IntColumn
    busy: IntColumn
    """Scratch space. This array and the two before it have one entry per device."""
    taken: IntColumn
    left: IntColumn
    soonest: IntColumn
    early: IntColumn
    """Scratch space. This array and the three before it have one entry per block."""
    runs: IntColumn
    """Candidates for the next run, one entry per candidate."""


@inlined
def _mixed(number: int) -> int:
    """Return a hash of the number with 62 bits."""
    number = (number ^ (number >> 31)) * 0x2545F4914F6CDD1D
    number = (number ^ (number >> 27)) * 0x1B873593CC9E2D51
    return (number ^ (number >> 33)) & 0x3FFFFFFFFFFFFFFF


@inlined
def _before(values: IntColumn, low: int, high: int, least: int) -> int:
    """Return how many of the ascending values[low:high] are less than `least`."""
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
    """Return the earliest start, from `ready` on, of a run of block b, or -1 if memory allows none.

    The run follows the beginning in `row` of the beam. Also sets `passed` to the number of pinned runs that come before
    it on each of its devices, and `held` to the memory that these devices then hold.
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
    """Return the end of the pinned run that does not fit in memory after a run of block b, or -1 if all fit.

    If several devices have such pinned runs, it is the latest of their ends. The run may have to wait until then,
    although there is time for it before. `passed` and `held` are as `_placed` sets them.
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
    """Return the time at which the predecessors of a run have ended, but at least `clock`.

    Return -1 if a predecessor is not placed.
    """
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
    """Return the time at which a device that starts at `first` has done `work` ticks between its pinned runs."""
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
    """Return whether all missing runs of special micro-batches can keep their latest starts and `limit`.

    Lowers `soonest` to the earliest start of each block.
    """
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
    """Return the sum of lower bounds on the ends of devices, or -1 if the schedule cannot end by `limit`."""
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
    """Return the value of `Beam.waived` after a run of block b that starts at `start`."""
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
    """Return whether `run` can be moved before any runs that start after its end.

    If so, no run that starts after that end needs to be tried next.
    """
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
    """Write the next run of each block and all missing runs of special micro-batches to `runs`. Return their number."""
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
    """Write to `steps` the runs that may extend the first `rows` beginnings and end by `limit`.

    Return their number, or -1 if `steps` is too small.
    """
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
        soon = UNLIMITED  # least end of a run that can always come next, so no run needs to start later
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
    """Return the end of a run in the beginning after a step. It is less than the duration if the run is not placed."""
    start = steps.start[step] if steps.run[step] == run else beam.starts[steps.parent[step], run]
    end: int = start + tables.duration[run % tables.duration.size]
    return end


@inlined
def _dominates(tables: Tables, pins: Pins, ways: Ways, beam: Beam, steps: Steps, one: int, other: int) -> bool:
    """Return whether every completion of the beginning after step `other` also completes the one after step `one`.

    Then every completion of the latter also completes the former. This holds if the same pinned runs come before both,
    and if all runs for which later runs may wait end no later after `one` than after `other`. Ends before the clock of
    `other` do not matter.
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
    """Write the steps that no other step dominates to `kept`. Return their number.

    In `order`, steps with equal keys are neighbours, and steps that may dominate others come before them.
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
    """Write the beginnings after the chosen steps to the first rows of `after`."""
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
