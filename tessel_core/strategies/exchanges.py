"""Runs of a stage whose replicas exchange weights and gradients for every micro-batch (ZeRO stages 2 and 3).

A device computes in one stream and exchanges in others, one for each dimension of replicas.  The moments at which these
streams become free after a run are sums and maxima of the moments before it.  So a run is a matrix in max-plus algebra
[Baccelli 1992, Synchronization and Linearity, chapter 2]: element [i, j] has the seconds from moment j before the run
to moment i after it.  The order of operations is that of `ir/transforms/zero.py` and `ir/transforms/partition.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from tessel_core.strategies.blocks import BACKWARD, FORWARD, WEIGHT

Column = NDArray[np.float64]
Streams = tuple[float, ...]
"""One number for each stream of exchanges."""
_SCATTERING_STEPS = 2
"""Number of steps whose gradients are still being scattered while the next step runs, as in `Partition`."""


@dataclass(frozen=True, slots=True)
class Step:
    """The computation of one unit of weights in one run, and what it exchanges."""

    seconds: float
    """Seconds from the end of the previous step's computation to the end of its own, without exchanges."""
    gap: float
    """Seconds at the start of `seconds` in which the device does not compute."""
    late: float
    """Seconds from the end of its computation until its last result is ready.  The next gather waits for it."""
    copy: float
    """Seconds to copy gathered weights out of their buffers."""
    gather: Streams
    """Seconds to gather its weights; 0 if they are present."""
    scatter: Streams
    """Seconds to reduce and scatter its gradients."""
    ready: Streams
    """Seconds from the end of its computation until its gradients are complete."""
    adding: float
    """Seconds to add the scattered gradients to their sums."""
    copying: float
    """Seconds to copy the scattered gradients of the first micro-batch."""


@dataclass(frozen=True, slots=True)
class Exchanging:
    """The runs of a stage as matrices."""

    runs: Column
    """Indexed by 0 for the first run of a phase on a device and 1 for later ones, phase, moment after, moment before.

    Moments before a run are those at which the device, and then each stream, is free.  Moments after it are the same
    ones, and then the moment at which the outputs of the run are ready.
    """
    closing: Streams
    """Seconds from each moment after the last run until all gradients are added to their sums."""

    @property
    def least(self) -> Column:
        """Lower bounds of the seconds of a run, by phase: until its computation ends, and until its outputs are ready.

        They count from the moment at which the device is free.
        """
        return np.asarray(self.runs[:, :, (0, -1), 0].min(axis=0))


def exchanging(phases: Sequence[Sequence[Step]], onward: Sequence[float], streams: int, *, turns: bool) -> Exchanging:
    """Return the runs of a stage from the steps of each phase, in order.

    `onward` has the seconds from the end of the computation until the outputs are ready, for each phase.  `turns` says
    that the backward pass of the stage follows its forward pass, whose last layers it waits for before it gathers.
    """
    backward, weight = phases[BACKWARD], phases[WEIGHT]
    made = _scattering((*backward, *weight))
    before = {FORWARD: (), BACKWARD: made, WEIGHT: _scattering((*weight, *backward))}
    runs = np.full((2, len(phases), 2 + streams, 1 + streams), -inf)
    for phase, steps in enumerate(phases):
        alike = not before[phase]
        for later in (1,) if alike else (0, 1):
            waiting = before[phase] if later else _scattering(backward) if phase == WEIGHT else ()
            for column in range(1 + streams):
                free = [0.0 if each == column else -inf for each in range(1 + streams)]
                runs[later, phase, :, column] = _after(
                    steps, free, waiting, onward[phase], first=not later, waits=turns and phase == BACKWARD
                )
        if alike:
            runs[0, phase] = runs[1, phase]
    closing = []
    for column in range(1 + streams):
        free = [0.0 if each == column else -inf for each in range(1 + streams)]
        done = free[0]
        for end, step in _pending(made, free[1:]):
            done = max(done, end) + step.adding
        closing.append(max(done, *free[1:]))
    return Exchanging(runs, tuple(closing))


def _scattering(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps whose gradients are still being scattered after all steps."""
    return tuple([step for step in steps if any(step.scatter)][-_SCATTERING_STEPS:])


def _pending(steps: Sequence[Step], free: Sequence[float]) -> list[tuple[float, Step]]:
    """Return steps whose gradients are still to be added, with the moments at which they are scattered.

    `free` has the moments at which the streams have scattered all of them.
    """
    found, ends = list[tuple[float, Step]](), list(free)
    for step in reversed(steps):
        found.insert(0, (max(ends), step))
        ends = [end - seconds for end, seconds in zip(ends, step.scatter, strict=True)]
    return found


def _after(
    steps: Sequence[Step], free: Sequence[float], before: Sequence[Step], onward: float, *, first: bool, waits: bool
) -> list[float]:
    """Return the moments after a run that starts when the device and the streams are `free`.

    The gradients of the steps `before` are still to be added.  `first` says that it is the first micro-batch, and
    `waits` that the first gathers wait for the device.
    """
    computed, streams, waiting = free[0], list(free[1:]), _pending(before, free[1:])
    gathered, done = -inf, computed if waits else -inf
    for number, step in enumerate(steps):
        if not number:
            gathered = _exchange(streams, step.gather, (done,) * len(streams))
        start, coming = _added(computed, waiting, first) if number else computed, -inf
        if number + 1 < len(steps):
            coming = _exchange(streams, steps[number + 1].gather, (done,) * len(streams))
            # The device issues the gather in order, so it waits for the last result as well.
            start = max(start, done) if coming > -inf else start
        if step.copy:
            start = max(start, gathered) + step.copy
        start = max(start, computed + step.gap) if number else start + step.gap
        computed = start + step.seconds - step.gap
        done, gathered = computed + step.late, coming
        if any(step.scatter):
            end = _exchange(streams, step.scatter, [computed + each for each in step.ready])
            waiting.append((end, step))
    ready = computed + onward
    return [_added(computed, waiting, first), *streams, ready]


def _exchange(streams: list[float], seconds: Streams, after: Sequence[float]) -> float:
    """Occupy the streams for an exchange that starts `after` these moments.  Return its end."""
    end = -inf
    for number, each in enumerate(seconds):
        if each:
            end = streams[number] = max(streams[number], after[number]) + each
    return end


def _added(computed: float, waiting: list[tuple[float, Step]], first: bool) -> float:
    """Return the moment at which the gradients of all but the latest steps are added to their sums."""
    while len(waiting) > _SCATTERING_STEPS:
        end, step = waiting.pop(0)
        computed = max(computed, end) + (step.copying if first else step.adding)
    return computed
