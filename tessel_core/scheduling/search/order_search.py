"""Tabu search over the orders of runs on the devices. The kernel and its moves are in `kernels.orders`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.control import Control
from tessel_core.cpsat import Effort
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.kernels.orders import shorten_orders
from tessel_core.scheduling.kernels.tables import tables_of
from tessel_core.scheduling.order import run_in_order
from tessel_core.scheduling.search.slices import SLICES_PER_SECOND, side_by_side

_STOPS_PER_SLICE = 5_000_000
"""Number of steps times number of stops in one slice of the search.

A stop is a run on one of its devices. A core does at least this many in about a fifth of a second.
"""
_MIN_PATIENCE_STEPS, _PATIENCE_STEPS_PER_RUN = 400, 2


class OrderSearch:
    """A tabu search in slices, each of which starts from the best order so far."""

    MAX_RUNS = 400_000
    """Largest number of runs in a schedule. In larger schedules, a step takes too long."""

    def __init__(self, plan: MicroBatchPlan, starts: IntColumn, seed: int) -> None:
        self.plan, self._shape, self._seed = plan, starts.shape, seed
        self._tables = tables_of(plan, plan.topological_order)
        runs = np.arange(starts.size)
        self._line = np.lexsort((runs, starts.ravel()))
        self.makespan = int((starts + self._tables.duration).max() - starts.min())
        self.idle_slices = 0
        """Number of slices since the last improvement."""

    def improve(self, bound: int) -> None:
        """Run one slice of the search. It stops early at a makespan of `bound`."""
        steps = max(1, _STOPS_PER_SLICE // max(self._shape[0] * self._tables.place_device.size, 200))
        patience = _MIN_PATIENCE_STEPS + _PATIENCE_STEPS_PER_RUN * self._line.size
        self._seed += 1
        makespan = shorten_orders(self._tables, self._line, bound, steps, patience, self._seed * 7919 % 2**31)
        self.idle_slices = 0 if makespan < self.makespan else self.idle_slices + 1
        self.makespan = min(makespan, self.makespan)

    @property
    def starts(self) -> IntColumn:
        """Starts of the best schedule in ticks, shaped (micro-batches, blocks).

        Every run starts as early as the order on its devices allows.
        """
        blocks = self._shape[1]
        order: Sequence[tuple[int, int]] = [(run % blocks, run // blocks) for run in self._line.tolist()]
        return run_in_order(self.plan, self._shape[0], order)


def shorten(plan: MicroBatchPlan, starts: IntColumn, bound: int, effort: Effort, control: Control) -> IntColumn:
    """Shorten a valid schedule for up to `effort.seconds`, or until its makespan is `bound`.

    Return starts that are shaped like `starts` and never longer. Every run starts as early as the order on its devices
    allows.
    """
    search = OrderSearch(plan, starts, effort.seed)
    if starts.size > OrderSearch.MAX_RUNS:
        return search.starts
    control = control if effort.repeatable else control.part(effort.seconds)
    slices = max(1, int(effort.seconds * SLICES_PER_SECOND))
    best = search.starts
    while search.makespan > bound and not control.stopped and (slices or not effort.repeatable):
        slices -= 1
        before = search.makespan
        if side_by_side([lambda: search.improve(bound)], 1, control) is None:
            return best
        if search.makespan < before:
            best = search.starts
    return best
