"""Compiled loops of the strategies. Importing this module takes long, so functions import it when they need it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled, inlined
from tessel_core.strategies.orders import ADDING, COPYING, NOWHERE, STAYS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled
def ends_of_stages(
    runs: Integers,
    device_of: Integers,
    last: Integers,
    links: int,
    seconds: Floats,
    onward: Floats,
    sends: Floats,
    leads: Floats,
    talks: Floats,
    trailing: Floats,
    joining: Floats,
    exchanging: Floats,
    closing: Floats,
) -> Floats:
    """Return the end of each stage in seconds, as an array of shape (stages, configurations).

    Rows of `runs` are stage, phase, turn, makes, before, after and onto of `Order`. `last` has the last run of each
    stage, and `links` is the number of links. The other arrays are those of `StageTimes`. `talks`, `joining` and
    `exchanging` are empty if the field is None.
    """
    count, devices, talk, join = seconds.shape[2], device_of.max() + 1, talks.size > 0, joining.size > 0
    exchanges, streams = exchanging.size > 0, max(0, closing.shape[1] - 1)
    ends, arrives, done = (
        np.empty((runs.shape[1], count)),
        np.empty((runs.shape[1], count)),
        np.empty((last.size, count)),
    )
    free, talking = np.zeros((max(1, links), count)), np.zeros((devices, count))
    moments, after_run = np.zeros((devices, 1 + streams, count)), np.zeros(2 + streams)
    begun = np.zeros((devices, 3), np.int64)
    for run in range(runs.shape[1]):
        stage, phase, turn, makes, before, after, onto = runs[:, run]
        device, by_link = device_of[stage], after >= 0 and phase < 2 and runs[6, after] != NOWHERE
        for c in range(count):
            ready, out = ends[before, c] if before >= 0 else 0.0, onward[stage, min(phase, 1), c]
            if by_link:
                ready = max(ready, arrives[after, c] - leads[stage, phase, c])
            elif after >= 0:
                ready = max(ready, ends[after, c])
            if exchanges:
                moments[device, 0, c] = ready
                _exchange(exchanging[stage, begun[device, phase], phase, :, :, c], moments[device, :, c], after_run)
                end, out = after_run[0], after_run[1 + streams] - after_run[0]
            elif makes:
                end = ready + (seconds[stage, phase, c] + seconds[stage, ADDING if turn else COPYING, c])
            else:
                end = ready + seconds[stage, phase, c]
            if join and phase < 2:
                end += joining[stage, phase, turn, c]
            late = 0.0
            if talk:
                # A run's collectives wait for those of the run before. Its computation waits too, unless its own
                # collectives end later than the computation. They then end later instead.
                late = max(talking[device, c] - ready - talks[stage, phase, c], 0.0)
                if trailing[stage, phase, c] <= 0:
                    end += late
                    late = 0.0
                talking[device, c] = end + trailing[stage, phase, c] + late
            if onto >= 0:
                gone = max(end + out + late, free[onto, c]) + sends[stage - phase, phase, c]
                free[onto, c] = arrives[run, c] = gone
            elif onto == STAYS:
                arrives[run, c] = end + out + late
            ends[run, c] = end
            if run == last[stage]:
                done[stage, c] = end
                if exchanges:
                    moments[device, 0, c] = end
                    done[stage, c] = (moments[device, :, c] + closing[stage, :, c]).max()
        begun[device, phase] = 1
    return done


@inlined
def _exchange(matrix: Floats, moments: Floats, after_run: Floats) -> None:
    """Compute the moments after a run: `after_run` is the max-plus product of `matrix` and `moments`.

    Then copy the new moments of the streams to `moments[1:]`.
    """
    for i in range(after_run.size):
        after_run[i] = -np.inf
        for j in range(moments.size):
            after_run[i] = max(after_run[i], matrix[i, j] + moments[j])
    moments[1:] = after_run[1:-1]


@compiled
def extended(best: Floats, cost: Floats) -> tuple[Floats, Integers]:
    """Return for each number of layers the least largest cost with one stage more, and the first layer of that stage.

    `best` has the least largest costs without that stage. `cost[i, j]` is the stage's cost with layers i to j - 1.
    """
    found, first = np.full(best.size, np.inf), np.zeros(best.size, np.int64)
    for i in range(best.size):
        if best[i] == np.inf:
            continue
        for j in range(i + 1, best.size):
            largest = max(best[i], cost[i, j])
            if largest < found[j]:
                found[j], first[j] = largest, i
    return found, first


@inlined
def _occupy(free: Floats, step: Floats, offset: int, after: float, ready: int) -> float:
    """Let the streams exchange, and return the end of the exchange, or -inf if there is none.

    Element `offset + s` of `step` has the seconds of stream s. An exchange starts when its stream is free, and not
    before `after`. If `ready` is not 0, element `ready + s` is added to `after`.
    """
    end = -np.inf
    for s in range(free.size):
        if step[offset + s]:
            start = after + step[ready + s] if ready else after
            free[s] = max(free[s], start) + step[offset + s]
            end = max(end, free[s])
    return end


@inlined
def _add(computed: float, scattered: Floats, added: int, pending: int) -> tuple[float, int]:
    """Add gradients to their sums, from number `added` to `pending` - 1. Return the end and the new `added`.

    Columns of `scattered` are the moment at which gradients are scattered, and the seconds to add them.
    """
    while added < pending:
        computed = max(computed, scattered[added, 0]) + scattered[added, 1]
        added += 1
    return computed, added


@compiled
def moments_after(
    steps: Floats, before: Floats, streams: int, onward: float, first: bool, waits: bool, scattering: int
) -> Floats:
    """Return the max-plus matrix of a run, shaped (2 + streams, 1 + streams), as in `Exchanging.runs`.

    Rows of `steps` are `Step.row`. The gradients of the steps `before` are still to be added. `first` is set for the
    first micro-batch. With `waits`, the first gathers wait for the device. The gradients of the latest `scattering`
    steps are not added yet.
    """
    found, scattered = np.empty((2 + streams, 1 + streams)), np.empty((len(before) + len(steps), 2))
    adding, gather, scatter, ready = 5 if first else 4, 6, 6 + streams, 6 + 2 * streams
    for column in range(1 + streams):
        free, computed = np.full(streams, -np.inf), -np.inf
        if column:
            free[column - 1] = 0.0
        else:
            computed = 0.0
        at, added, waiting = free.copy(), 0, len(before)
        for i in range(len(before) - 1, -1, -1):
            scattered[i] = at.max(), before[i, adding]
            at -= before[i, scatter:ready]
        gathered, done = -np.inf, computed if waits else -np.inf
        for number in range(len(steps)):
            step, start, coming = steps[number], computed, -np.inf
            if number:
                start, added = _add(computed, scattered, added, waiting - scattering)
            else:
                gathered = _occupy(free, step, gather, done, 0)
            if number + 1 < len(steps):
                coming = _occupy(free, steps[number + 1], gather, done, 0)
                # The device issues the gather in order, so it waits for the last result as well.
                start = max(start, done) if coming > -np.inf else start
            if step[3]:
                start = max(start, gathered) + step[3]
            start = max(start, computed + step[1]) if number else start + step[1]
            computed = start + step[0] - step[1]
            done, gathered = computed + step[2], coming
            if step[scatter:ready].any():
                scattered[waiting] = _occupy(free, step, scatter, computed, ready), step[adding]
                waiting += 1
        found[0, column], _ = _add(computed, scattered, added, waiting - scattering)
        found[1:-1, column] = free
        found[-1, column] = computed + onward
    return found
