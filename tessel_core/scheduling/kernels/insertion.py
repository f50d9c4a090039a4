"""Insertion of free blocks into a schedule of the tied blocks.

Limited memory keeps *tied* blocks close to each other (`structure.all_tied`). All other blocks are *free*: they change
no limited memory, so their runs may come early or late. The tied runs keep their order on each device, and therefore
their memory. They also keep the distances between their starts on a *clock*. The clock stops:

- in *pauses*: after every `spacing` ticks, it stops for `width` ticks, which leaves time for free runs on all devices
  at once,
- while a tied run waits for a free run.

A free run goes into the first gap that is long enough. At the end, every run starts as early as the order on its
devices allows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.lists import Rules, change, place_all, rules_copy, set_rules
from tessel_core.scheduling.kernels.tables import UNLIMITED, Tables

_PAUSES_SHARE = 0.3
"""Fraction of the tries that change the pauses. The remaining tries change the rules of the list schedule."""


class Pauses(NamedTuple):
    """Pauses of the clock (see the module), in ticks of the clock.

    `first` is the start of the first pause, `spacing` the distance from one start to the next, and `width` the length
    of a pause.
    """

    first: int
    spacing: int
    width: int


class Lines(NamedTuple):
    """The order of the tied runs on each device d: `run[row[d]:row[d + 1]]`.

    A run has the number micro-batch · blocks + block, where "blocks" is the number of blocks per micro-batch.
    """

    row: IntColumn
    run: IntColumn
    free: NDArray[np.bool_]
    """Whether each block is free."""


@compiled
def lines_of(tables: Tables, free: NDArray[np.bool_], tied_starts: IntColumn) -> Lines:
    """Return the order of the tied runs on each device.

    `tied_starts` has the starts of the tied runs, shaped (micro-batches, blocks).
    """
    micro_batches, blocks = tied_starts.shape
    devices = tables.capacity.size
    row = np.zeros(devices + 1, np.int64)
    for d in range(devices):
        row[d + 1] = row[d]
        for b in tables.on[tables.on_row[d] : tables.on_row[d + 1]]:
            row[d + 1] += 0 if free[b] else micro_batches
    run, filled = np.empty(row[devices], np.int64), row[:-1].copy()
    for each in np.argsort(tied_starts.ravel(), kind="mergesort"):
        b = each % blocks
        if not free[b]:
            for place in range(tables.place_row[b], tables.place_row[b + 1]):
                d = tables.place_device[place]
                run[filled[d]] = each
                filled[d] += 1
    return Lines(row, run, free)


@inlined
def _ready(tables: Tables, starts: IntColumn, m: int, b: int) -> int:
    """Return when the predecessors of block b of micro-batch m let it start, or `UNLIMITED` if one is not placed."""
    ready = 0
    for arc in range(tables.before_row[b], tables.before_row[b + 1]):
        before = starts[m, tables.before[arc]]
        ready = UNLIMITED if before < 0 else max(ready, before + tables.before_ticks[arc])
        if before < 0:
            break
    return ready


@inlined
def _due(tied_starts: IntColumn, pauses: Pauses, m: int, b: int) -> int:
    """Return the start of block b of micro-batch m, which is tied, delayed by the pauses before it."""
    start = tied_starts[m, b]
    count = 0 if start < pauses.first else (start - pauses.first) // pauses.spacing + 1
    return int(start + pauses.width * count)


class State(NamedTuple):
    """A partial schedule, and the next run of each device and of each free block."""

    starts: IntColumn
    """Start of each run, shaped (micro-batches, blocks), or -1 if it is not placed."""
    busy: IntColumn
    """End in ticks of the last placed run on each device."""
    at: IntColumn
    """Index in `Lines.run` of each device's next tied run."""
    due: IntColumn
    """Start of each device's next tied run, delayed by the pauses before it."""
    ready: IntColumn
    """Time at which the predecessors of each device's next tied run let it start.

    It is `UNLIMITED` if a predecessor is not placed.
    """
    placed: IntColumn
    """Number of placed runs of each free block."""
    free_ready: IntColumn
    """Time at which the predecessors of each free block's next run let it start.

    It is `UNLIMITED` if a predecessor is not placed.
    """


