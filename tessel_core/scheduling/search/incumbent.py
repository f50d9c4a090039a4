"""The shortest schedule so far, of all that searches offer."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan
from tessel_core.model.schedule import IntColumn


class Incumbent:
    """The least makespan found and the bound on it, with news of both.

    `starts`, shaped (micro-batches, blocks), begins with those of the sequential schedule; `bound` is a makespan that
    no schedule can beat, and may be raised.
    """

    def __init__(self, plan: MicroBatchPlan, starts: IntColumn, bound: int, control: Control) -> None:
        self.plan, self.starts, self.bound, self.control = plan, starts, bound, control
        self._durations = [block.duration for block in plan.blocks]
        self.makespan = self._makespan_of(starts)
        self.news("sequential")

    @property
    def micro_batches(self) -> int:
        return len(self.starts)

    @property
    def runs(self) -> int:
        """Blocks times micro-batches."""
        return self.starts.size

    @property
    def proved(self) -> bool:
        return self.makespan <= self.bound

    def _makespan_of(self, starts: IntColumn) -> int:
        return int((starts + self._durations).max() - starts.min())

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a shorter schedule, found by what `by` names; says whether it is shorter."""
        if starts is None or self._makespan_of(starts) >= self.makespan:
            return False
        self.makespan, self.starts = self._makespan_of(starts), starts
        self.news(by)
        return True

    def raise_bound(self, bound: int, by: str) -> bool:
        """Take a better bound, proved by what `by` names; says whether it is better."""
        if bound <= self.bound:
            return False
        self.bound = bound
        self.news(by)
        return True

    def news(self, by: str) -> None:
        """Tell how far the makespan is from its bound."""
        self.control.report(MAKESPAN, self.makespan, self.bound, by)
