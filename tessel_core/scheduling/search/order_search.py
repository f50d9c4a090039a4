"""Shorter schedules by changing the order on the devices: see `kernels.orders` for the moves."""

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

_VISITS_PER_SLICE = 5_000_000
"""Steps times places of runs that a core manages in about a fifth of a second, at least."""
_LEAST_PATIENCE, _PATIENCE_PER_RUN = 400, 2


class OrderSearch:
    """A schedule whose orders are improved slice by slice, each from the best so far."""

    MOST_RUNS = 400_000
    """A step through more than this is not worth its time."""

    def __init__(self, plan: MicroBatchPlan, starts: IntColumn, seed: int) -> None:
        self.plan, self._shape, self._seed = plan, starts.shape, seed
        self._tables = tables_of(plan, plan.topological_order)
        runs = np.arange(starts.size)
        self._line = np.lexsort((runs, starts.ravel()))
        self.makespan = int((starts + self._tables.duration).max() - starts.min())
        self.idle_slices = 0
        """Slices since the last improvement."""

    def improve(self, bound: int) -> None:
        """One slice of steps."""
        steps = max(1, _VISITS_PER_SLICE // max(self._shape[0] * self._tables.place_device.size, 200))
        patience = _LEAST_PATIENCE + _PATIENCE_PER_RUN * self._line.size
        self._seed += 1
        found = shorten_orders(self._tables, self._line, bound, steps, patience, self._seed * 7919 % 2**31)
        self.idle_slices = 0 if found < self.makespan else self.idle_slices + 1
        self.makespan = min(found, self.makespan)

    @property
    def starts(self) -> IntColumn:
        """Left-compacted, shaped (micro-batches, blocks)."""
        blocks = self._shape[1]
        order: Sequence[tuple[int, int]] = [(run % blocks, run // blocks) for run in self._line.tolist()]
        return run_in_order(self.plan, self._shape[0], order)


def shorten(plan: MicroBatchPlan, starts: IntColumn, bound: int, effort: Effort, control: Control) -> IntColumn:
    """Starts, shaped like `starts`, of a schedule that is no longer, left-compacted; stops at a makespan of `bound`.

    `starts` must keep all rules.  Takes up to `effort.seconds`.
    """
    search = OrderSearch(plan, starts, effort.seed)
    if starts.size > OrderSearch.MOST_RUNS:
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
