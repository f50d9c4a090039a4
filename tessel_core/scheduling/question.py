"""What is asked of a scheduler, as one value: equal questions have equal answers, so answers are filed by it."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.control import Control
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.scheduling.table import find_scheduler, solve_schedule


@dataclass(frozen=True, slots=True)
class Question:
    """One search, complete: nothing else decides its answer but the time the machine takes."""

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    config: object

    @property
    def title(self) -> str:
        """The scheduler as people write it."""
        return find_scheduler(self.scheduler).title

    def solve(self, control: Control) -> ScheduleReport:
        """The answer, as `solve_schedule` gives it."""
        return solve_schedule(self.scheduler, self.plan, self.micro_batches, self.config, control)
