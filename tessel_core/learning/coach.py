"""The coach of a puzzle. It finds the best completion of a schedule that the player has begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan
from tessel_core.model.schedule import IntColumn
from tessel_core.scheduling.finish import Finish
from tessel_core.scheduling.order import Run

Placed = tuple[int, int, int]
"""A run that the player has placed: block, micro-batch, and start in ticks."""


def runs_kept(rows: Sequence[Sequence[int]]) -> tuple[Placed, ...]:
    """Return the runs that the player has placed on a board. Empty if `rows` is not a list of runs."""
    found = [tuple(row) for row in rows]
    return tuple((b, m, at) for b, m, at in found) if all(len(row) == 3 for row in found) else ()


_BEAM_WIDTH, _TIME_LIMIT_S = 100, 5.0


@dataclass(frozen=True, slots=True)
class Advice:
    """Answer of the coach: a completion of the player's schedule."""

    starts: tuple[tuple[int, ...], ...] | None
    """Starts of all runs, shaped (micro-batches, blocks), in ticks; None if no completion was found."""
    proved: bool
    """Whether it is proved that no better completion exists.

    If `starts` is None, whether it is proved that no completion exists.
    """


@dataclass(frozen=True, slots=True)
class Coaching:
    """Question: how to complete a schedule without moving the runs that the player placed."""

    plan: MicroBatchPlan
    micro_batches: int
    placed: tuple[Placed, ...]
    least: int = 0
    """A proved lower bound on the makespan of all schedules, in ticks."""

    def solve(self, control: Control) -> Advice:
        """Return the shortest completion found within the time limit."""
        control = control.part(_TIME_LIMIT_S)
        pinned = {(b, m): start for b, m, start in self.placed}
        starts, impossible = self._some_completion(pinned, control)
        if starts is None:
            return Advice(None, impossible)
        rows = tuple(map(tuple, starts.tolist()))
        found = Finish(self.plan, rows, frozenset(pinned), least=self.least, time_limit=_TIME_LIMIT_S).solve(control)
        assert found.report.solution is not None
        return Advice(tuple(map(tuple, found.report.solution.starts.tolist())), found.proved)

    def _some_completion(self, pinned: dict[Run, int], control: Control) -> tuple[IntColumn | None, bool]:
        """Return the starts of any valid completion.

        If none was found, return None, and whether it is proved that none exists.
        """
        from tessel_core.cpsat import Effort, Verdict, ask
        from tessel_core.scheduling.kernels.warm import warm_in_time
        from tessel_core.scheduling.search.beam_search import BeamSearch
        from tessel_core.scheduling.search.runs_model import RunsModel

        last = max((start + self.plan.blocks[b].duration for (b, _), start in pinned.items()), default=0)
        horizon = last + self.micro_batches * self.plan.total_time
        if warm_in_time(control):
            search = BeamSearch(self.plan, self.micro_batches, pinned)
            found = search.search(_BEAM_WIDTH, horizon, 0, lambda: control.stopped)
            if found.starts is not None or found.excluded:
                return found.starts, found.excluded
        model = RunsModel(self.plan, self.micro_batches, horizon, pinned=pinned)
        answer = ask(model.cp, Effort(_TIME_LIMIT_S, 1, 0), control)
        return (model.starts(answer) if answer.verdict.found else None), answer.verdict is Verdict.IMPOSSIBLE
