"""The shortest schedule so far, of all that searches offer."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan
from tessel_core.model.schedule import IntColumn


def makespan_of(plan: MicroBatchPlan, starts: IntColumn) -> int:
    """Ticks from the first of `starts`, shaped (micro-batches, blocks), to the last end."""
    return int((starts + [block.duration for block in plan.blocks]).max() - starts.min())


class Incumbent:
    """The least makespan found and the bound on it, with news of both.

    `starts`, shaped (micro-batches, blocks), begins with those of a schedule by what `by` names; `bound` is a makespan
    that no schedule can beat, and may be raised.
    """

    def __init__(
        self, plan: MicroBatchPlan, starts: IntColumn, bound: int, control: Control, by: str = "sequential"
    ) -> None:
        self.plan, self.starts, self.bound, self.control = plan, starts, bound, control
        self.makespan = self.length(starts)
        self.news(by)

    def length(self, starts: IntColumn) -> int:
        """The makespan of `starts`, wherever they begin."""
        return makespan_of(self.plan, starts)

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

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a shorter schedule, found by what `by` names; says whether it is shorter."""
        if starts is None or (makespan := self.length(starts)) >= self.makespan:
            return False
        self.makespan, self.starts = makespan, starts
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
