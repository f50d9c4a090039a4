"""Runs of a stage whose replicas exchange weights and gradients for every micro-batch (ZeRO stages 2 and 3).

A device computes in one stream and exchanges in other streams, one per dimension of replicas. Each stream becomes free
at some moment. The moments after a run are sums and maxima of the moments before it. So a run is a matrix in max-plus
algebra [Baccelli 1992, Synchronization and Linearity, chapter 2]. Its element [i, j] is the seconds from moment j
before the run to moment i after it. Operations have the order of `ir/transforms/zero.py` and `partition.py` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessel_core.strategies.structure import BACKWARD, FORWARD, WEIGHT

Column = NDArray[np.float64]
Streams = tuple[float, ...]
"""One number per stream of exchanges."""
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
    """Seconds from the end of its computation until its last result is ready. The next gather waits for this result."""
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

    @property
    def row(self) -> tuple[float, ...]:
        """The fields as the kernel `moments_after` reads them."""
        own = self.seconds, self.gap, self.late, self.copy, self.adding, self.copying
        return *own, *self.gather, *self.scatter, *self.ready


@dataclass(frozen=True, slots=True)
class Exchanging:
    """The runs of a stage as matrices."""

    runs: Column
    """Seconds, shaped (2, phases, moments after, moments before).

    The first index is 0 for the first run of a phase on a device, and 1 for later runs. The moments before a run are
    those at which the device and then each stream become free. After the run there is one more moment, the last: the
    outputs are ready.
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
    """Return the runs of a stage. `phases` has the steps of each phase, in order.

    For each phase, `onward` has the seconds from the end of the computation until the outputs are ready. `turns` is set
    for the last stage of a network, whose backward pass directly follows its forward pass. That backward pass gathers
    its first weights only when the forward pass has ended.
    """
    from tessel_core.strategies.kernels import moments_after

    backward, weight = phases[BACKWARD], phases[WEIGHT]
    made = _scattering((*backward, *weight))
    before = {FORWARD: (), BACKWARD: made, WEIGHT: _scattering((*weight, *backward))}
    runs = np.empty((2, len(phases), 2 + streams, 1 + streams))
    for phase, steps in enumerate(phases):
        rows, waits = _rows(steps, streams), turns and phase == BACKWARD
        for later in (1, 0):
            if not later and not before[phase]:
                runs[0, phase] = runs[1, phase]
                continue
            waiting = before[phase] if later else _scattering(backward) if phase == WEIGHT else ()
            runs[later, phase] = moments_after(
                rows, _rows(waiting, streams), streams, onward[phase], not later, waits, _SCATTERING_STEPS
            )
    # After the last run, all gradients are added, which is a run without steps.
    ends = moments_after(_rows((), streams), _rows(made, streams), streams, 0.0, False, False, 0)
    return Exchanging(runs, tuple(ends[:-1].max(axis=0).tolist()))


def _rows(steps: Sequence[Step], streams: int) -> Column:
    """Return the steps as rows of an array, in the order of `Step.row`."""
    return np.array([step.row for step in steps]).reshape(len(steps), 6 + 3 * streams)


def _scattering(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps whose gradients are still being scattered after all steps."""
    return tuple([step for step in steps if any(step.scatter)][-_SCATTERING_STEPS:])
