"""A schedule that somebody began: some runs are pinned, and the search completes the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import MAKESPAN, MicroBatchPlan, Schedule, ScheduleReport
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
    from tessel_core.scheduling.search.beam_search import BeamResult
    from tessel_core.scheduling.search.runs_model import RunsModel

BY_HAND = "hand"
"""What reports of schedules that somebody changed name as their solver."""
_MOST_FREE, _PRESOLVED_RUNS = 4_000, 1_000
"""Runs that one model takes, and up to which presolve and linear relaxations gain more than they take."""
_LOADING_SHARE = 0.25
"""Of the time, for which beams wait for their kernels; the model needs none."""
_NARROW, _FEW = 300, 100
"""Wider beams are asked nearer to the bound, where no more ticks than that lie between: they may prove something."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A schedule that keeps its pins."""

    report: ScheduleReport
    """On the schedule among all of its plan; what is proved of those that keep the pins its reason says."""
    bound: int
    """No schedule that keeps the pins is shorter, in ticks."""

    @property
    def proved(self) -> bool:
        """Whether it is the shortest that keeps the pins."""
        return self.report.makespan == self.bound


class _FromZero(Incumbent):
    """Schedules whose pinned runs say where time begins."""

    def length(self, starts: IntColumn) -> int:
        """Ticks from 0 to the last end."""
        return int((starts + [block.duration for block in self.plan.blocks]).max())


class _Asked(NamedTuple):
    """A beam that looks for a schedule that ends by the limit."""

    width: int
    backwards: bool
    limit: int


@dataclass(frozen=True)
class Finish:
    """The question how a schedule is completed around pinned runs, as `Question` is one about all of it."""

    plan: MicroBatchPlan
    starts: tuple[tuple[int, ...], ...]
    """Of a schedule that keeps the rules, shaped (micro-batches, blocks)."""
    pins: frozenset[Run]
    by_order: bool = False
    """Whether pinned runs keep only the order in which they stand on each device, not their starts."""
    least: int = 0
    """What a search has proved before: no schedule of the plan, with pins or without, is shorter."""
    time_limit: float = 20.0
    workers: int = 2
    seed: int = 0

    @classmethod
    def of(cls, schedule: Schedule, pins: frozenset[Run], *, by_order: bool = False, least: int = 0) -> Finish:
        """How this schedule goes on around its pinned runs."""
        return cls(schedule.plan, tuple(map(tuple, schedule.starts.tolist())), pins, by_order, least)

    def solve(self, control: Control) -> Completion:
        """The shortest schedule found that keeps the pins, never longer than before.

        Raises InputError where too many runs are free for one model.
        """
        from tessel_core.cpsat import Effort

        control, plan = control.part(self.time_limit), self.plan
        starts = np.array(self.starts, dtype=np.int64)
        free = starts.size - len(self.pins)
        if free > _MOST_FREE:
            raise InputError("pins", f"{free:,} runs are free, more than {_MOST_FREE:,}: pin more of them")
        effort = Effort(self.time_limit, self.workers, self.seed, repeatable=self.workers == 1)
        starts, bound = self._completed(starts, effort, control)
        found = Schedule.at_starts(plan, starts, find_steady_state(starts))
        insist(found, BY_HAND)
        report = report_on(found, self._least, caveat(self.workers, control))
        if found.makespan == bound > self._least:
            runs = "pinned run" if len(self.pins) == 1 else f"{len(self.pins):,} pinned runs"
            how = f"{runs} {'in order' if self.by_order else 'in place'}"
            report = replace(report, reason=f"no schedule that keeps the {how} is shorter")
        history = tuple(control.history)
        return Completion(replace(report, solver=BY_HAND, wall_s=control.elapsed_s, history=history), bound)

    def _completed(self, starts: IntColumn, effort: Effort, control: Control) -> tuple[IntColumn, int]:
        """The best starts and the bound: beams first, then all free runs at once, minimised from the best."""
        from tessel_core.scheduling.search.runs_model import minimise_from

        bound = self._bound()
        incumbent = _FromZero(self.plan, starts, bound, control, BY_HAND)
        self._beams(incumbent, control)
        if not incumbent.proved and not control.stopped:
            small = starts.size <= _PRESOLVED_RUNS
            model, effort = self._model(incumbent.makespan), replace(effort, relaxation=small)

            def report(objective: int, least: float) -> None:
                control.report(MAKESPAN, objective, max(bound, int(least)), "around the pins")

            minimise_from(incumbent, model, effort, control, "around the pins", presolve=small, on_solution=report)
        return incumbent.starts, incumbent.bound

    def _beams(self, incumbent: Incumbent, control: Control) -> None:
        """Ever wider beams from both ends, each for what is shorter than the best so far.

        Narrow ones find it soon, wide ones may show that there is none.
        """
        from tessel_core.scheduling.kernels.warm import warm_in_time
        from tessel_core.scheduling.search.beam_search import BeamSearch

        if incumbent.proved or not warm_in_time(control.part(_LOADING_SHARE * self.time_limit)):
            return
        search = BeamSearch(self.plan, len(self.starts), self._pinned_starts, self._orders)
        left = [(width, backwards) for width in search.widths for backwards in (False, True)]

        def one(asked: _Asked) -> BeamResult:
            def settled() -> bool:
                return control.stopped or not incumbent.bound <= asked.limit < incumbent.makespan

            if asked.backwards:
                return search.search_backwards(asked.width, asked.limit, settled)
            return search.search(asked.width, asked.limit, 0, settled)

        def take() -> _Asked | None:
            if not left or incumbent.proved:
                return None
            width, backwards = left.pop(0)
            shorter = incumbent.makespan - 1
            near = width > _NARROW and shorter - incumbent.bound <= _FEW
            return _Asked(width, backwards, (incumbent.bound + shorter) // 2 if near else shorter)

        def finish(asked: _Asked, outcome: BeamResult) -> None:
            if outcome.excluded:
                incumbent.raise_bound(asked.limit + 1, "beam")
            if incumbent.offer(outcome.starts, "beam") or outcome.excluded:
                left.insert(0, (asked.width, asked.backwards))

        work_off(self.workers, take, one, finish, control)

    @property
    def _pinned_starts(self) -> dict[Run, int]:
        """Empty where pinned runs keep their order alone."""
        return {} if self.by_order else {(b, m): self.starts[m][b] for b, m in self.pins}

    @property
    def _orders(self) -> list[tuple[Run, Run]]:
        """Pinned neighbours on a device where they keep their order alone."""
        if not self.by_order:
            return []
        lines = (sorted(on, key=lambda run: self.starts[run[1]][run[0]]) for on in self._pinned_on())
        return sorted({pair for line in lines for pair in pairwise(line)})

    def _model(self, horizon: int) -> RunsModel:
        from tessel_core.scheduling.search.runs_model import RunsModel

        return RunsModel(self.plan, len(self.starts), horizon, pinned=self._pinned_starts, orders=self._orders)

    def _pinned_on(self) -> list[list[Run]]:
        """Per device its pinned runs."""
        return [[(b, m) for b, m in self.pins if b in on] for on in map(set, self.plan.blocks_on)]

    def _bound(self) -> int:
        """Of any schedule, and of what must still follow where runs are pinned."""
        if self.by_order:
            return self._least
        _, tails = path_lengths(self.plan)
        return max([self._least, *(self.starts[m][b] + tails[b] for b, m in self.pins)])

    @property
    def _least(self) -> int:
        return max(self.least, makespan_bound(self.plan, len(self.starts)))
