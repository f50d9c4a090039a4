"""Completion of a schedule around pinned runs ("Finish from here")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.model.schedule import IntColumn
from tessel_core.rules import insist
from tessel_core.scheduling.bounds import makespan_bound
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.reports import caveat, report_on
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.slices import work_off
from tessel_core.scheduling.steady import find_steady_state
from tessel_core.scheduling.structure import path_lengths

if TYPE_CHECKING:
    from tessel_core.cpsat import Effort

BY_HAND = "hand"
"""Name of the solver in reports on schedules that were changed by hand."""
_MAX_FREE_RUNS = 4_000
"""Largest number of free runs in one model."""
_LOADING_SHARE = 0.25
"""Fraction of the time limit for which beams wait until their kernels are compiled.

Horizons need no kernels.
"""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completed schedule that keeps its pins: the starts or the order of pinned runs."""

    report: ScheduleReport
    """Report whose bound holds for all schedules of the plan, with or without the pins.

    Its `reason` says whether a shorter schedule with the same pinned runs exists.
    """
    bound: int
    """Lower bound in ticks on the makespan of every schedule that keeps the pins."""

    @property
    def proved(self) -> bool:
        """Whether no schedule that keeps the pins is shorter."""
        return self.report.makespan == self.bound


class _FromZero(Incumbent):
    """An incumbent whose makespan counts from 0, because pinned starts must not be shifted."""

    def length(self, starts: IntColumn) -> int:
        """Return the ticks from 0 to the last end."""
        return int((starts + [block.duration for block in self.plan.blocks]).max())


@dataclass(frozen=True)
class Finish:
    """All inputs of a completion: a schedule and its pinned runs. `Question` has the inputs for whole schedules."""

    plan: MicroBatchPlan
    starts: tuple[tuple[int, ...], ...]
    """Starts of a valid schedule, shaped (micro-batches, blocks)."""
    pins: frozenset[Run]
    by_order: bool = False
    """Whether pinned runs keep only their order on each device, and not their starts."""
    least: int = 0
    """Lower bound in ticks that an earlier search proved for all schedules of the plan."""
    time_limit: float = 20.0
    workers: int = 2
    seed: int = 0

    @classmethod
    def of(cls, schedule: Schedule, pins: frozenset[Run], *, by_order: bool = False, least: int = 0) -> Finish:
        """Build the inputs for the completion of a schedule around its pinned runs."""
        return cls(schedule.plan, tuple(map(tuple, schedule.starts.tolist())), pins, by_order, least)

    def solve(self, control: Control) -> Completion:
        """Return the shortest schedule found that keeps the pins. It is never longer than the given one.

        Raises InputError if too many runs are free for one model.
        """
        from tessel_core.cpsat import Effort

        control, plan = control.part(self.time_limit), self.plan
        starts = np.array(self.starts, dtype=np.int64)
        free = starts.size - len(self.pins)
        if free > _MAX_FREE_RUNS:
            raise InputError("pins", f"{free:,} runs are free, more than {_MAX_FREE_RUNS:,}: pin more of them")
        effort = Effort(self.time_limit, self.workers, self.seed, repeatable=self.workers == 1)
        starts, bound = self._completed(starts, effort, control)
        schedule = Schedule.at_starts(plan, starts, find_steady_state(starts))
        insist(schedule, BY_HAND)
        report = report_on(schedule, self._least, caveat(self.workers, control))
        if schedule.makespan == bound > self._least:
            runs = "pinned run" if len(self.pins) == 1 else f"{len(self.pins):,} pinned runs"
            how = f"{runs} {'in order' if self.by_order else 'in place'}"
            report = replace(report, reason=f"no schedule that keeps the {how} is shorter")
        history = tuple(control.history)
        return Completion(replace(report, solver=BY_HAND, wall_s=control.elapsed_s, history=history), bound)

    def _completed(self, starts: IntColumn, effort: Effort, control: Control) -> tuple[IntColumn, int]:
        """Return the starts of the best schedule, shaped (micro-batches, blocks), and the lower bound in ticks."""
        from tessel_core.scheduling.kernels.warm import warm_in_time
        from tessel_core.scheduling.search.around_pins import AroundPins

        incumbent = _FromZero(self.plan, starts, self._bound(), control, BY_HAND)
        if not incumbent.proved:
            warm = warm_in_time(control.part(_LOADING_SHARE * self.time_limit))
            tasks = AroundPins(incumbent, self._pinned_starts, self._orders, effort, control, beams=warm)
            work_off(
                self.workers, tasks.next_task, lambda task: task.work(), lambda task, found: task.finish(found), control
            )
        return incumbent.starts, incumbent.bound

    @property
    def _pinned_starts(self) -> dict[Run, int]:
        """Return the start of each pinned run in ticks. Empty if only the order of pinned runs is kept."""
        return {} if self.by_order else {(b, m): self.starts[m][b] for b, m in self.pins}

    @property
    def _orders(self) -> list[tuple[Run, Run]]:
        """Return the pairs of consecutive pinned runs on each device. Empty if their starts are kept."""
        if not self.by_order:
            return []
        lines = (sorted(on, key=lambda run: self.starts[run[1]][run[0]]) for on in self._pinned_on())
        return sorted({pair for line in lines for pair in pairwise(line)})

    def _pinned_on(self) -> list[list[Run]]:
        """Return the pinned runs of each device."""
        return [[(b, m) for b, m in self.pins if b in on] for on in map(set, self.plan.blocks_on)]

    def _bound(self) -> int:
        """Return a lower bound on the makespan in ticks.

        It is the bound for all schedules or, if larger, the start of a pinned run plus the longest path from there to
        the end.
        """
        if self.by_order:
            return self._least
        _, tails = path_lengths(self.plan)
        return max([self._least, *(self.starts[m][b] + tails[b] for b, m in self.pins)])

    @property
    def _least(self) -> int:
        return max(self.least, makespan_bound(self.plan, len(self.starts)))
