"""The incumbent: the shortest schedule that the searches have found so far."""

from __future__ import annotations

from tessel_core.control import Control
from tessel_core.model import MAKESPAN, MicroBatchPlan
from tessel_core.model.schedule import IntColumn


def makespan_of(plan: MicroBatchPlan, starts: IntColumn) -> int:
    """Return the ticks from the first start to the last end. `starts` is shaped (micro-batches, blocks)."""
    return int((starts + [block.duration for block in plan.blocks]).max() - starts.min())


class Incumbent:
    """The shortest schedule so far, and a lower bound on the makespan.

    A shorter schedule or a higher bound is reported as progress. `starts` is shaped (micro-batches, blocks). `by` names
    the method that found a schedule or proved a bound.
    """

    def __init__(
        self, plan: MicroBatchPlan, starts: IntColumn, bound: int, control: Control, by: str = "sequential"
    ) -> None:
        self.plan, self.starts, self.bound, self.control = plan, starts, bound, control
        self.makespan = self.length(starts)
        self._report(by)

    def length(self, starts: IntColumn) -> int:
        """Return the makespan of `starts`, counted from the first start."""
        return makespan_of(self.plan, starts)

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches."""
        return len(self.starts)

    @property
    def runs(self) -> int:
        """Number of runs: blocks times micro-batches."""
        return self.starts.size

    @property
    def proved(self) -> bool:
        """Whether the makespan meets the bound."""
        return self.makespan <= self.bound

    def offer(self, starts: IntColumn | None, by: str) -> bool:
        """Keep a schedule if it is shorter than the incumbent. Return whether it was kept."""
        if starts is None or (makespan := self.length(starts)) >= self.makespan:
            return False
        self.makespan, self.starts = makespan, starts
        self._report(by)
        return True

    def raise_bound(self, bound: int, by: str) -> bool:
        """Raise the bound. Return whether `bound` is better than before."""
        if bound <= self.bound:
            return False
        self.bound = bound
        self._report(by)
        return True

    def _report(self, by: str) -> None:
        """Report the makespan and its bound as progress."""
        self.control.report(MAKESPAN, self.makespan, self.bound, by)
