"""What is asked of a scheduler, as one value: equal questions have equal answers, so answers are filed by it.

Questions that differ in the objective alone are answered by one search; `search` is what they have in common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tessel_core.control import Control
from tessel_core.model import PERIOD, MicroBatchPlan, ScheduleReport
from tessel_core.options import without_selection
from tessel_core.scheduling.table import find_scheduler, solve_schedule


@dataclass(frozen=True, slots=True)
class Question:
    """One search, complete: nothing else decides its answer but the time the machine takes."""

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    config: Any

    @property
    def title(self) -> str:
        """The scheduler as people write it, and what it is asked for where that is not the usual."""
        title = find_scheduler(self.scheduler).title
        return f"{title} (steady)" if self.objective == PERIOD else title

    @property
    def objective(self) -> str:
        """What is asked for; empty where the scheduler has one objective only."""
        return getattr(self.config, "objective", "")

    @property
    def search(self) -> Question:
        """The question by which the search is known: every option that only selects from what it finds is as usual."""
        return replace(self, config=without_selection(self.config))

    def about(self, objective: str) -> Question:
        """The same search, asked for this objective; itself where the scheduler has one only."""
        return replace(self, config=replace(self.config, objective=objective)) if self.objective else self

    def answered_by(self, report: ScheduleReport) -> ScheduleReport:
        """A report of the same search, speaking of the objective that is asked here."""
        return replace(report.about(self.objective or report.objective_name), config=self.config)

    def solve(self, control: Control) -> ScheduleReport:
        """The answer, as `solve_schedule` gives it."""
        return solve_schedule(self.scheduler, self.plan, self.micro_batches, self.config, control)
