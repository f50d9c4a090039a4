"""Beam search: extends many partial schedules in parallel, by one run per step.

A *run* is one block of one micro-batch. *Pinned* runs have fixed starts. A *beginning* is a partial schedule: all
pinned runs, and other runs that were placed in order of their starts. A step adds a run to a beginning, as early as its
devices, its predecessors, memory and the pinned runs allow. The beam keeps the beginnings with the least scores. A
score is a sum over devices. For each device, it has a lower bound on the time at which the runs of the device, and all
blocks that follow them, have ended. The memory of a device depends only on the order of its runs.

A *sole* block shares a device with every other block and holds no memory. Its runs are sole runs. A beginning is
dropped without loss if:

- another beginning with the same runs dominates it: every completion of the dropped beginning also completes the other
  beginning;
- its last run starts so late that another run could have run before it [Giffler, Thompson 1960];
- its last run is a sole run that could have started earlier, when all devices were free, with all later runs delayed,
  and no pinned run starts in between;
- its last run is a sole run without successors, although an equally long sole run without predecessors is not placed;
- none of its completions ends in time.

Why nothing is lost: among all schedules that end in time, choose one with the least sum of starts of sole runs,
weighted by length. Among these choose the least sum for sole runs without predecessors, and then for all other runs.
Moving a run forward, or swapping two sole runs of equal length, would reduce one of these sums. So no beginning of the
chosen schedule is dropped, except in favour of one that dominates it. If all beginnings are dropped, and only for these
reasons, no schedule ends in time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined, unmanaged
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables


class Pins(NamedTuple):
    """Pinned runs, and the limits that they set for other runs.

    A run has the number micro-batch · blocks + block, where "blocks" is the number of blocks per micro-batch. The
    pinned runs of device d are the entries `row[d]` … `row[d + 1] - 1` of `start`, `end`, `memory` and `free`, in order
    of their starts.
    """

    row: IntColumn
    start: IntColumn
    end: IntColumn
    memory: IntColumn
    free: IntColumn
    """Number of ticks before the start of the pinned run in which no pinned run occupies its device."""
    moment: IntColumn
    """Starts of all pinned runs on any device, in ascending order.

    A *stretch* is the time between two consecutive starts.
    """
    over: IntColumn
    """For each moment, the latest end of all pinned runs that start at it or earlier."""
    alike: IntColumn
    """Micro-batches without pinned runs, and without runs in the search's `orders`.

    Every block runs these micro-batches in this order.
    """
    special: IntColumn
    """Micro-batches that have a pinned run or a run in `orders`, and also a run without a fixed start."""
    is_special: NDArray[np.bool_]
    latest: IntColumn
    """Latest start of each run that lets all pinned runs keep their starts.

    `UNLIMITED` if no pinned run depends on it.
    """
    wait_row: IntColumn
    wait: IntColumn
    """For each run, the runs that must end before it starts because of the search's `orders`, in rows of `wait_row`."""


class Ways(NamedTuple):
    """Longest paths between the blocks of a plan, and its sole blocks (see the module)."""

    order: IntColumn
    """Blocks in topological order."""
    rest: IntColumn
    """Longest path in ticks from the end of each block to the end of the micro-batch."""
    on: IntColumn
    """Blocks on each device, the one with the longest `rest` first. The row offsets are `Tables.on_row`."""
    lag: IntColumn
    """Longest lag in ticks between each block and a successor."""
    sole: IntColumn
    """Sole blocks, at most 62. A plan with lags has none."""
    ahead_row: IntColumn
    ahead: IntColumn
    """For each block, the sole blocks whose runs must all come before its own runs, in rows of `ahead_row`."""


class Beam(NamedTuple):
    """Beginnings (see the module), one per row of each array. The columns are runs, blocks or devices."""

    starts: IntColumn
    """Start of each run, or -1 if it is not placed. Pinned runs are always placed."""
    taken: IntColumn
    """Number of placed runs of each block in the micro-batches `Pins.alike`."""
    left: IntColumn
    """Number of runs of each block that are not placed yet."""
    busy: IntColumn
    """End in ticks of the last placed run on each device. Pinned runs do not count."""
    passed: IntColumn
    """Number of each device's pinned runs that come before its last placed run."""
    held: IntColumn
    """Memory that each device holds at the end of its last placed run."""
    clock: IntColumn
    """Start in ticks of the last placed run."""
    waived: IntColumn
    """Bit i is set if the next run of block `Ways.sole[i]` could have started earlier, when all devices were free.

    So it may not start before another pinned run has started.
    """


