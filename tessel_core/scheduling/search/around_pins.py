"""Searches for the shortest schedule around pinned runs: beams of growing width, and horizons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessel_core.control import Control
from tessel_core.cpsat import Answer, Effort, Verdict, ask
from tessel_core.scheduling.order import Run
from tessel_core.scheduling.search.beam_search import BeamResult, BeamSearch
from tessel_core.scheduling.search.horizons import Horizons
from tessel_core.scheduling.search.incumbent import Incumbent
from tessel_core.scheduling.search.runs_model import RunsModel
from tessel_core.scheduling.search.timing import compacted_around

_MAX_NARROW_WIDTH = 300
"""Beams that are wider than this may prove a bound."""
_MAX_GAP_FOR_PROOF = 100
"""If bound and incumbent are at most this many ticks apart, wide beams look for a schedule halfway between them."""
_HORIZON_S = 8.0
"""Time limit in seconds of the first horizons. Eight V-shaped stages with 32 micro-batches need this long."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work for one worker. `finish` takes its result."""

    work: Callable[[], Any]
    finish: Callable[[Any], None]


class AroundPins:
    """The tasks that shorten an incumbent around pinned runs, and raise its bound.

    `pinned` gives runs their starts. For each pair of runs in `orders`, the second starts after the first has ended.
    Narrow beams come first, because they find schedules quickly. Then wide beams and horizons take turns. Each worker
    may ask one horizon.
    """

    def __init__(
        self,
        incumbent: Incumbent,
        pinned: Mapping[Run, int],
        orders: Sequence[tuple[Run, Run]],
        effort: Effort,
        control: Control,
        *,
        beams: bool,
    ) -> None:
        self.incumbent, self.effort, self.control = incumbent, replace(effort, workers=1, relaxation=False), control
        self._pinned, self._orders = pinned, orders
        self._search = BeamSearch(incumbent.plan, incumbent.micro_batches, pinned, orders)
        widths = self._search.widths if beams else ()
        self._beams = [(width, backwards) for width in widths for backwards in (False, True)]
        self._horizons = [Horizons(_HORIZON_S, first=i) for i in range(effort.workers)]
        self._asking, self._asked_last, self._left_s = 0, False, effort.seconds

    def next_task(self) -> Task | None:
        """Return the next task. None if the incumbent is proved, or if a repeatable search has used its time."""
        if self.incumbent.proved or (self.effort.repeatable and self._left_s <= 0):
            return None
        wide = not self._beams or self._beams[0][0] > _MAX_NARROW_WIDTH
        if self._beams and (not wide or self._asking or self._asked_last):
            self._asked_last = False
            return self._next_beam()
        self._asked_last = True
        return self._next_horizon()

    def _next_beam(self) -> Task:
        incumbent, (width, backwards) = self.incumbent, self._beams.pop(0)
        shorter = incumbent.makespan - 1
        near = width > _MAX_NARROW_WIDTH and shorter - incumbent.bound <= _MAX_GAP_FOR_PROOF
        limit = (incumbent.bound + shorter) // 2 if near else shorter

        def settled() -> bool:
            return self.control.stopped or not incumbent.bound <= limit < incumbent.makespan

        def work() -> BeamResult:
            if backwards:
                return self._search.search_backwards(width, limit, settled)
            return self._search.search(width, limit, 0, settled)

        def finish(outcome: BeamResult) -> None:
            if outcome.excluded:
                incumbent.raise_bound(limit + 1, "beam")
            if incumbent.offer(outcome.starts, "beam") or outcome.excluded:
                self._beams.insert(0, (width, backwards))

        return Task(work, finish)

    def _next_horizon(self) -> Task:
        incumbent, horizons = self.incumbent, self._horizons.pop(0)
        bound, horizon = incumbent.bound, horizons.next_horizon(incumbent.bound, incumbent.makespan)
        plan, pinned, orders = incumbent.plan, self._pinned, self._orders
        self._asking += 1

        def work() -> tuple[RunsModel, Answer]:
            model = RunsModel(plan, incumbent.micro_batches, horizon, pinned=pinned, orders=orders)
            literals = model.add_order_literals()
            if literals:  # then CP-SAT also proves bounds within the horizon
                model.minimise_makespan(bound)
            effort = self.effort.within(horizons.seconds)
            return model, ask(model.cp, effort, self.control, presolve=not literals)

        def finish(asked: tuple[RunsModel, Answer]) -> None:
            model, answer = asked
            self._asking -= 1
            self._left_s -= answer.counted_seconds
            starts, least = None, bound
            if answer.verdict.found:
                starts = compacted_around(plan, model.starts(answer), pinned, orders)
            if answer.verdict is Verdict.IMPOSSIBLE:
                least = horizon + 1
            elif model.cp.has_objective() and answer.asked and answer.bound > bound:
                least = min(round(answer.bound), horizon + 1)
            shorter = incumbent.offer(starts, "horizon")
            horizons.learn(incumbent.raise_bound(min(least, incumbent.makespan), "horizon") or shorter)
            self._horizons.append(horizons)

        return Task(work, finish)
