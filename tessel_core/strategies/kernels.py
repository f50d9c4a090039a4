"""Compiled loops of the strategies.  Importing this module takes long, so functions import it when they need it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tessel_core.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled
def ends_of_runs(
    runs: Integers,
    device_of: Integers,
    links: int,
    seconds: Floats,
    onward: Floats,
    sends: Floats,
    leads: Floats,
    talks: Floats,
    trailing: Floats,
    joining: Floats,
) -> Floats:
    """Return the end of each run in seconds, as an array of shape (runs, configurations).

    Rows of `runs` are stage, phase, turn, makes, before, after and onto of `Order`, and `links` is the number of its
    links.  The other arrays are those of `StageTimes`; without configurations along the last axis, `talks` and
    `joining` do not count.
    """
    count, devices, talk, join = seconds.shape[2], device_of.max() + 1, talks.shape[2] > 0, joining.shape[3] > 0
    ends, arrives = np.empty((runs.shape[1], count)), np.empty((runs.shape[1], count))
    free, talking = np.zeros((max(1, links), count)), np.zeros((devices, count))
    for run in range(runs.shape[1]):
        stage, phase, turn, makes, before, after, onto = runs[:, run]
        device, by_link = device_of[stage], after >= 0 and phase < 2 and runs[6, after] != -2
        for c in range(count):
            ready = ends[before, c] if before >= 0 else 0.0
            if by_link:
                ready = max(ready, arrives[after, c] - leads[stage, phase, c])
            elif after >= 0:
                ready = max(ready, ends[after, c])
            if makes:
                end = ready + (seconds[stage, phase, c] + seconds[stage, 3 if turn else 4, c])
            else:
                end = ready + seconds[stage, phase, c]
            if join and phase < 2:
                end += joining[stage, phase, turn, c]
            late = 0.0
            if talk:
                # A run's collectives wait for those of the run before.  Its computation waits too, unless its own
                # collectives outlast it: these end later instead.
                late = max(talking[device, c] - ready - talks[stage, phase, c], 0.0)
                if trailing[stage, phase, c] <= 0:
                    end += late
                    late = 0.0
                talking[device, c] = end + trailing[stage, phase, c] + late
            if onto >= 0:
                gone = max(end + onward[stage, phase, c] + late, free[onto, c]) + sends[stage - phase, phase, c]
                free[onto, c] = arrives[run, c] = gone
            elif onto == -1:
                arrives[run, c] = end + onward[stage, phase, c] + late
            ends[run, c] = end
    return ends


@compiled
def extended(best: Floats, cost: Floats) -> tuple[Floats, Integers]:
    """Return for each number of layers the least largest cost with one stage more, and the first layer of that stage.

    `best` has the least largest costs without that stage.  `cost[i, j]` is the stage's cost with layers i to j - 1.
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