class Steps(NamedTuple):
    """Steps that may extend beginnings, one per entry of each array.

    `parent` is the row of the beginning in `Beam`. The step adds `run` at the time `start`. `score`, `key` and `waived`
    describe the beginning after the step.
    """

    parent: IntColumn
    run: IntColumn
    start: IntColumn
    score: IntColumn
    key: IntColumn
    """Hash of the set of runs in the beginning after the step. Equal sets have equal hashes."""
    waived: IntColumn


class Scratch(NamedTuple):
    """Arrays that the kernels overwrite in each step."""

    passed: IntColumn
    held: IntColumn
    busy: IntColumn
    """Scratch space. `passed`, `held` and `busy` have one entry per device."""
    taken: IntColumn
    left: IntColumn
    soonest: IntColumn
    early: IntColumn
    """Scratch space. `taken`, `left`, `soonest` and `early` have one entry per block."""
    runs: IntColumn
    """Numbers of the runs that may come next."""


@inlined
def _mixed(number: int) -> int:
    """Return a hash of `number` that has 62 bits."""
    number = (number ^ (number >> 31)) * 0x2545F4914F6CDD1D
    number = (number ^ (number >> 27)) * 0x1B873593CC9E2D51
    return (number ^ (number >> 33)) & 0x3FFFFFFFFFFFFFFF


@inlined
def _before(values: IntColumn, low: int, high: int, least: int) -> int:
    """Return how many of the ascending `values[low:high]` are less than `least`."""
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

    The run follows the beginning in `row` of the beam. For each device of the block, the function also sets `passed` to
    the number of pinned runs before the run, and `held` to the memory held right before it.
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
    """Return the end of the first pinned run that does not fit in memory after a run of block b, or -1 if all fit.

    If several devices have such a pinned run, return the latest end. `next_steps` then also tries to place the run of
    block b after that end. `passed` and `held` are as `_placed` sets them.
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
    """Return the earliest time, from `clock` on, at which the predecessors of a run let it start.

    Return -1 if a predecessor is not placed. The runs of `Pins.wait` count as predecessors.
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
    """Return the time at which device d has done `work` ticks between its pinned runs, if it starts at `first`."""
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
    """Return whether the special micro-batches can end by `limit`, with all their runs starting by `Pins.latest`.

    Lowers `soonest[b]` to the earliest start of a missing run of block b, for every b. `early` is scratch space.
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
    """Return the score of a beginning (see the module), or -1 if a lower bound exceeds `limit`.

    `soonest` and `early` are scratch space.
    """
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
    """Return `Beam.waived` for the beginning in `row` after it gets a run of block b at the time `start`."""
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
    """Return whether `run` can always be moved forward, before other runs that start after its end.

    If so, no step needs to start another run after that end. `overfull` is the result of `_after_overfull` for `run`.
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
    """Write the runs that may come next to `runs`. Return their number.

    They are the next run of each block in the micro-batches `Pins.alike`, and all missing runs of special
    micro-batches.
    """
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
    """Write to `steps` all steps that extend the first `rows` beginnings of `beam` and may end by `limit`.

    Return the number of steps, or -1 if `steps` has too few entries.
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
        soon = UNLIMITED  # least end of a run that can be moved before all later ones, so no run needs to start later
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
    """Return the end of `run` in the beginning after a step.

    The result is less than the duration of the run if the run is not placed.
    """
    start = steps.start[step] if steps.run[step] == run else beam.starts[steps.parent[step], run]
    end: int = start + tables.duration[run % tables.duration.size]
    return end


@inlined
def _dominates(tables: Tables, pins: Pins, ways: Ways, beam: Beam, steps: Steps, one: int, other: int) -> bool:
    """Return whether every completion of the beginning after step `other` also completes the one after step `one`.

    This holds if the same pinned runs come before both, and if no run that a later run may wait for ends later after
    `one` than after `other`. Runs that end, with their lag, by the last start after `other` do not matter.
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

    `order` lists the steps. Steps with equal keys are neighbours in it, and a step that may dominate another one comes
    before it.
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
    """Write the beginnings after the `chosen` steps to the first rows of `after`."""
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
