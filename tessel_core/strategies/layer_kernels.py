"""Compiled loops that simulate layers. Importing this module takes long, so functions import it when they need it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined
from tessel_core.simulation.live_memory import SAME_MOMENT
from tessel_core.strategies.structure import (
    ADDS,
    GIVEN,
    JOINS,
    KEPT,
    LEVEL_PHASE,
    OWNER,
    PHASE,
    ROW,
    STREAM,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Links = tuple[Integers, Integers, Integers, Integers]
"""Inputs of operation i are `taken[taken_at[i] : taken_at[i + 1]]`, and its outputs the same of `made`."""
_TIME_TOLERANCE = 1e-9
"""Times count as equal if they differ by less than this fraction of the simulated time, which comes from rounding."""
END, SECONDS, TRAILING, TALKS, SPACE, CHANGE, AT_START = range(7)
"""Columns by row and phase: end of the computation, seconds, trailing, talks, space and change of `Blocks`, and bytes
in memory at the start."""


@compiled
def layer_columns(
    ops: Integers, links: Links, values: Integers, rows: int, seconds: Floats, bytes_: Floats, workspace: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Simulate one micro-batch, and return the columns of its layers.

    Parameters
    ----------
    ops, links, values
        Those of `Structure`.
    rows
        Number of layers.
    seconds, workspace
        Seconds and bytes of temporary memory of each operation.
    bytes_
        Bytes of each value.

    Returns
    -------
    Start and end of each operation, and the bytes in memory at its start if it adds or joins outputs. Last an array of
    shape (rows, 3, 7), with the columns `END` to `AT_START`. `END` is NaN if a layer computes nothing in a phase.
    """
    start, end, latency = _timetable(ops, links, len(values), seconds)
    times, held = _memory(ops, links, values, start, end, latency, bytes_, workspace)
    found, order = _runs(ops, rows, start, end)
    inputs = (bytes_ * values[:, GIVEN]).sum()
    levels = _levels(ops, links, values, found, order, bytes_, inputs)
    tolerance, before, level = latency * _TIME_TOLERANCE, 0.0, inputs
    for i in range(len(order)):
        run = found[order[i] // 3, order[i] % 3]
        until = latency + 2 * tolerance if i + 1 == len(order) else run[END] - 2 * tolerance
        first = max(0, int(np.searchsorted(times, before + tolerance)) - 1)
        last = int(np.searchsorted(times, until + tolerance, side="right"))
        most = held[first:last].max() if last > first else 0.0
        run[SPACE], run[AT_START], run[CHANGE] = max(0.0, most - level), level, levels[i] - level
        run[SECONDS], run[TRAILING], run[TALKS] = run[END] - before, run[TRAILING] - run[END], run[TALKS] - before
        before, level = run[END], levels[i]
    at = np.zeros(len(ops))
    for op in range(len(ops)):
        if ops[op, ADDS] or ops[op, JOINS]:
            last = int(np.searchsorted(times, start[op] + tolerance, side="right"))
            at[op] = held[last - 1] if last and held[last - 1] else inputs
        if ops[op, ADDS]:
            # While a new sum is computed, the old sum is still in memory.
            run = found[ops[op, ROW], ops[op, PHASE]]
            run[SPACE] = max(run[SPACE], at[op] + bytes_[links[2][links[3][op]]] - run[AT_START])
    return start, end, at, found


@inlined
def _each(values: Integers, ends: Integers, op: int) -> Integers:
    """Return the inputs or outputs of an operation."""
    return values[ends[op] : ends[op + 1]]


@compiled
def _timetable(ops: Integers, links: Links, values: int, seconds: Floats) -> tuple[Floats, Floats, float]:
    """Return the start and end of each operation, and the end of the last. See `simulate_streams`."""
    taken, taken_at, made, made_at = links
    start, end, ready = np.zeros(len(ops)), np.zeros(len(ops)), np.zeros(values)
    free, latency = np.zeros(1 + ops[:, STREAM].max()), 0.0
    for op in range(len(ops)):
        stream = ops[op, STREAM]
        for value in _each(taken, taken_at, op):
            start[op] = max(start[op], ready[value])
        start[op] = max(start[op], free[stream])
        end[op] = free[stream] = start[op] + seconds[op]
        latency = max(latency, end[op])
        for value in _each(made, made_at, op):
            ready[value] = end[op]
    return start, end, latency


@compiled
def _memory(
    ops: Integers,
    links: Links,
    values: Integers,
    start: Floats,
    end: Floats,
    latency: float,
    bytes_: Floats,
    workspace: Floats,
) -> tuple[Floats, Floats]:
    """Return the moments at which memory changes, and the bytes in memory from each moment on. See `memory_steps`."""
    taken, taken_at, made, made_at = links
    since, until = np.zeros(len(values)), np.zeros(len(values))
    for op in range(len(ops)):
        for value in _each(made, made_at, op):
            since[value], until[value] = start[op], max(until[value], end[op])
        for value in _each(taken, taken_at, op):
            until[value] = max(until[value], end[op])
    for value in range(len(values)):
        owner = values[value, OWNER]
        until[owner] = max(until[owner], until[value])
    when, change, count = np.empty(2 * (len(values) + len(ops))), np.empty(2 * (len(values) + len(ops))), 0
    for value in range(len(values)):
        forever = values[value, GIVEN] or values[value, KEPT]
        if bytes_[value] > 0 and values[value, OWNER] == value and (forever or until[value] > since[value]):
            when[count], change[count] = since[value], bytes_[value]
            count += 1
            if not forever:
                when[count], change[count] = until[value], -bytes_[value]
                count += 1
    for op in range(len(ops)):
        if workspace[op]:
            when[count], change[count] = start[op], workspace[op]
            when[count + 1], change[count + 1] = end[op], -workspace[op]
            count += 2
    order = np.argsort(when[:count], kind="mergesort")
    times, held = when[order], change[order]
    first, level = 0, 0.0
    for i in range(1, count + 1):
        # Of changes at the same moment, those that free memory come first.
        if i == count or when[order[i]] - when[order[i - 1]] > latency * SAME_MOMENT:
            held[first:i] = level + np.cumsum(np.sort(held[first:i]))
            times[first:i] = times[first]
            first, level = i, held[i - 1]
    return times, held


@compiled
def _runs(ops: Integers, rows: int, start: Floats, end: Floats) -> tuple[Floats, Integers]:
    """Return the columns of `layer_columns`, and the runs in order of their ends.

    A run is numbered 3 x row + phase. Only `END` has its final value. `TRAILING` has the end of the last operation, and
    `TALKS` the start of the first communication.
    """
    found, order = np.zeros((rows, 3, 7)), np.empty(3 * rows, np.int64)
    found[:, :, END], found[:, :, TALKS] = np.nan, np.inf
    count = 0
    for op in range(len(ops)):
        stream, phase = ops[op, STREAM], ops[op, PHASE]
        if phase < 0:
            continue
        run = found[ops[op, ROW], phase]
        run[TRAILING] = max(run[TRAILING], end[op])
        if stream:
            run[TALKS] = start[op] if run[TALKS] == np.inf else run[TALKS]
        elif np.isnan(run[END]):
            run[END], order[count] = end[op], 3 * ops[op, ROW] + phase
            count += 1
        else:
            run[END] = max(run[END], end[op])
    ends = np.array([found[each // 3, each % 3, END] for each in order[:count]])
    return found, order[:count][np.argsort(ends, kind="mergesort")]


@compiled
def _levels(
    ops: Integers, links: Links, values: Integers, runs: Floats, order: Integers, bytes_: Floats, inputs: float
) -> Floats:
    """Return the bytes in memory after each run: inputs, outputs, and values that later runs use."""
    taken, taken_at, made, made_at = links
    last = len(order)
    place = np.full(3 * len(runs), last - 1)
    for i in range(last):
        place[order[i]] = i
    since, until = np.full(len(values), -1), np.full(len(values), -1)
    for op in range(len(ops)):
        at = place[3 * ops[op, ROW] + ops[op, LEVEL_PHASE]]
        for value in _each(taken, taken_at, op):
            owner = values[value, OWNER]
            until[owner] = max(until[owner], at)
        for value in _each(made, made_at, op):
            owner = values[value, OWNER]
            since[owner] = at if since[owner] < 0 else since[owner]
    for value in range(len(values)):
        if values[value, KEPT]:
            until[values[value, OWNER]] = last
    changes = np.zeros(last + 1)
    for value in range(len(values)):
        if since[value] >= 0 and not values[value, GIVEN] and until[value] > since[value]:
            changes[since[value]] += bytes_[value]
            changes[until[value]] -= bytes_[value]
    return inputs + np.cumsum(changes)[:last]