@compiled
def insert_all(tables: Tables, lines: Lines, tied_starts: IntColumn, pauses: Pauses, starts: IntColumn) -> int:
    """Fill `starts`, shaped (micro-batches, blocks), with the starts of all runs. Return the makespan in ticks.

    `tied_starts` has the same shape, and the starts of the tied runs.
    """
    devices, blocks = tables.capacity.size, starts.shape[1]
    starts[:] = -1
    state = State(
        starts,
        np.zeros(devices, np.int64),
        lines.row[:-1].copy(),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
    )
    for d in range(devices):
        _look_ahead(tables, lines, tied_starts, pauses, state, d)
    for b in range(blocks):
        state.free_ready[b] = _ready(tables, starts, 0, b)
    stopped, squeezed, left = 0, False, starts.size
    while left:
        run, start, waits_since = _next_tied(tables, lines, state, stopped)
        free, free_start = _next_free(tables, lines, state, stopped, squeezed, start)
        if run < 0 and free < 0:  # all tied runs wait, so let a free run delay one of them
            squeezed = True
            continue
        start = min(start, free_start)
        if not squeezed and waits_since + stopped < start:
            stopped = start - waits_since
            continue
        squeezed = False
        if free >= 0:
            run = state.placed[free] * blocks + free
            state.placed[free] += 1
        else:
            stopped = max(stopped, start - _due(tied_starts, pauses, run // blocks, run % blocks))
        starts[run // blocks, run % blocks] = start
        left -= 1
        _move_on(tables, lines, tied_starts, pauses, state, run)
    return _compact(tables, starts)


@compiled
def _next_tied(tables: Tables, lines: Lines, state: State, stopped: int) -> tuple[int, int, int]:
    """Return the tied run that can start first or -1, its start, and the least `due` of the tied runs that wait.

    A run waits if one of its predecessors is not placed. `stopped` is the number of ticks for which the clock has
    stopped so far, without the pauses.
    """
    best, start, waits_since = -1, UNLIMITED, UNLIMITED
    for d in range(tables.capacity.size):
        if state.at[d] == lines.row[d + 1]:
            continue
        if state.ready[d] == UNLIMITED:
            waits_since = min(waits_since, state.due[d])
            continue
        run, soonest, first = lines.run[state.at[d]], max(state.due[d] + stopped, state.ready[d]), True
        b = run % tables.duration.size
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            e = tables.place_device[place]
            soonest = max(soonest, state.busy[e])
            first &= lines.run[state.at[e]] == run
        if first and soonest < start:
            best, start = run, soonest
    return best, start, waits_since


@compiled
def _next_free(
    tables: Tables, lines: Lines, state: State, stopped: int, squeezed: bool, before: int
) -> tuple[int, int]:
    """Return the free block whose next run can start first, and its start.

    The block is -1 if no free run starts earlier than the time `before`.

    The run may delay a tied run only if the tied run waits for a predecessor anyway, or if `squeezed` is true.
    """
    best, start = -1, before
    for b in range(tables.duration.size - 1, -1, -1):
        if not lines.free[b] or state.free_ready[b] >= start:
            continue
        soonest, fits = state.free_ready[b], True
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            soonest = max(soonest, state.busy[tables.place_device[place]])
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            d = tables.place_device[place]
            if state.at[d] < lines.row[d + 1]:
                waits, until = state.ready[d] == UNLIMITED, state.due[d] + stopped
                if not waits:
                    until = max(until, state.ready[d], state.busy[d])
                fits &= soonest + tables.duration[b] <= until or (waits and until <= soonest) or squeezed
        if fits and soonest < start:
            best, start = b, soonest
    return best, start


@compiled
def _move_on(tables: Tables, lines: Lines, tied_starts: IntColumn, pauses: Pauses, state: State, run: int) -> None:
    """Update `state` after `run` has been placed."""
    micro_batches, blocks = state.starts.shape
    m, b = run // blocks, run % blocks
    for place in range(tables.place_row[b], tables.place_row[b + 1]):
        d = tables.place_device[place]
        state.busy[d] = state.starts[m, b] + tables.duration[b]
        state.at[d] += 0 if lines.free[b] else 1
        _look_ahead(tables, lines, tied_starts, pauses, state, d)
    if lines.free[b]:
        state.free_ready[b] = UNLIMITED if m + 1 == micro_batches else _ready(tables, state.starts, m + 1, b)
    for arc in range(tables.after_row[b], tables.after_row[b + 1]):
        after = tables.after[arc]
        if lines.free[after] and state.placed[after] < micro_batches:
            state.free_ready[after] = _ready(tables, state.starts, state.placed[after], after)
        for place in range(tables.place_row[after], tables.place_row[after + 1]):
            _look_ahead(tables, lines, tied_starts, pauses, state, tables.place_device[place])


@compiled
def _look_ahead(tables: Tables, lines: Lines, tied_starts: IntColumn, pauses: Pauses, state: State, d: int) -> None:
    """Update `due` and `ready` for the next tied run of device d."""
    if state.at[d] < lines.row[d + 1]:
        m, b = divmod(lines.run[state.at[d]], state.starts.shape[1])
        state.due[d], state.ready[d] = _due(tied_starts, pauses, m, b), _ready(tables, state.starts, m, b)


@compiled
def _compact(tables: Tables, starts: IntColumn) -> int:
    """Lower `starts` as far as the order of runs on the devices allows. Return the makespan in ticks."""
    blocks, makespan = starts.shape[1], 0
    busy = np.zeros(tables.capacity.size, np.int64)
    for run in np.argsort(starts.ravel(), kind="mergesort"):
        m, b = run // blocks, run % blocks
        start = _ready(tables, starts, m, b)
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            start = max(start, busy[tables.place_device[place]])
        starts[m, b] = start
        end = start + tables.duration[b]
        for place in range(tables.place_row[b], tables.place_row[b + 1]):
            busy[tables.place_device[place]] = end
        makespan = max(makespan, end)
    return makespan


@compiled
def insert_into_lists(
    tables: Tables, part: Tables, tied: IntColumn, rules: Rules, pauses: Pauses, starts: IntColumn, tries: int,
    spread: float, seed: int,
) -> tuple[Pauses, int]:  # fmt: skip
    """Build schedules: list the `tied` blocks by `rules`, and insert all other blocks. Keep the shortest in `starts`.

    Of the `tries` schedules, all but the first change the rules or the pauses at random. A change is kept if it makes
    the schedule no longer. Return the pauses kept last, and the least makespan, which is -1 if no try succeeds. `part`
    has the tables of the tied blocks.
    """
    np.random.seed(seed)
    free = np.ones(starts.shape[1], np.bool_)
    free[tied] = False
    found, listed, tied_starts = starts.copy(), np.zeros((starts.shape[0], tied.size), np.int64), np.zeros_like(starts)
    makespan, kept = -1, rules_copy(rules)
    for i in range(tries):
        trial = pauses
        if i and np.random.random() < _PAUSES_SHARE:
            trial = _random_pauses(tables, free, listed)
        elif i:
            for _ in range(1 + np.random.randint(3)):
                change(part, rules, spread)
        ends = place_all(part, rules, listed, UNLIMITED)
        if ends >= 0:
            for j in range(tied.size):
                tied_starts[:, tied[j]] = listed[:, j]
            ends = insert_all(tables, lines_of(tables, free, tied_starts), tied_starts, trial, found)
        if ends >= 0 and (makespan < 0 or ends <= makespan):
            if ends < makespan or makespan < 0:
                starts[:] = found
            pauses, makespan = trial, ends
            set_rules(kept, rules)
        else:
            set_rules(rules, kept)
    return pauses, makespan


@compiled
def _random_pauses(tables: Tables, free: NDArray[np.bool_], listed: IntColumn) -> Pauses:
    """Return random pauses.

    Together, the pauses last at most as long as all free runs of the device that has the most work in free runs.
    """
    longest, most = int((tables.duration * free).max()), 0
    for d in range(tables.capacity.size):
        on = tables.on[tables.on_row[d] : tables.on_row[d + 1]]
        most = max(most, int((tables.duration[on] * free[on]).sum()) * listed.shape[0])
    width = longest * 2 ** max(0, np.random.randint(-2, 5))
    count = np.int64(most * np.random.random()) // width
    spacing = 1 + int(listed.max()) // max(1, count)
    return Pauses(np.random.randint(spacing), spacing, width if count else 0)
