"""The shortest schedule so far, of all that searches offer."""

from __future__ import annotations

from fractions import Fraction

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan
from tessel_core.model.schedule import IntColumn


class Incumbent:
    """The least makespan found and the bound on it, with news of both.

    `bound` is a makespan that no schedule can beat; it may be raised.
    """

    def __init__(self, plan: MicroBatchPlan, micro_batches: int, bound: int, control: Control) -> None:
        self.plan, self.micro_batches, self.bound, self.control = plan, micro_batches, bound, control
        self.makespan: int | None = None
        self.starts: IntColumn | None = None
        """Shaped (micro-batches, blocks)."""
        self._durations = [block.duration for block in plan.blocks]

    @property
    def runs(self) -> int:
        """Blocks times micro-batches."""
        return self.micro_batches * len(self.plan.blocks)

    @property
    def proved(self) -> bool:
        return self.makespan is not None and self.makespan <= self.bound

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a shorter schedule, found by what `by` names; says whether it is shorter."""
        if starts is None:
            return False
        makespan = int((starts + self._durations).max() - starts.min())
        if self.makespan is not None and makespan >= self.makespan:
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
        objective = None if self.makespan is None else Fraction(self.makespan)
        self.control.report(MAKESPAN, objective, Fraction(self.bound), by)
