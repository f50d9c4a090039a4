"""Compiled loops that add layers up to stages. Importing this module takes long, so functions import it when they need
it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled
from tessel_core.strategies.structure import BACKWARD, FORWARD, WEIGHT

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Places = tuple[int, int]
"""The rows before and after a stage, or -1 at the ends of the network."""

SECONDS, TALKS, LEADS, ONWARD, HELD, SPACE, CHANGE = 0, 3, 6, 8, 10, 11, 14
"""First columns of the fields of `Blocks` in `Blocks.table`."""
PHASE, OVER = range(2)
"""Columns of `Reduced.places`."""
READY, BYTES, GATHERED = range(3)
"""Columns of `Reduced.numbers`."""
REDUCE_SCATTER, ALL_REDUCE, ALL_GATHER = range(3)
"""Kinds of collectives in `Reduced.rates`."""


@compiled
def stage_runs(table: Floats, makers: Integers, rows: Integers, ends: Places) -> tuple[Floats, Floats, Floats]:
    """Return what a stage's runs take, from `Blocks.table` and `Blocks.makers`.

    Returns
    -------
    Seconds of each layer, by phase and layer. Then an array of shape (2, directions): the seconds of a run until it
    uses an input from another stage, and from its end until its outputs are ready. Last, by phase, the seconds from the
    start of a run to its first collective; infinite without one.
    """
    runs = _seconds_of_layers(table, rows, ends)
    return runs, _leads_and_onward(table, makers, rows, ends, runs), _first_talks(table, rows, runs)


@compiled
def _seconds_of_layers(table: Floats, rows: Integers, ends: Places) -> Floats:
    """Return the seconds of each layer of a stage, for forward, backward and gradients of weights, by phase and layer.

    The first layer of a run does not wait for the communication of the layer before it. Instead, the whole run starts
    after this communication.
    """
    found = np.empty((3, len(rows)))
    for i in range(len(rows)):
        found[:, i] = table[rows[i], SECONDS : SECONDS + 3]
    before, after = ends
    if before >= 0:
        found[FORWARD, 0] -= max(0.0, table[before, ONWARD + FORWARD] - table[rows[0], LEADS + FORWARD])
    if after >= 0:
        found[BACKWARD, -1] -= max(0.0, table[after, ONWARD + BACKWARD] - table[rows[-1], LEADS + BACKWARD])
    return found


@compiled
def _leads_and_onward(table: Floats, makers: Integers, rows: Integers, ends: Places, runs: Floats) -> Floats:
    """Return the seconds of a run until it uses an input from another stage, and from its end until its outputs are
    ready.

    The array has the shape (2, directions). `makers` has the columns `made_by` and `taken_by` of `Blocks`.
    """
    found, count = np.zeros((2, 2)), len(rows)
    for way in range(2):
        order, seconds = (rows, runs[way]) if way == FORWARD else (rows[::-1], runs[way][::-1])
        source = ends[way]
        if source >= 0:
            ahead, free = abs(makers[source, 2 + way] - source), 0
            while free < count and abs(order[free] - order[0]) < ahead - 1:
                found[0, way] += seconds[free]
                free += 1
            found[0, way] += table[order[free], LEADS + way] if free < count else 0.0
        last = order[count - 1]
        found[1, way], place = table[last, ONWARD + way], count - 1
        while place >= 0 and order[place] != makers[last, way]:
            found[1, way] -= seconds[place]
            place -= 1
    return found


@compiled
def _first_talks(table: Floats, rows: Integers, runs: Floats) -> Floats:
    """Return the seconds from the start of a run to its first collective, by phase. Infinite without one."""
    found, count = np.full(3, np.inf), len(rows)
    for phase in range(3):
        before = 0.0
        for i in range(count):
            at = i if phase == FORWARD else count - 1 - i
            if table[rows[at], TALKS + phase] < np.inf:
                found[phase] = max(0.0, before + table[rows[at], TALKS + phase])
                break
            before += runs[phase, at]
    return found


@compiled
def stage_peaks(
    table: Floats, rows: Integers, gradients: Floats, bucket: float, gone: Floats
) -> tuple[float, float, float, float]:
    """Return the largest bytes of a micro-batch in its forward run, in a backward run, and in the first backward run.

    The last number is that of a run for gradients of weights, above the bytes at its start.

    Parameters
    ----------
    table, rows
        `Blocks.table`, and the rows of the layers.
    gradients
        Bytes that each layer's first backward run leaves in memory.
    bucket
        Bytes of the largest bucket. While it is reduced, there are two copies of it.
    gone
        Bytes of each layer's gradients that do not stay in memory.
    """
    held, later, forward, backward, first = 0.0, gradients.sum(), -np.inf, -np.inf, -np.inf
    for i in range(len(rows)):
        row = rows[i]
        forward = max(forward, held + table[row, SPACE + FORWARD])
        held += table[row, HELD]
        later -= gradients[i]
        running = held + table[row, SPACE + BACKWARD]
        backward, first = max(backward, running), max(first, running + later + (bucket if later > 0 else 0.0))
    level, weights = 0.0, -np.inf
    for i in range(len(rows) - 1, -1, -1):
        weights = max(weights, level + table[rows[i], SPACE + WEIGHT])
        level += table[rows[i], CHANGE + WEIGHT] - gone[i]
    return forward, backward, first, weights


@compiled
def reductions(
    rows: Integers, runs: Floats, first: Integers, places: Integers, numbers: Floats, rates: Floats, limit: float
) -> Floats:
    """Return values for the gradients that a stage reduces once per step. All layers fill the buckets together.

    Parameters
    ----------
    rows, runs
        Layers of the stage and their seconds, by phase and layer.
    first, places, numbers, rates
        Those of `Reduced`.
    limit
        Bytes at which a bucket is full.

    Returns
    -------
    `tail` and `reducing` of `StageCosts`, the seconds to gather updated weights, and the bytes of the largest bucket.
    """
    found, total = np.zeros(4), runs[BACKWARD].sum() + runs[WEIGHT].sum()
    for over in range(len(rates)):
        now, latest, end, reducing, gathering = -total, -np.inf, -np.inf, 0.0, 0.0
        whole = cut = weights = 0.0
        for phase in range(BACKWARD, WEIGHT + 1):
            for i in range(len(rows) - 1, -1, -1):
                now += runs[phase, i]
                for each in range(first[rows[i]], first[rows[i] + 1]):
                    if places[each, PHASE] != phase or places[each, OVER] != over:
                        continue
                    if numbers[each, GATHERED]:
                        cut, weights = cut + numbers[each, BYTES], weights + numbers[each, GATHERED]
                    else:
                        whole += numbers[each, BYTES]
                    latest = max(latest, now + numbers[each, READY])
                    if whole + cut >= limit:
                        seconds = _exchange(rates[over], whole, cut)
                        end, reducing = max(end, latest) + seconds, reducing + seconds
                        gathering += _seconds(rates[over, ALL_GATHER], weights)
                        found[3], whole, cut, weights = max(found[3], whole + cut), 0.0, 0.0, 0.0
        if whole + cut:
            seconds = _exchange(rates[over], whole, cut)
            end, reducing = max(end, latest) + seconds, reducing + seconds
            gathering += _seconds(rates[over, ALL_GATHER], weights)
            found[3] = max(found[3], whole + cut)
        found[0], found[1], found[2] = max(found[0], end), max(found[1], reducing), max(found[2], gathering)
    return found


@compiled
def reductions_apart(
    rows: Integers, seconds: Floats, first: Integers, places: Integers, numbers: Floats, rates: Floats, limit: float
) -> Floats:
    """Return the same as `reductions` if each layer has its own buckets. `seconds` are those of the phase that makes
    gradients."""
    layers = len(first) - 1
    apart, largest = np.zeros((layers, 4)), 0.0
    for row in range(layers):
        apart[row] = reductions(np.array([row]), np.zeros((3, 1)), first, places, numbers, rates, limit)
    done = now = total = gathering = 0.0
    for i in range(len(rows) - 1, -1, -1):
        now += seconds[i]
        done = max(done, now) + apart[rows[i], 1]
        total, gathering, largest = (
            total + apart[rows[i], 1],
            gathering + apart[rows[i], 2],
            max(largest, apart[rows[i], 3]),
        )
    return np.array([done - now if total else 0.0, total, gathering, largest])


@compiled
def _exchange(rates: Floats, whole: float, cut: float) -> float:
    """Return the seconds to reduce a bucket: `cut` bytes are scattered, and all replicas keep `whole` bytes."""
    return _seconds(rates[REDUCE_SCATTER], cut) + _seconds(rates[ALL_REDUCE], whole)


@compiled
def _seconds(rates: Floats, amount: float) -> float:
    """Return the seconds of a collective on the slowest group."""
    return (rates[:, 0] + rates[:, 1] * amount).max() if amount else 0.0
